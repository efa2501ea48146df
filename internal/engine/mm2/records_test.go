package mm2_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// Golden bytes, written by the Java classes of 3.9.2 and 4.3.1.
var (
	heartbeatVectors = []struct {
		h          mm2.Heartbeat
		key, value string
	}{
		{mm2.Heartbeat{SourceAlias: "A", TargetAlias: "B", Timestamp: 1700000000000}, "000141000142", "00000000018bcfe56800"},
		{mm2.Heartbeat{SourceAlias: "us-west", TargetAlias: "us-east", Timestamp: 0}, "000775732d77657374000775732d65617374", "00000000000000000000"},
		{mm2.Heartbeat{SourceAlias: "münchen", TargetAlias: "B", Timestamp: 9223372036854775807}, "00086dc3bc6e6368656e000142", "00007fffffffffffffff"},
	}
	checkpointVectors = []struct {
		c          mm2.Checkpoint
		key, value string
	}{
		{mm2.Checkpoint{Group: "g", Topic: "A.t", Partition: 0, Upstream: 10, Downstream: 11, Metadata: ""}, "0001670003412e7400000000", "0000000000000000000a000000000000000b0000"},
		{
			mm2.Checkpoint{Group: "orders-app", Topic: "primary.orders", Partition: 7, Upstream: 123456789012, Downstream: 123456700001, Metadata: "m=1"},
			"000a6f72646572732d617070000e7072696d6172792e6f726465727300000007", "00000000001cbe991a140000001cbe97be6100036d3d31",
		},
		{mm2.Checkpoint{Group: "grüppe", Topic: "A.t", Partition: 2147483647, Upstream: 0, Downstream: 0, Metadata: "é"}, "00076772c3bc7070650003412e747fffffff", "0000000000000000000000000000000000000002c3a9"},
	}
	offsetSyncVectors = []struct {
		s          mm2.OffsetSync
		key, value string
	}{
		{mm2.OffsetSync{Topic: "t", Partition: 0, Upstream: 0, Downstream: 0}, "00017400000000", "00000000000000000000000000000000"},
		{mm2.OffsetSync{Topic: "orders", Partition: 7, Upstream: 123456789011, Downstream: 123456700000}, "00066f726465727300000007", "0000001cbe991a130000001cbe97be60"},
		{mm2.OffsetSync{Topic: "A.heartbeats", Partition: 0, Upstream: 100, Downstream: 4294967296}, "000c412e6865617274626561747300000000", "00000000000000640000000100000000"},
	}
)

func TestHeartbeatsHaveJavasBytes(t *testing.T) {
	t.Parallel()
	for _, v := range heartbeatVectors {
		key, err := v.h.Key()
		require.NoError(t, err)
		require.Equal(t, v.key, hex.EncodeToString(key))
		require.Equal(t, v.value, hex.EncodeToString(v.h.Value()))
		got, err := mm2.DecodeHeartbeat(append(key, 1, 2), append(v.h.Value(), 0xff))
		require.NoError(t, err, "trailing bytes are ignored")
		require.Equal(t, v.h, got)
	}
	require.Equal(t, "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}", heartbeatVectors[0].h.String())
}

func TestCheckpointsHaveJavasBytes(t *testing.T) {
	t.Parallel()
	for _, v := range checkpointVectors {
		key, err := v.c.Key()
		require.NoError(t, err)
		require.Equal(t, v.key, hex.EncodeToString(key))
		value, err := v.c.Value()
		require.NoError(t, err)
		require.Equal(t, v.value, hex.EncodeToString(value))
		got, err := mm2.DecodeCheckpoint(append(key, 0), append(value, 0xff, 0xff))
		require.NoError(t, err, "trailing bytes are ignored")
		require.Equal(t, v.c, got)
	}
	require.Equal(t, "Checkpoint{consumerGroupId=g, topicPartition=A.t-0, upstreamOffset=10, downstreamOffset=11, metadata=}", checkpointVectors[0].c.String())
}

func TestOffsetSyncsHaveJavasBytes(t *testing.T) {
	t.Parallel()
	for _, v := range offsetSyncVectors {
		key, err := v.s.Key()
		require.NoError(t, err)
		require.Equal(t, v.key, hex.EncodeToString(key))
		require.Equal(t, v.value, hex.EncodeToString(v.s.Value()))
		got, err := mm2.DecodeOffsetSync(append(key, 0), append(v.s.Value(), 7))
		require.NoError(t, err, "trailing bytes are ignored")
		require.Equal(t, v.s, got)
	}
	require.Equal(t, "OffsetSync{topicPartition=t-0, upstreamOffset=0, downstreamOffset=0}", offsetSyncVectors[0].s.String())
}

func TestBadRecordsAreReportedByKind(t *testing.T) {
	t.Parallel()
	key := unhex(t, "0001670003412e7400000000")
	for _, tc := range []struct {
		name, key, value string
		want             error
	}{
		{"version 1", "0001670003412e7400000000", "0001000000000000000a000000000000000b0000", mm2.ErrVersion},
		{"five bytes", "0001670003412e7400000000", "0000000000", mm2.ErrTruncated},
		{"empty value", "0001670003412e7400000000", "", mm2.ErrTruncated},
		{"empty key", "", "0000000000000000000a000000000000000b0000", mm2.ErrTruncated},
		{"negative string length", "ffff0003412e7400000000", "0000000000000000000a000000000000000b0000", mm2.ErrTruncated},
	} {
		_, err := mm2.DecodeCheckpoint(unhex(t, tc.key), append([]byte{}, unhex(t, tc.value)...))
		require.ErrorIs(t, err, tc.want, tc.name)
	}
	_, err := mm2.DecodeCheckpoint(key, nil)
	require.ErrorIs(t, err, mm2.ErrTombstone)
	_, err = mm2.DecodeHeartbeat(key, nil)
	require.ErrorIs(t, err, mm2.ErrTombstone)
	_, err = mm2.DecodeOffsetSync(key, nil)
	require.ErrorIs(t, err, mm2.ErrTombstone)
	_, err = mm2.DecodeHeartbeat(unhex(t, "000141000142"), unhex(t, "00010000018bcfe56800"))
	require.ErrorIs(t, err, mm2.ErrVersion)
	_, err = mm2.DecodeOffsetSync(unhex(t, "00017400000000"), unhex(t, "000000000000000000000000000000"))
	require.ErrorIs(t, err, mm2.ErrTruncated)
}

func TestStringsThatTheFormatCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 32768)
	_, err := mm2.Checkpoint{Group: long}.Key()
	require.ErrorIs(t, err, mm2.ErrStringTooLong)
	_, err = mm2.Checkpoint{Metadata: long}.Value()
	require.ErrorIs(t, err, mm2.ErrStringTooLong)
	_, err = mm2.Heartbeat{SourceAlias: long}.Key()
	require.ErrorIs(t, err, mm2.ErrStringTooLong)
	_, err = mm2.Checkpoint{Group: long[1:]}.Key()
	require.NoError(t, err)
}

func FuzzDecodeHeartbeat(f *testing.F) {
	for _, v := range heartbeatVectors {
		f.Add(unhex(f, v.key), unhex(f, v.value))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		h, err := mm2.DecodeHeartbeat(key, value)
		if err != nil {
			return
		}
		again, err := h.Key()
		require.NoError(t, err)
		require.Equal(t, key[:len(again)], again)
		require.Equal(t, value[:10], h.Value())
	})
}

func FuzzDecodeCheckpoint(f *testing.F) {
	for _, v := range checkpointVectors {
		f.Add(unhex(f, v.key), unhex(f, v.value))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		c, err := mm2.DecodeCheckpoint(key, value)
		if err != nil {
			return
		}
		k, err := c.Key()
		require.NoError(t, err)
		require.Equal(t, key[:len(k)], k)
		v, err := c.Value()
		require.NoError(t, err)
		require.Equal(t, value[:len(v)], v)
	})
}

func FuzzDecodeOffsetSync(f *testing.F) {
	for _, v := range offsetSyncVectors {
		f.Add(unhex(f, v.key), unhex(f, v.value))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s, err := mm2.DecodeOffsetSync(key, value)
		if err != nil {
			return
		}
		k, err := s.Key()
		require.NoError(t, err)
		require.Equal(t, key[:len(k)], k)
		require.Equal(t, value[:16], s.Value())
	})
}

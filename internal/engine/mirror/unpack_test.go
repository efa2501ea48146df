package mirror

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

func unpackers(tb testing.TB) (*unpacker, *wire.Pool) {
	tb.Helper()
	c, err := codec.New()
	require.NoError(tb, err)
	m, err := newMetrics(Config{Flow: "f", Registry: prometheus.NewRegistry()})
	require.NoError(tb, err)
	pool := wire.NewPool(1 << 20)
	return newUnpacker(&mirror{metrics: m, cfg: Config{PassThrough: true}, codec: c, pool: pool}), pool
}

// all gives bytes to an unpacker as the source's answer, from offset on.
func (u *unpacker) all(from int64, l limits, aborted []batch.AbortedTransaction, raw ...[]byte) (*unpacked, error) {
	var all []byte
	for _, b := range raw {
		all = append(all, b...)
	}
	buf := u.pool.Get(max(len(all), 1))
	defer buf.Release()
	copy(buf.Bytes(), all)
	return u.unpack(fetchWant{tp: TP{"t", 0}, offset: from, limits: l}, &wire.FetchedPartition{Records: buf.Bytes()[:len(all)], Aborted: aborted}, buf)
}

// unlimited is what a target takes of which nothing is known.
func unlimited() limits { return limits{records: math.MaxInt} }

// sources are the source offsets of the records, in order.
func (u *unpacked) sources() (all []int64) {
	for _, one := range u.units {
		spans, _ := one.spans(0)
		for _, s := range spans {
			for i := range s.Count {
				all = append(all, s.Source+i)
			}
		}
	}
	return all
}

// message is a message of format 1.
func message(offset, ts int64, key, value []byte) []byte {
	body := []byte{1, 0}
	body = binary.BigEndian.AppendUint64(body, uint64(ts))
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(key))), key...)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(value))), value...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	return append(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body)), body...)
}

func TestMessagesOfOldFormatsBecomeBatches(t *testing.T) {
	t.Parallel()
	u, pool := unpackers(t)
	got, err := u.all(6, unlimited(), nil, message(5, 100, []byte("k"), []byte("a")), message(6, 101, []byte("k"), []byte("b")),
		message(9, 102, nil, []byte("c")), at(encoded(t, samples(3), identity{}), 20))
	require.NoError(t, err)
	require.Equal(t, []int64{6, 9, 20, 21, 22, 23}, got.sources())
	require.EqualValues(t, 24, got.next())
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.RecordBatches = got.units[0].encode(identity{pid: 1})
	again, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &answer, kgo.DefaultDecompressor(), nil)
	require.NoError(t, again.Err)
	require.EqualValues(t, 101, again.Records[0].Timestamp.UnixMilli())
	require.Equal(t, []byte("k"), again.Records[0].Key)
	require.Equal(t, []byte("b"), again.Records[0].Value)
	got.drop()
	require.Zero(t, pool.InUse())
}

func TestAbortedControlAndEmptiedBatchesArePassedOver(t *testing.T) {
	t.Parallel()
	u, pool := unpackers(t)
	batchOf := func(base int64, n int, pid int64, set uint16) []byte {
		return attrs(at(encoded(t, samples(0)[:n], identity{pid: pid}), base), set)
	}
	marker := func(base, pid int64, kind byte) []byte {
		return attrs(at(encoded(t, []record{{body: body([]byte{0, 0, 0, kind}, make([]byte, 6))}}, identity{pid: pid}), base), attrTxn|attrControl)
	}
	raw := [][]byte{
		batchOf(10, 2, 5, attrTxn), batchOf(12, 2, 6, attrTxn), marker(14, 5, 0), batchOf(15, 1, 5, attrTxn), marker(16, 5, 1), marker(17, 6, 1),
	}
	aborted := []batch.AbortedTransaction{{ProducerID: 5, FirstOffset: 10}}
	u.committed = true
	got, err := u.all(11, unlimited(), aborted, raw...)
	require.NoError(t, err)
	require.Equal(t, []int64{12, 13, 15}, got.sources())
	require.EqualValues(t, 18, got.next())
	require.EqualValues(t, 18, got.units[len(got.units)-1].next, "markers belong to the batch before them")
	got.drop()
	u.committed = false
	got, err = u.all(11, unlimited(), nil, raw...)
	require.NoError(t, err)
	require.Equal(t, []int64{11, 12, 13, 15}, got.sources())
	got.drop()
	require.Zero(t, pool.InUse())
}

func TestDamageIsReportedAtItsBatchAndWhatCameBeforeIsKept(t *testing.T) {
	t.Parallel()
	good := encoded(t, samples(1), identity{})
	for name, bad := range map[string][]byte{
		"a flipped bit":       func() []byte { b := at(good, 4); b[len(b)-1] ^= 1; return b }(),
		"an unknown magic":    func() []byte { b := at(good, 4); b[16] = 9; return b }(),
		"too many records":    change(at(good, 4), func(b []byte) { binary.BigEndian.PutUint32(b[57:], 99) }),
		"an impossible codec": change(at(good, 4), func(b []byte) { b[22] = 7 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, pool := unpackers(t)
			got, err := u.all(0, unlimited(), nil, good, bad)
			require.ErrorIs(t, err, batch.ErrCorrupt)
			require.EqualValues(t, 4, got.next())
			require.Equal(t, []int64{0, 1, 2, 3}, got.sources())
			got.drop()
			require.Zero(t, pool.InUse())
		})
	}
}

func TestAfterARefusalOneSmallerBatchIsMadeAtATime(t *testing.T) {
	t.Parallel()
	u, pool := unpackers(t)
	raw := [][]byte{encoded(t, samples(3), identity{}), at(encoded(t, samples(3), identity{}), 4)}
	for from, want := range map[int64][]int64{0: {0, 1, 2}, 3: {3}, 4: {4, 5, 6}} {
		got, err := u.all(from, limits{records: 3}, nil, raw...)
		require.NoError(t, err)
		require.Equal(t, want, got.sources())
		require.EqualValues(t, want[len(want)-1]+1, got.next())
		got.drop()
	}
	require.Zero(t, pool.InUse())
}

func TestNothingPassesWhenPassingIsOff(t *testing.T) {
	t.Parallel()
	u, pool := unpackers(t)
	u.apart = true
	raw := [][]byte{encoded(t, samples(3), identity{}), at(encoded(t, samples(3), identity{}), 4), at(encoded(t, samples(4), identity{}), 8)}
	got, err := u.all(0, unlimited(), nil, raw...)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, got.sources())
	var codecs []int8
	for _, one := range got.units {
		require.NotNil(t, one.spansOf, "built anew")
		codecs = append(codecs, one.b.Codec())
	}
	require.Equal(t, []int8{3, 4}, codecs, "each with the codec that it had")
	got.drop()
	require.Zero(t, pool.InUse())
}

func FuzzUnpackNeverPanics(f *testing.F) {
	for n := range int8(5) {
		f.Add(encoded(f, samples(n), identity{}), n == 0, 3)
	}
	f.Add(message(1, 2, []byte("k"), []byte("v")), false, 1)
	u, pool := unpackers(f)
	f.Fuzz(func(t *testing.T, b []byte, repair bool, records int) {
		if repair && len(b) > batch.HeaderLen && b[16] == 2 {
			b = change(b, func([]byte) {})
		}
		u.committed = repair
		got, _ := u.all(0, limits{records: max(records, 1)}, []batch.AbortedTransaction{{}}, b, b)
		at := int64(-1)
		for _, one := range got.units {
			spans, _ := one.spans(0)
			for _, s := range spans {
				require.Greater(t, s.Source, at)
				require.Positive(t, s.Count)
				at = s.Source + s.Count - 1
			}
		}
		require.Greater(t, got.next(), at)
		got.drop()
		require.Zero(t, pool.InUse())
	})
}

func TestSmallBatchesPassWhereTheyShareRequestsAnyway(t *testing.T) {
	t.Parallel()
	u, pool := unpackers(t)
	raw := [][]byte{encoded(t, samples(0), identity{}), at(encoded(t, samples(0), identity{}), 4), at(encoded(t, samples(4), identity{}), 8)}
	require.Greater(t, len(raw[0]), tinyBatch)
	require.Less(t, len(raw[2]), tinyBatch)
	for shared, want := range map[bool]int{true: 3, false: 1} {
		got, err := u.all(0, limits{records: math.MaxInt, shared: shared}, nil, raw...)
		require.NoError(t, err)
		require.Len(t, got.units, want)
		require.Len(t, got.sources(), 12)
		got.drop()
	}
	require.Zero(t, pool.InUse())
}

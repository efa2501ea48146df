package mm2_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

var connectVectors = []struct {
	key       []byte
	text, hex string
	partition int32
}{
	{
		mm2.ConnectSourceOffset{Connector: mm2.SourceConnectorName, Cluster: "A", Topic: "t"}.Key(),
		`["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]`,
		"5b224d6972726f72536f75726365436f6e6e6563746f72222c7b22636c7573746572223a2241222c22706172746974696f6e223a302c22746f706963223a2274227d5d", 7,
	},
	{
		mm2.ConnectSourceOffset{Connector: mm2.SourceConnectorName, Cluster: "primary", Topic: "orders", Partition: 7}.Key(),
		`["MirrorSourceConnector",{"cluster":"primary","partition":7,"topic":"orders"}]`,
		"5b224d6972726f72536f75726365436f6e6e6563746f72222c7b22636c7573746572223a227072696d617279222c22706172746974696f6e223a372c22746f706963223a226f7264657273227d5d", 21,
	},
	{
		mm2.ConnectSourceOffset{Connector: mm2.SourceConnectorName, Cluster: "A", Topic: "heartbeats"}.Key(),
		`["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"heartbeats"}]`,
		"5b224d6972726f72536f75726365436f6e6e6563746f72222c7b22636c7573746572223a2241222c22706172746974696f6e223a302c22746f706963223a2268656172746265617473227d5d", 23,
	},
	{
		mm2.ConnectHeartbeatKey(mm2.HeartbeatConnectorName, "A", "B"),
		`["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]`,
		"5b224d6972726f72486561727462656174436f6e6e6563746f72222c7b22736f75726365436c7573746572416c696173223a2241222c22746172676574436c7573746572416c696173223a2242227d5d", 0,
	},
	{
		mm2.ConnectCheckpointKey(mm2.CheckpointConnectorName, "g", "A.t", 0),
		`["MirrorCheckpointConnector",{"partition":0,"topic":"A.t","group":"g"}]`,
		"5b224d6972726f72436865636b706f696e74436f6e6e6563746f72222c7b22706172746974696f6e223a302c22746f706963223a22412e74222c2267726f7570223a2267227d5d", 21,
	},
}

func TestConnectKeysHaveJavasBytesAndPartition(t *testing.T) {
	t.Parallel()
	for _, v := range connectVectors {
		require.Equal(t, v.text, string(v.key))
		require.Equal(t, v.hex, hex.EncodeToString(v.key))
		require.Equal(t, v.partition, mm2.KeyPartition(v.key, mm2.ConnectOffsetsPartitions), v.text)
	}
	require.Equal(t, "7b226f6666736574223a34317d", hex.EncodeToString(mm2.ConnectOffsetValue(41)))
	require.Equal(t, "7b226f6666736574223a3132333435363738393031317d", hex.EncodeToString(mm2.ConnectOffsetValue(123456789011)))
	require.Equal(t, uint32(3321034988), mm2.Murmur2([]byte("21")))
	require.Equal(t, uint32(3504634814), mm2.Murmur2([]byte("foobar")))
}

func TestConnectKeysEscapeAsJacksonDoes(t *testing.T) {
	t.Parallel()
	group := "a\"\\/\b\t\n\f\r\x00\x1f\x7f\u0080é\u2028😀<>&'x"
	want := `["C",{"partition":1,"topic":"t","group":"a\"\\/\b\t\n\f\r\u0000\u001F` + "\x7f\u0080é\u2028" + `\uD83D\uDE00<>&'x"}]`
	require.Equal(t, want, string(mm2.ConnectCheckpointKey("C", group, "t", 1)))
}

func TestConnectSourceKeysAreReadAndForeignOrderIsSeen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key       string
		want      mm2.ConnectSourceOffset
		canonical bool
		bad       bool
	}{
		{`["MirrorSourceConnector",{"cluster":"proj.kafka-src","partition":0,"topic":"inventory"}]`, mm2.ConnectSourceOffset{Connector: "MirrorSourceConnector", Cluster: "proj.kafka-src", Topic: "inventory"}, true, false},
		{`["A->B.MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"t"}]`, mm2.ConnectSourceOffset{Connector: "A->B.MirrorSourceConnector", Cluster: "A", Topic: "t", Partition: 3}, true, false},
		{`["C",{"topic":"t","cluster":"A","partition":3}]`, mm2.ConnectSourceOffset{Connector: "C", Cluster: "A", Topic: "t", Partition: 3}, false, false},
		{`["C", {"cluster":"A","partition":3,"topic":"t"}]`, mm2.ConnectSourceOffset{Connector: "C", Cluster: "A", Topic: "t", Partition: 3}, false, false},
		{`["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]`, mm2.ConnectSourceOffset{}, false, true},
		{`["C",{"cluster":"A","partition":-1,"topic":"t"}]`, mm2.ConnectSourceOffset{}, false, true},
		{`["C"]`, mm2.ConnectSourceOffset{}, false, true},
		{`{}`, mm2.ConnectSourceOffset{}, false, true},
		{``, mm2.ConnectSourceOffset{}, false, true},
	} {
		got, canonical, err := mm2.ParseConnectSourceKey([]byte(tc.key))
		if tc.bad {
			require.ErrorIs(t, err, mm2.ErrConnectOffset, tc.key)
			continue
		}
		require.NoError(t, err, tc.key)
		require.Equal(t, tc.want, got)
		require.Equal(t, tc.canonical, canonical, tc.key)
	}
}

func TestConnectValuesAreReadStrictly(t *testing.T) {
	t.Parallel()
	got, err := mm2.ParseConnectOffsetValue([]byte(`{"offset":204}`))
	require.NoError(t, err)
	require.Equal(t, int64(204), got)
	_, err = mm2.ParseConnectOffsetValue(nil)
	require.ErrorIs(t, err, mm2.ErrTombstone)
	for _, bad := range []string{`{"offset":1.5}`, `{"offset":"1"}`, `{}`, `null`, `x`, ``} {
		_, err = mm2.ParseConnectOffsetValue([]byte(bad))
		require.ErrorIs(t, err, mm2.ErrConnectOffset, bad)
	}
}

func FuzzParseConnectSourceKey(f *testing.F) {
	for _, v := range connectVectors {
		f.Add(v.key)
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		o, canonical, err := mm2.ParseConnectSourceKey(key)
		if err == nil && canonical {
			require.Equal(t, key, o.Key())
		}
		_, _ = mm2.ParseConnectOffsetValue(key)
	})
}

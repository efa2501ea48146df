package state

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const alias = "proj.kafka-src"

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func open(t *testing.T, cluster *kfake.Cluster, epoch int64) *TopicStore {
	t.Helper()
	return openFor(t, cluster, "flow", epoch)
}

func openFor(t *testing.T, cluster *kfake.Cluster, flow string, epoch int64) *TopicStore {
	t.Helper()
	s, err := Open(Config{
		Target:   kafka.Cluster{BootstrapServers: cluster.ListenAddrs(), Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"})},
		ClientID: "a->b|flow-0|state", SourceAlias: alias, Flow: flow, LeaseEpoch: epoch, ReplicationFactor: 1, MM2Positions: true,
		RemoteTopic: func(source string) string { return alias + "." + source },
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, cluster *kfake.Cluster) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func key(partition int32) Key { return Key{alias + ".orders", partition} }

func TestWhatIsSavedIsLoadedByTheNext(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	first := open(t, cluster, 1)
	empty, err := first.Load(within(t))
	require.NoError(t, err)
	require.Empty(t, empty)

	m := holed(t, 8000)
	want := map[Key]Entry{
		key(0): {SourceTopic: "orders", SourceTopicID: [16]byte{1}, TargetTopicID: [16]byte{2}, Position: 10, TargetNext: 10, Map: m},
		key(1): {SourceTopic: "orders", Position: 0, TargetNext: -1},
	}
	require.NoError(t, first.Save(within(t), want))
	source, target, _ := m.End()
	require.NoError(t, m.AddRun(source+2, target, 5))
	want[key(0)] = Entry{SourceTopic: "orders", SourceTopicID: [16]byte{1}, TargetTopicID: [16]byte{2}, Position: 20, TargetNext: 15, Map: m}
	require.NoError(t, first.Save(within(t), map[Key]Entry{key(0): want[key(0)]}))

	got, err := open(t, cluster, 2).Load(within(t))
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, m.Runs(), got[key(0)].Map.Runs())
	require.EqualValues(t, 20, got[key(0)].Position)
	require.EqualValues(t, 15, got[key(0)].TargetNext)
	require.EqualValues(t, 1, got[key(0)].LeaseEpoch)
	require.Equal(t, [16]byte{1}, got[key(0)].SourceTopicID)
	require.Zero(t, got[key(1)].Position)
}

func TestMM2sPositionIsAdoptedWhenThereIsNoneOfOurs(t *testing.T) {
	t.Parallel()
	// Another partition count than MM2's default, as an administrator may choose.
	cluster := fake(t, kfake.SeedTopics(3, mm2.ConnectOffsetsTopic(alias)))
	c := client(t, cluster)
	write := func(o mm2.ConnectSourceOffset, value []byte) {
		k := o.Key()
		require.NoError(t, c.ProduceSync(within(t), &kgo.Record{
			Topic: mm2.ConnectOffsetsTopic(alias), Key: k, Value: value, Partition: mm2.KeyPartition(k, 3),
		}).FirstErr())
	}
	of := func(cluster string, partition int32) mm2.ConnectSourceOffset {
		return mm2.ConnectSourceOffset{Connector: mm2.SourceConnectorName, Cluster: cluster, Topic: "orders", Partition: partition}
	}
	write(of(alias, 0), mm2.ConnectOffsetValue(41))
	write(of(alias, 1), mm2.ConnectOffsetValue(7))
	write(of(alias, 2), mm2.ConnectOffsetValue(7))
	write(of(alias, 2), nil)
	write(of("other", 3), mm2.ConnectOffsetValue(7))
	write(of(alias, 4), []byte(`{"offset":1.5}`))
	require.NoError(t, open(t, cluster, 1).Save(within(t), map[Key]Entry{key(1): {SourceTopic: "orders", Position: 500, TargetNext: 400}}))

	got, err := open(t, cluster, 2).Load(within(t))
	require.NoError(t, err)
	require.Equal(t, Entry{SourceTopic: "orders", Position: 42, TargetNext: -1}, got[key(0)])
	require.EqualValues(t, 500, got[key(1)].Position)
	require.Len(t, got, 2)
}

func TestPositionsAreWrittenForMM2UnderItsKeysAndPartitions(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	require.NoError(t, s.Save(within(t), map[Key]Entry{
		key(0): {SourceTopic: "orders", Position: 205, TargetNext: 205}, key(1): {SourceTopic: "orders", Position: 0, TargetNext: -1},
	}))
	topic := mm2.ConnectOffsetsTopic(alias)
	require.NotNil(t, cluster.PartitionInfo(topic, mm2.ConnectOffsetsPartitions-1))
	require.Nil(t, cluster.PartitionInfo(topic, mm2.ConnectOffsetsPartitions))
	var got []string
	require.NoError(t, sidetopic.Read(within(t), client(t, cluster), topic, func(r *kgo.Record) {
		require.Equal(t, mm2.KeyPartition(r.Key, mm2.ConnectOffsetsPartitions), r.Partition)
		got = append(got, fmt.Sprintf("%s %s", r.Key, r.Value))
	}))
	require.Equal(t, []string{`["MirrorSourceConnector",{"cluster":"proj.kafka-src","partition":0,"topic":"orders"}] {"offset":204}`}, got)
}

func TestForgottenPartitionIsGoneFromBothTopics(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	require.NoError(t, s.Save(within(t), map[Key]Entry{
		key(0): {SourceTopic: "orders", Position: 205, TargetNext: 205, Map: holed(t, 8000)}, key(1): {SourceTopic: "orders", Position: 9, TargetNext: 9},
	}))
	other := open(t, cluster, 2)
	_, err := other.Load(within(t))
	require.NoError(t, err)
	require.NoError(t, other.Forget(within(t), []Key{key(0)}))
	got, err := open(t, cluster, 3).Load(within(t))
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Contains(t, got, key(1))
}

func TestRecordsOfOthersInTheStateTopicArePassedOver(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, mm2.StateTopic(alias)))
	require.NoError(t, client(t, cluster).ProduceSync(within(t),
		&kgo.Record{Topic: mm2.StateTopic(alias), Key: []byte("hello"), Value: []byte("world")},
		&kgo.Record{Topic: mm2.StateTopic(alias), Value: []byte("no key")}).FirstErr())
	s := open(t, cluster, 1)
	got, err := s.Load(within(t))
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestNewerStateStopsTheLoad(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, mm2.StateTopic(alias)))
	require.NoError(t, client(t, cluster).ProduceSync(within(t),
		&kgo.Record{Topic: mm2.StateTopic(alias), Key: headKey(key(0)), Value: []byte{headVersion + 1}}).FirstErr())
	_, err := open(t, cluster, 1).Load(within(t))
	require.ErrorIs(t, err, ErrVersion)
}

func TestNotesLiveBesideEntries(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	require.NoError(t, s.SaveNote(within(t), "owned/a", []byte("x")))
	require.NoError(t, s.SaveNote(within(t), "owned/b", []byte("y")))
	require.NoError(t, s.SaveNote(within(t), "owned/b", nil))
	other := open(t, cluster, 2)
	entries, err := other.Load(within(t))
	require.NoError(t, err)
	require.Empty(t, entries)
	value, ok := other.Note("owned/a")
	require.True(t, ok)
	require.Equal(t, "x", string(value))
	_, ok = other.Note("owned/b")
	require.False(t, ok)
}

func TestPositionThatAFlowOfOursWroteForMM2IsNotAdoptedByAnother(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	require.NoError(t, open(t, cluster, 1).Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: 205, TargetNext: 205}}))
	identity := open(t, cluster, 1)
	identity.cfg.RemoteTopic = func(source string) string { return source }
	got, err := identity.Load(within(t))
	require.NoError(t, err)
	require.NotContains(t, got, Key{"orders", 0})
	require.Contains(t, got, key(0))
}

func TestUnknownPositionIsNotSaved(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	require.Error(t, open(t, cluster, 1).Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: -1, TargetNext: -1}}))
}

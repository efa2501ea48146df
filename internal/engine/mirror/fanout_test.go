package mirror

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
)

// Two flows of a worker want the same partitions at the same time, so that they share answers; each writes headers of its own
// into the batches while the other one sends them. Every record must arrive, once and in order, on both targets.
func TestFlowsThatCopyTheSamePartitionsToTwoTargetsDoNotMeetInMemory(t *testing.T) {
	t.Parallel()
	const records, size = 16_000, 500 // of each partition, in batches of 16 KB
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	h := hub.New(hub.Config{Linger: -1})
	t.Cleanup(h.Close)
	var targets []*kfake.Cluster
	var flows []*bench
	for i := range 2 {
		target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
		require.NoError(t, err)
		t.Cleanup(target.Close)
		from, to := plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...)
		from.Key, to.Key = "source", fmt.Sprint("target-", i)
		b := run(t, batches, from, to, func(c *Config) { c.Hub, c.Flow = h, fmt.Sprint("flow-", i) })
		b.assign(topic, 2, 0)
		targets, flows = append(targets, target), append(flows, b)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(source.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchMaxBytes(16<<10), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1000))
	require.NoError(t, err)
	defer client.Close()
	value := func(partition int32, i int) []byte {
		v := bytes.Repeat([]byte{byte(i)}, size)
		binary.BigEndian.PutUint64(v, uint64(i))
		binary.BigEndian.PutUint32(v[8:], uint32(partition))
		return v
	}
	failed := make(chan error, 2*records)
	for i := range 2 * records {
		p := int32(i % 2)
		client.Produce(t.Context(), &kgo.Record{Partition: p, Value: value(p, i/2)}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed <- err
			}
		})
	}
	require.NoError(t, client.Flush(t.Context()))
	require.Empty(t, failed)
	for i, b := range flows {
		for p := range int32(2) {
			b.untilAt(TP{topic, p}, records)
			require.Zero(t, b.seen.stopCount(TP{topic, p}), "flow %d", i)
			require.EqualValues(t, records, targets[i].PartitionInfo(remote(topic), p).HighWatermark)
		}
		reader, err := kgo.NewClient(kgo.SeedBrokers(targets[i].ListenAddrs()...), kgo.ConsumeTopics(remote(topic)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		require.NoError(t, err)
		defer reader.Close()
		var next [2]int
		for next[0]+next[1] < 2*records {
			fetched := reader.PollFetches(t.Context())
			require.NoError(t, fetched.Err())
			fetched.EachRecord(func(r *kgo.Record) {
				require.Equal(t, value(r.Partition, next[r.Partition]), r.Value, "flow %d, partition %d, record %d", i, r.Partition, next[r.Partition])
				next[r.Partition]++
			})
		}
		require.Equal(t, [2]int{records, records}, next)
	}
}

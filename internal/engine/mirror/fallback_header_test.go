package mirror

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// What stands in a batch's header on the source, and must not on the target.

func TestProducersOfTheSourceNeverReachTheTarget(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		theirs := batch.Producer{ID: 7_777_777, Epoch: 9, Sequence: 123_456}
		// Large ones pass, the small ones are merged.
		for i, of := range []int8{0, 3, 4} {
			p := theirs
			p.Sequence += int32(40 * i)
			produceRaw(t, source, topic, sealed(t, of, 1000, times(40), producedAs(p)))
		}
		for i := range int64(3) {
			produceRaw(t, source, topic, sealed(t, 0, 100, times(2), producedAs(batch.Producer{ID: 8_888_888 + i, Epoch: 3, Sequence: 5})))
		}
		kafkatest.FillTransactions(t, source, topic, kafkatest.FillOptions{Records: 200, ValueBytes: 1000}, 50, 0)
		c := startCopying(t, source, target, topic, nil, nil)
		c.finish(kafkatest.ReadCommitted)
		was, is := c.logged()
		require.Equal(t, theirs.ID, was[0].ProducerID())
		require.Equal(t, theirs.Sequence, was[0].BaseSequence())
		ours := requireOneProducer(t, is)
		require.NotEqual(t, theirs.ID, ours.ID)
		described := describeProducers(t, target, remote(topic))
		require.Len(t, described, 1)
		require.Equal(t, ours.ID, described[0].ProducerID)
		require.EqualValues(t, 326-1, described[0].LastSequence)
		require.EqualValues(t, -1, described[0].CurrentTxnStartOffset)
		c.requireOnly("pass none", "fallback merged", "skip control")
	})
}

func describeProducers(t *testing.T, c *kafkatest.Cluster, topic string) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	answer, err := req.RequestWith(t.Context(), kafkatest.Client(t, c))
	require.NoError(t, err)
	require.Zero(t, answer.Topics[0].Partitions[0].ErrorCode)
	return answer.Topics[0].Partitions[0].ActiveProducers
}

func TestUnknownAttributesAreCleared(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		const unknown = 0xff80
		for of := range int8(5) {
			produceRaw(t, source, topic, sealed(t, of, 1000, times(60), func(b []byte) {
				binary.BigEndian.PutUint16(b[21:], unknown|uint16(of))
			}))
		}
		c := startCopying(t, source, target, topic, nil, nil)
		c.until(source, topic)
		// The client library reads other timestamps under such bits; so the bytes are compared.
		was, is := c.logged()
		require.Len(t, is, 5)
		for i, b := range was {
			require.EqualValues(t, unknown|i, b.Attributes(), "the source keeps them")
			require.Equal(t, b.Payload(), is[i].Payload())
			require.Equal(t, []int64{b.BaseTimestamp(), b.MaxTimestamp()}, []int64{is[i].BaseTimestamp(), is[i].MaxTimestamp()})
		}
		requireOneProducer(t, is)
		require.Equal(t, 5, c.requireOnly("pass none")["pass none"])
	})
}

func TestRecordsWithoutATimestampGetNone(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		none := []int64{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
		produceRaw(t, source, topic, sealed(t, 0, 1000, none, nil), sealed(t, 3, 5000, none, nil), // which pass
			sealed(t, 0, 10, none, nil), sealed(t, 4, 500, none, nil), sealed(t, 0, 10, times(3), nil)) // which become one
		c := startCopying(t, source, target, topic, map[string]string{"retention.ms": "-1"}, nil)
		c.finish(kafkatest.ReadCommitted)
		got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)[0]
		for i := range 40 {
			require.EqualValues(t, -1, got[i].Timestamp.UnixMilli(), "record %d", i)
		}
		require.Positive(t, got[40].Timestamp.UnixMilli())
		v := c.requireOnly("pass none", "fallback merged")
		require.Equal(t, map[string]int{"pass none": 2, "fallback merged": 3}, v)
	})
}

// tombstones fills a compacted topic with batches that the cleaner has given a horizon, from which on it may remove their
// tombstones, and leaves without holes.
func tombstones(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	configs := kafkatest.CompactedConfigs()
	configs["delete.retention.ms"] = "86400000"
	kafkatest.CreateTopic(t, c, topic, 1, configs)
	client := kafkatest.Client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Second), kgo.ProducerBatchCompression(kgo.NoCompression()))
	id := 0
	write := func(n, size int) {
		rs := make([]*kgo.Record, n)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: topic, Key: fmt.Append(nil, "key-", id)}
			if id%3 > 0 {
				rs[i].Value = sealed(t, 0, size, []int64{int64(id)}, nil)
			}
			id++
		}
		require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
	}
	write(100, 1000)
	write(100, 1000)
	wait.For(t, 2*time.Minute, "the cleaner on "+topic, func() error {
		write(1, 10) // closes the segment once it is old enough
		for _, b := range rawBatches(t, c, topic)[:2] {
			if !b.DeleteHorizon() {
				return fmt.Errorf("attributes %b at offset %d", b.Attributes(), b.BaseOffset())
			}
		}
		return nil
	})
}

func TestBatchesWithADeleteHorizonPassWithoutIt(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		tombstones(t, source, topic)
		c := startCopying(t, source, target, topic, map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "0"}, nil)
		c.finish(kafkatest.ReadCommitted)
		was, is := c.logged()
		for i := range 2 {
			require.True(t, was[i].DeleteHorizon())
			require.EqualValues(t, 100, was[i].Count())
			require.Equal(t, was[i].Payload(), is[i].Payload())
			require.Equal(t, was[i].BaseTimestamp(), is[i].BaseTimestamp(), "from which the deltas count")
		}
		requireOneProducer(t, is)
		require.GreaterOrEqual(t, c.verdicts()["pass none"], 2)
	})
}

package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// What the log cleaner leaves of batches, and what compaction demands of them.

func TestBatchesThatTheCleanerHasEmptiedOrThinnedOut(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, kafkatest.CompactedConfigs())
		write := func(client *kgo.Client, from, to int) {
			t.Helper()
			var rs []*kgo.Record
			for i := from; i < to; i++ {
				rs = append(rs, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 500)})
			}
			require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
		}
		producer := func() *kgo.Client {
			return kafkatest.Client(t, source, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Second), kgo.ProducerBatchCompression(kgo.NoCompression()))
		}
		// Of the last batch of a producer the header stays, since it has the sequence number.
		write(producer(), 0, 50)
		write(producer(), 100, 150)
		later := producer()
		write(later, 0, 50)    // all of the first one's
		write(later, 100, 125) // half of the second one's
		write(later, 200, 250)
		wait.For(t, 2*time.Minute, "the cleaner on "+topic, func() error {
			write(later, 300, 301) // closes the segment once it is old enough
			all := rawBatches(t, source, topic)
			if a, b := all[0].Count(), all[1].Count(); a != 0 || b != 25 {
				return fmt.Errorf("%d and %d records", a, b)
			}
			return nil
		})
		c := startCopying(t, source, target, topic, nil, nil)
		c.until(source, topic)
		want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
		got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)
		// The cleaner goes on with what was written last, under one key.
		require.GreaterOrEqual(t, len(got[0]), len(want[0]))
		const settled = 25 + 50 + 25 + 50
		kafkatest.RequireEqual(t, map[int32][]kafkatest.Record{0: want[0][:settled]}, map[int32][]kafkatest.Record{0: got[0][:settled]})
		is := rawBatches(t, target, remote(topic))
		requireOneProducer(t, is)
		for _, b := range is {
			require.Equal(t, b.LastDelta()+1, b.Count())
		}
		v := c.verdicts()
		require.Equal(t, 1, v["fallback holes"], "%v", v)
		require.Positive(t, v["skip empty"], "%v", v)
		require.Positive(t, v["pass none"], "%v", v)
	})
}

func TestARecordWithoutAKeyIsNamedAndGoesOnOnceItMay(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		rs := make([]*kgo.Record, 30)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 2000)}
		}
		rs[17].Key = nil
		kafkatest.Produce(t, source, topic, rs...)
		c := startCopying(t, source, target, topic, map[string]string{"cleanup.policy": "compact"}, nil)
		stop := c.untilStopped(TP{topic, 0}, StopRefused)
		require.EqualValues(t, 17, stop.Offset)
		require.Contains(t, stop.Message, "offset 17")
		require.True(t, stop.Retry)
		require.EqualValues(t, 17, logEnds(t, target, remote(topic))[0], "those before it are there once")
		require.Positive(t, c.verdicts()["fallback refused"])
		answers, err := kafkatest.Admin(t, target).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: kadm.StringPtr("delete")}}, remote(topic))
		require.NoError(t, err)
		for _, a := range answers {
			require.NoError(t, a.Err)
		}
		c.finish(kafkatest.ReadCommitted)
		requireOneProducer(t, rawBatches(t, target, remote(topic)))
	})
}

package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// What the target's topic, the flow's isolation level and the backlog make of batches.

func TestATargetWithACompressionOfItsOwnGetsEqualRecords(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]int8{"uncompressed": batch.CodecNone, "gzip": batch.CodecGzip, "snappy": batch.CodecSnappy, "lz4": batch.CodecLZ4, "zstd": batch.CodecZstd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 1, nil)
			for from := range int8(5) {
				produceRaw(t, source, topic, sealed(t, from, 1000, times(80), nil))
			}
			c := startCopying(t, source, target, topic, map[string]string{"compression.type": name}, nil)
			c.finish(kafkatest.ReadCommitted)
			_, is := c.logged()
			require.Len(t, is, 5)
			for _, b := range is {
				require.Equal(t, of, b.Codec())
			}
			// Noted where the topic's compression is known, and passed in any case: the broker compresses anew.
			v := c.verdicts()
			require.Equal(t, 5, v["pass none"]+v["pass recompressed"], "%v", v)
		})
	}
}

func TestBatchesLargerThanASegmentOfTheTargetAreSplit(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, map[string]string{"max.message.bytes": "8000000"})
		const segment = 1 << 20
		produceRaw(t, source, topic, sealed(t, 0, 60_000, times(50), nil), sealed(t, 0, 60_000, times(3), nil), sealed(t, 0, segment+1000, times(1), nil))
		c := startCopying(t, source, target, topic, map[string]string{"max.message.bytes": "8000000", "segment.bytes": fmt.Sprint(segment)}, nil)
		// A record that fits into no segment stops the partition, and is named.
		stop := c.untilStopped(TP{topic, 0}, StopTooLarge)
		require.EqualValues(t, 53, stop.Offset)
		require.EqualValues(t, 53, c.seen.position(TP{topic, 0}))
		want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
		want[0] = want[0][:53]
		kafkatest.RequireEqual(t, want, kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
		_, is := c.logged()
		for _, b := range is {
			require.LessOrEqual(t, len(b), segment)
		}
		v := c.verdicts()
		require.Positive(t, v["fallback refused"]+v["fallback too_large"], "%v", v)
	})
}

func TestMarkersStayOutAndAbortedBatchesPassOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]kafkatest.Isolation{"committed": kafkatest.ReadCommitted, "uncommitted": kafkatest.ReadUncommitted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 1, nil)
			kafkatest.FillTransactions(t, source, topic, kafkatest.FillOptions{Records: 400, ValueBytes: 1000, Plain: true}, 40, 2)
			c := startCopying(t, source, target, topic, nil, func(c *Config) { c.ReadUncommitted = isolation == kafkatest.ReadUncommitted })
			c.finish(isolation)
			was, is := c.logged()
			requireOneProducer(t, is)
			marked := 0
			for _, b := range was {
				require.True(t, b.Transactional())
				if b.Control() {
					marked++
				}
			}
			require.Equal(t, 10, marked)
			if isolation == kafkatest.ReadCommitted {
				v := c.requireOnly("pass none", "skip control", "skip aborted")
				require.Equal(t, marked, v["skip control"])
				require.Equal(t, v["pass none"], v["skip aborted"], "every second transaction")
			} else {
				require.Equal(t, marked, c.requireOnly("pass none", "skip control")["skip control"])
				require.Len(t, is, len(was)-marked)
			}
		})
	}
}

func TestSmallBatchesWaitForNothing(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		c := startCopying(t, source, target, topic, nil, nil)
		const rounds = 20
		for i := range rounds {
			produceRaw(t, source, topic, sealed(t, 0, 50, times(1+i%3), nil))
			c.until(source, topic)
		}
		c.finish(kafkatest.ReadCommitted)
		was, is := c.logged()
		require.Len(t, is, rounds)
		for i := range was {
			require.Equal(t, was[i].Payload(), is[i].Payload())
		}
		require.Equal(t, map[string]int{"pass none": rounds}, c.verdicts())
	})
}

func TestAppendTimesAreTheTimesOfTheCopy(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, source, target *kafkatest.Cluster) {
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
		old := func(n int) []int64 {
			all := make([]int64, n)
			for i := range all {
				all[i] = 1_500_000_000_000 + int64(i)
			}
			return all
		}
		// Batches of many records are built anew; one of a single, uncompressed record passes.
		produceRaw(t, source, topic, sealed(t, 0, 1000, old(50), nil), sealed(t, 3, 1000, old(50), nil), sealed(t, 4, 20_000, old(1), nil), sealed(t, 0, 20_000, old(1), nil))
		c := startCopying(t, source, target, topic, map[string]string{"retention.ms": "-1"}, nil)
		c.finish(kafkatest.ReadCommitted) // timestamps, too
		for _, r := range kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)[0] {
			require.False(t, r.LogAppendTime)
			require.WithinRange(t, r.Timestamp, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		}
		_, is := c.logged()
		requireOneProducer(t, is)
		require.Equal(t, map[string]int{"fallback append_time": 3, "pass_append_time none": 1}, c.verdicts())
	})
}

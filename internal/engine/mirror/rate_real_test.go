package mirror

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// uneven writes batches of about 130 KB, n to each partition, and says how many bytes of values these are.
func uneven(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32, n int) (total int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for range n {
		var rs []*kgo.Record
		for p := range partitions {
			size := 110_000 + rand.IntN(40_000) //nolint:gosec // no secret
			total += size
			rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: make([]byte, size)})
		}
		require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
	}
	return total
}

// counted is what the metrics of some paths say: bytes read, of which to be read again, and bytes acknowledged.
func counted(t *testing.T, bs ...*bench) (read, again, copied float64) {
	t.Helper()
	for _, b := range bs {
		gatherer, ok := b.path.cfg.Registry.(prometheus.Gatherer)
		require.True(t, ok)
		families, err := gatherer.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				switch n := m.GetCounter().GetValue(); f.GetName() {
				case "mirrorflow_fetched_bytes_total":
					read += n
				case "mirrorflow_discarded_bytes_total":
					again += n
				case "mirrorflow_bytes_total":
					copied += n
				}
			}
		}
	}
	return read, again, copied
}

func TestALimitIsUsedAndWhatIsReadIsCopied(t *testing.T) {
	t.Parallel()
	const limit, span = 1_000_000, 5 * time.Second
	for _, one := range []struct {
		partitions int32
		tasks      int
		limit      float64
	}{{1, 1, limit}, {1, 1, 2 * limit}, {1, 1, 4 * limit}, {6, 1, limit}, {6, 1, 4 * limit}, {6, 3, limit}} {
		t.Run(fmt.Sprintf("%d partitions, %d tasks, %.0f bytes a second", one.partitions, one.tasks, one.limit), func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
			name := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, name, one.partitions, nil)
			kafkatest.CreateTopic(t, target, remote(name), one.partitions, nil)
			uneven(t, source, name, one.partitions, int(one.limit)*9/130_000/int(one.partitions))
			h := hub.New(hub.Config{})
			t.Cleanup(h.Close)
			var bs []*bench
			for i := range one.tasks {
				from, to := plain("source", source.Bootstrap()), plain("target", target.Bootstrap())
				from.Key, to.Key = "s", "t"
				b := run(t, batches, from, to, func(c *Config) { c.Hub, c.Task = h, i })
				b.path.SetMaxBytesPerSecond(int64(one.limit) / int64(one.tasks))
				var as []Assignment
				for p := range one.partitions {
					if int(p)%one.tasks == i {
						as = append(as, Assignment{Source: TP{name, p}, Target: TP{remote(name), p}})
					}
				}
				b.path.Assign(as)
				bs = append(bs, b)
			}
			wait.For(t, 20*time.Second, "the first second's bytes", func() error {
				if _, _, copied := counted(t, bs...); copied < one.limit {
					return fmt.Errorf("%.0f bytes copied", copied)
				}
				return nil
			})
			began := time.Now()
			read0, _, copied0 := counted(t, bs...)
			var read, copied float64
			wait.For(t, 2*span, "some seconds' bytes", func() error {
				read, _, copied = counted(t, bs...)
				if copied-copied0 < one.limit*span.Seconds() {
					return fmt.Errorf("%.0f bytes copied", copied)
				}
				return nil
			})
			took := time.Since(began).Seconds()
			t.Logf("read %.2f, copied %.2f of the limit", (read-read0)/took/one.limit, (copied-copied0)/took/one.limit)
			require.GreaterOrEqual(t, (copied-copied0)/took, 0.9*one.limit)
			require.LessOrEqual(t, (read-read0)/took, 1.15*one.limit)
			all, again, _ := counted(t, bs...)
			require.LessOrEqual(t, again, 0.12*all)
		})
	}
}

func TestWithoutALimitLittleIsReadTwice(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int32{1, 6} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			t.Parallel()
			source, target, b := shared(t, batches, nil)
			name := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, name, partitions, nil)
			kafkatest.CreateTopic(t, target, remote(name), partitions, nil)
			uneven(t, source, name, partitions, 720/int(partitions)) // how many batches to ask for is learned first
			b.assign(name, partitions, 0)
			b.until(source, name)
			read, again, copied := counted(t, b)
			t.Logf("read %.0f, of which %.0f again, copied %.0f", read, again, copied)
			require.LessOrEqual(t, read, 1.05*copied)
		})
	}
}

func TestALowLimitIsReadInSmallStepsAndPartitionsProgressAlike(t *testing.T) {
	t.Parallel()
	const partitions, limit, size = 6, 120_000, 10_000
	source, target, b := shared(t, batches, nil)
	name := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, name, partitions, nil)
	kafkatest.CreateTopic(t, target, remote(name), partitions, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(source.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for range 30 {
		var rs []*kgo.Record
		for p := range int32(partitions) {
			rs = append(rs, &kgo.Record{Topic: name, Partition: p, Value: make([]byte, size)})
		}
		require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
	}
	b.path.SetMaxBytesPerSecond(limit)
	b.assign(name, partitions, 0)
	steps, last := 0, int64(0)
	wait.For(t, 20*time.Second, "half of the records", func() error {
		sum := int64(0)
		for p := range int32(partitions) {
			sum += b.seen.position(TP{name, p})
		}
		if sum != last {
			steps, last = steps+1, sum
		}
		if sum < 90 {
			return fmt.Errorf("%d records", sum)
		}
		return nil
	})
	require.Greater(t, steps, 30, "of about 7 seconds")
	for p := range int32(partitions) {
		require.InDelta(t, last/partitions, b.seen.position(TP{name, p}), 4, "partition %d", p)
	}
	b.path.SetMaxBytesPerSecond(0)
	b.until(source, name)
}

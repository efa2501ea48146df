package mirror

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// farTarget is a broker behind a proxy.
func farTarget(t testing.TB, version kafkaproc.Version, props map[string]string) (target *kafkatest.Cluster, to *faultnet.Proxy) {
	t.Helper()
	advertise, proxies := faultnet.Advertise(t)
	target = kafkatest.StartAll(t, kafkatest.Options{
		Version: version, Listeners: []kafkaproc.Listener{{Name: "PLAINTEXT", Advertise: advertise}}, Props: props,
	})[0]
	return target, proxies[1]
}

// fill16K writes batches of about 16 KB, of 16 records with numbers from first on, to partition 0; all records get a timestamp.
func fill16K(t testing.TB, c *kafkatest.Cluster, topic string, first, batches int, at time.Time) {
	t.Helper()
	client := kafkatest.Client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(17<<10), kgo.ProducerLinger(50*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	failed := make(chan error, batches*16)
	for i := range batches * 16 {
		value := make([]byte, 1000)
		copy(value, fmt.Sprint(first+i))
		client.Produce(t.Context(), &kgo.Record{Topic: topic, Value: value, Timestamp: at}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed <- err
			}
		})
	}
	require.NoError(t, client.Flush(t.Context()))
	require.Empty(t, failed)
}

// requireSame checks that partition 0 of the copy holds the source's records, once each and in order.
func requireSame(t testing.TB, source, target *kafkatest.Cluster, topic string) {
	t.Helper()
	want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)[0]
	got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)[0]
	require.Equal(t, len(want), len(got), "records") //nolint:testifylint // the records would be shown
	for i := range want {
		require.Equal(t, string(want[i].Value), string(got[i].Value), "record %d", i)
	}
}

func TestAPartitionFillsALineOf80Milliseconds(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	target, line := farTarget(t, kafkatest.V43, nil)
	// Who waits for the answer to each batch of 16 KB moves 0.2 MB/s.
	const alone = 0.2
	const month = 30 * 24 * time.Hour
	for name, one := range map[string]struct {
		age     time.Duration
		configs map[string]string
	}{
		"young": {}, "30 days old": {age: month}, "30 days old with new times": {month, map[string]string{"message.timestamp.type": "LogAppendTime"}},
	} {
		t.Run(name, func(t *testing.T) {
			topic := kafkatest.UniqueName(t)
			configs := map[string]string{"retention.ms": "-1"}
			kafkatest.CreateTopic(t, source, topic, 1, configs)
			maps.Copy(configs, one.configs)
			kafkatest.CreateTopic(t, target, remote(topic), 1, configs)
			fill16K(t, source, topic, 0, 1500, time.Now().Add(-one.age))
			require.NoError(t, line.Latency(40*time.Millisecond))
			t.Cleanup(func() { require.NoError(t, line.Heal()) })
			b := run(t, batches, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), nil)
			began := time.Now()
			b.assign(topic, 1, 0)
			end := logEnds(t, source, topic)[0]
			var from int64
			var since time.Time
			wait.For(t, 60*time.Second, "the end", func() error {
				at := b.seen.position(TP{topic, 0})
				if since.IsZero() && at > end/10 {
					from, since = at, time.Now()
				}
				if at < end {
					return fmt.Errorf("at %d of %d, stop %+v", at, end, b.seen.stopped(TP{topic, 0}))
				}
				return nil
			})
			rate := float64(end-from) * 1000 / 1e6 / time.Since(since).Seconds()
			t.Logf("%s: %.1f MB/s over 80 ms, the whole in %v", name, rate, time.Since(began).Round(time.Millisecond))
			require.Greater(t, rate, 5*alone, "MB/s, however busy this machine is")
			require.NoError(t, line.Heal())
			requireSame(t, source, target, topic)
			require.Zero(t, b.seen.stopCount(TP{topic, 0}))
		})
	}
}

package mirror

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// BenchmarkPaths mirrors 256 MB of 1 KiB records (lz4, 16 partitions) from broker to broker with batches passed on and put
// together anew in turn, A B B A, for large and small batches of the source's producer, and tells this process's CPU time for
// each MB of records.
func BenchmarkPaths(b *testing.B) {
	for _, size := range []int32{512 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { benchmarkPaths(b, size) })
	}
}

func benchmarkPaths(b *testing.B, batchBytes int32) {
	const partitions, total, size = 16, 256 << 10, 1 << 10
	source := kafkatest.Shared(b, kafkatest.V39)
	topic := kafkatest.UniqueName(b)
	kafkatest.CreateTopic(b, source, topic, partitions, nil)
	client := kafkatest.Client(b, source, kgo.ProducerBatchMaxBytes(batchBytes), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(100*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	random := rand.NewChaCha8([32]byte{1})
	failed := make(chan error, total)
	for i := range total {
		value := make([]byte, size)
		_, err := random.Read(value[:size/2])
		require.NoError(b, err)
		client.Produce(b.Context(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed <- err
			}
		})
	}
	require.NoError(b, client.Flush(b.Context()))
	require.Empty(b, failed)
	for i, on := range []way{records, batches, batches, records} {
		b.Run(fmt.Sprintf("%d-%s", i, on), func(b *testing.B) {
			for b.Loop() {
				_, target, run := shared(b, on, nil)
				copied := fmt.Sprintf("%s-%d", kafkatest.UniqueName(b), time.Now().UnixNano())
				kafkatest.CreateTopic(b, target, copied, partitions, nil)
				began, before := time.Now(), cpu(b)
				for p := range int32(partitions) {
					run.path.Assign([]Assignment{{Source: TP{topic, p}, Target: TP{copied, p}}})
				}
				wait.For(b, time.Minute, "the end", func() error {
					for p := range int32(partitions) {
						if run.seen.position(TP{topic, p}) < total/partitions {
							return errors.New("not yet")
						}
					}
					return nil
				})
				used, took := cpu(b)-before, time.Since(began)
				b.ReportMetric(used.Seconds()*1000/(total*size/1e6), "cpu-ms/MB")
				b.ReportMetric(total*size/1e6/took.Seconds(), "MB/s")
				b.ReportMetric(0, "ns/op")
				run.end()
			}
		})
	}
}

// cpu is the time that this process has used.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package mirror

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

type kadmOffset = kadm.ListedOffset

// copyAll makes the copy's topic, mirrors everything and compares.
func copyAll(t *testing.T, topic string, partitions int32, isolation kafkatest.Isolation, configs map[string]string) {
	t.Helper()
	source, target, b := shared(t, func(c *Config) { c.ReadUncommitted = isolation == kafkatest.ReadUncommitted })
	kafkatest.CreateTopic(t, target, remote(topic), partitions, configs)
	b.assign(topic, partitions, 0)
	b.until(source, topic)
	want := kafkatest.ReadAll(t, source, topic, isolation)
	got := kafkatest.ReadAll(t, target, remote(topic), isolation)
	kafkatest.RequireEqual(t, want, got)
	b.requireSpans(want, got, topic)
}

func TestB09_B10_B11_RecordsOfAllKindsArriveEqual(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := kafkatest.Shared(t, kafkatest.V39)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 3, map[string]string{"retention.ms": "-1"})
			kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 6000, Partitions: 3, Opts: []kgo.Opt{kgo.ProducerBatchCompression(codec)}})
			copyAll(t, topic, 3, kafkatest.ReadCommitted, map[string]string{"retention.ms": "-1"})
		})
	}
}

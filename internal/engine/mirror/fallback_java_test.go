package mirror

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// produceByJava writes records, which are lines of text, to partition 0 with the Java client.
func produceByJava(t *testing.T, c *kafkatest.Cluster, topic string, records int, settings ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "%0*d %s\n", 20+i%300, i*i, strings.Repeat("line ", i%50))
	}
	file := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	args := append([]string{
		"--topic", topic, "--num-records", fmt.Sprint(records), "--payload-file", file, "--throughput", "-1",
		"--producer-props", "bootstrap.servers=" + c.Bootstrap(), "batch.size=60000", "linger.ms=200",
	}, settings...)
	cmd, err := kafkaproc.JavaCommand(ctx, c.Version(), nil, "org.apache.kafka.tools.ProducerPerformance", args...)
	require.NoError(t, err)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The Java client compresses with other libraries than ours, and in streams that do not say how long they are.
func TestBatchesOfTheJavaClientAreTakenApartAndPutTogetherAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		of       int8
		window   uint64
		settings []string
	}{
		{"gzip", batch.CodecGzip, 0, nil},
		{"snappy", batch.CodecSnappy, 0, nil},
		{"lz4", batch.CodecLZ4, 0, nil},
		{"zstd", batch.CodecZstd, 1 << 20, nil},
		{"zstd of the highest level", batch.CodecZstd, 128 << 20, []string{"compression.zstd.level=22"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 1, nil)
			name := []string{"none", "gzip", "snappy", "lz4", "zstd"}[c.of]
			produceByJava(t, source, topic, 2000, append(c.settings, "compression.type="+name)...)
			was := rawBatches(t, source, topic)
			require.Equal(t, c.of, was[0].Codec())
			if c.of == batch.CodecZstd {
				var h zstd.Header
				require.NoError(t, h.Decode(was[0].Payload()))
				require.False(t, h.HasFCS)
				require.GreaterOrEqual(t, h.WindowSize, c.window)
			}
			kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
			b := run(t, records, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), nil)
			b.assign(topic, 1, 0)
			b.until(source, topic)
			want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
			got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)
			require.Len(t, want[0], 2000)
			kafkatest.RequireEqual(t, want, got)
			b.requireSpans(want, got, topic)
			is := rawBatches(t, target, remote(topic))
			requireOneProducer(t, is)
			require.Equal(t, c.of, is[0].Codec(), "with the codec that it had")
		})
	}
}

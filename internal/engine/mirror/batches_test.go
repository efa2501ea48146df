package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// counted is how many fetched batches met with a verdict for a reason.
func (b *bench) counted(verdict batch.Verdict, reason string) int {
	b.tb.Helper()
	return b.metric("mirrorflow_batches_total", map[string]string{"verdict": verdict.String(), "reason": reason})
}

// metric is the value of a counter with the labels.
func (b *bench) metric(name string, want map[string]string) int {
	b.tb.Helper()
	gatherer, ok := b.path.metrics.registry.(prometheus.Gatherer)
	require.True(b.tb, ok)
	families, err := gatherer.Gather()
	require.NoError(b.tb, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found := 0
			for _, l := range m.GetLabel() {
				if v, ok := want[l.GetName()]; ok && v == l.GetValue() {
					found++
				}
			}
			if found == len(want) {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// rawBatches are the batches of partition 0 as the broker has them.
func rawBatches(t *testing.T, c *kafkatest.Cluster, topic string) []batch.Batch {
	t.Helper()
	client := kafkatest.Client(t, c)
	md := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(topic)
	md.Topics = append(md.Topics, mt)
	meta, err := md.RequestWith(t.Context(), client)
	require.NoError(t, err)
	end := logEnds(t, c, topic)[0]
	var all []batch.Batch
	for from := int64(0); from < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes = 64 << 20
		rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		rt.Topic, rt.TopicID = topic, meta.Topics[0].TopicID
		rp.FetchOffset, rp.PartitionMaxBytes = from, 64<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		answer, err := client.Broker(int(meta.Topics[0].Partitions[0].Leader)).Request(t.Context(), req)
		require.NoError(t, err)
		resp, ok := answer.(*kmsg.FetchResponse)
		require.True(t, ok)
		require.Len(t, resp.Topics, 1)
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
		s := batch.Slice(resp.Topics[0].Partitions[0].RecordBatches)
		for s.Next() {
			all = append(all, s.Batch())
			from = s.Batch().NextOffset()
		}
		require.NoError(t, s.Err())
	}
	return all
}

// fillBatches writes batches of n records each to partition 0, one by one.
func fillBatches(t *testing.T, c *kafkatest.Cluster, topic string, count, n, size int, opts ...kgo.Opt) {
	t.Helper()
	client := kafkatest.Client(t, c, append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Second), kgo.ProducerBatchMaxBytes(8 << 20),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()),
	}, opts...)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range count {
		failed := make(chan error, n)
		for k := range n {
			value := make([]byte, size)
			copy(value, fmt.Sprintf("%d/%d", i, k))
			for at := 16; at < size; at++ {
				value[at] = byte(at * (i + 7) * (k + 13) >> 3)
			}
			client.Produce(ctx, &kgo.Record{Topic: topic, Key: fmt.Append(nil, k), Value: value}, func(_ *kgo.Record, err error) { failed <- err })
		}
		require.NoError(t, client.Flush(ctx))
		for range n {
			require.NoError(t, <-failed)
		}
	}
}

// mirrored copies a topic of one partition from start on with batches, and checks records and spans.
func mirrored(t *testing.T, topic string, start int64, configs map[string]string) (target *kafkatest.Cluster, b *bench) {
	t.Helper()
	source, target, b := shared(t, batches, nil)
	kafkatest.CreateTopic(t, target, remote(topic), 1, configs)
	b.assign(topic, 1, start)
	b.until(source, topic)
	want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
	want[0] = want[0][start:]
	got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)
	require.Len(t, got[0], len(want[0]))
	for i, r := range want[0] {
		require.Equal(t, r.Value, got[0][i].Value)
		require.Equal(t, r.Key, got[0][i].Key)
	}
	b.requireSpans(want, got, topic)
	return target, b
}

func TestBatchesArriveByteForByteUnderAnotherHeader(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := kafkatest.Shared(t, kafkatest.V39)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 1, nil)
			fillBatches(t, source, topic, 5, 300, 1000, kgo.ProducerBatchCompression(codec))
			target, b := mirrored(t, topic, 0, nil)
			want, got := rawBatches(t, source, topic), rawBatches(t, target, remote(topic))
			require.Equal(t, len(want), len(got)) //nolint:testifylint // the bytes would be shown
			for i := range want {
				require.Equal(t, want[i].Payload(), got[i].Payload())
				require.Equal(t, want[i].Attributes(), got[i].Attributes())
				require.True(t, got[i].Intact())
			}
			require.Equal(t, len(want), b.counted(batch.Pass, "none"))
		})
	}
}

func TestSmallBatchesThatWaitTogetherBecomeOne(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	fillBatches(t, source, topic, 50, 3, 200)
	target, b := mirrored(t, topic, 0, nil)
	require.Len(t, rawBatches(t, target, remote(topic)), 1)
	require.Equal(t, len(rawBatches(t, source, topic)), b.counted(batch.Fallback, "merged"))
	// Alone, a small batch goes as it is.
	fillBatches(t, source, topic, 1, 3, 200)
	b.until(source, topic)
	require.Positive(t, b.counted(batch.Pass, "none"))
}

func TestBatchThatStartsBeforeThePositionIsCut(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	fillBatches(t, source, topic, 3, 100, 1000)
	_, b := mirrored(t, topic, 130, nil)
	require.Equal(t, 1, b.counted(batch.Fallback, "starts_inside"))
	require.Equal(t, 1, b.counted(batch.Pass, "none"))
}

func TestBatchOverTheTargetsLimitIsSplit(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	fillBatches(t, source, topic, 4, 500, 1000, kgo.ProducerBatchCompression(kgo.NoCompression()))
	target, b := mirrored(t, topic, 0, map[string]string{"max.message.bytes": "100000"})
	for _, raw := range rawBatches(t, target, remote(topic)) {
		require.LessOrEqual(t, len(raw), 100_000)
	}
	require.Positive(t, b.counted(batch.Fallback, "too_large"))
	require.Zero(t, b.seen.stopCount(TP{topic, 0}))
}

func TestTheTargetsSettingsAreKnownBeforeTheyAreNeeded(t *testing.T) {
	t.Parallel()
	source, target, b := shared(t, batches, nil)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	kafkatest.CreateTopic(t, target, remote(topic), 1, map[string]string{"max.message.bytes": "100000", "compression.type": "zstd"})
	b.assign(topic, 1, 0)
	wait.For(t, 20*time.Second, "the settings", func() error {
		b.path.mu.Lock()
		defer b.path.mu.Unlock()
		if s := b.path.settings[remote(topic)]; s.read.IsZero() {
			return errors.New("not read")
		}
		return nil
	})
	fillBatches(t, source, topic, 2, 500, 1000, kgo.ProducerBatchCompression(kgo.NoCompression()))
	fillBatches(t, source, topic, 2, 50, 1000)
	b.until(source, topic)
	require.Positive(t, b.counted(batch.Fallback, "too_large"))
	require.Positive(t, b.counted(batch.Pass, "recompressed"), "lz4 onto a topic of zstd")
	require.Zero(t, b.metric("mirrorflow_request_errors_total", map[string]string{"operation": "produce", "code": "MESSAGE_TOO_LARGE"}), "nothing had to be refused first")
	kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
}

func TestBatchesWithHolesAreBuiltAnew(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, kafkatest.CompactedConfigs())
	// The second batch replaces half of the first's records.
	fillBatches(t, source, topic, 1, 100, 200)
	fillBatches(t, source, topic, 1, 50, 200)
	kafkatest.FillCompacted(t, source, topic, kafkatest.FillOptions{Records: 1}, 20)
	_, target, b := shared(t, batches, nil)
	kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
	b.assign(topic, 1, 0)
	b.until(source, topic)
	require.Positive(t, b.counted(batch.Fallback, "holes"))
	for _, raw := range rawBatches(t, target, remote(topic)) {
		require.EqualValues(t, raw.LastDelta()+1, raw.Count())
	}
}

func TestAppendTimesAreKeptOnTopicsWithoutAndLeftToThoseWith(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	for name, configs := range map[string]map[string]string{"without": nil, "with": {"message.timestamp.type": "LogAppendTime"}} {
		topic := kafkatest.UniqueName(t) + name
		kafkatest.CreateTopic(t, source, topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
		fillBatches(t, source, topic, 1, 100, 500)
		_, b := mirrored(t, topic, 0, configs)
		if n := b.counted(batch.Fallback, "append_time"); name == "with" {
			require.LessOrEqual(t, n, 1, "unless the target's setting was known before")
		} else {
			require.Equal(t, 1, n)
		}
		// Once the target's answers show that it has times of its own, batches pass.
		fillBatches(t, source, topic, 3, 100, 500)
		b.until(source, topic)
		passed := b.counted(batch.Pass, "none")
		if name == "with" {
			require.GreaterOrEqual(t, passed, 2, "all but one that was asked for before the answer")
		} else {
			require.Zero(t, passed)
		}
	}
}

func TestRecordThatTheTargetRefusesIsFoundInItsBatch(t *testing.T) {
	t.Parallel()
	source, target, b := shared(t, batches, nil)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	kafkatest.CreateTopic(t, target, remote(topic), 1, map[string]string{"cleanup.policy": "compact"})
	var rs []*kgo.Record
	for i := range 700 {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 300)}
		if i == 433 {
			r.Key = nil
		}
		rs = append(rs, r)
	}
	kafkatest.Produce(t, source, topic, rs...)
	b.assign(topic, 1, 0)
	stop := b.untilStopped(TP{topic, 0}, StopRefused)
	require.EqualValues(t, 433, stop.Offset)
	require.EqualValues(t, 433, b.seen.position(TP{topic, 0}))
	require.EqualValues(t, 433, logEnds(t, target, remote(topic))[0], "the good records before it are there once")
	require.Positive(t, b.counted(batch.Fallback, "refused"))
}

func TestMemoryOfAStoppedTargetIsBounded(t *testing.T) {
	t.Parallel()
	source := kafkatest.Shared(t, kafkatest.V39)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 4, nil)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{
		Records: 60_000, Partitions: 4, ValueBytes: 1000, Plain: true,
		Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())},
	})
	const budget, answer = 8 << 20, 2 << 20
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		return answerProduce(t, req, kerr.NotEnoughReplicas), nil, true
	})
	b := run(t, batches, plain("source", source.Bootstrap()), plain("target", target.ListenAddrs()...), func(c *Config) {
		c.MaxBytesInFlight, c.FetchBytes = budget, answer
	})
	b.assign(topic, 4, 0)
	p := b.path
	for i := range int32(4) {
		b.untilStopped(TP{topic, i}, StopTargetUnavailable)
		require.LessOrEqual(t, p.pool.InUse(), int64(budget+2*answer))
	}
	// What is left are the batches under way, out of the buffers that they came in.
	wait.For(t, 5*time.Second, "buffers given back", func() error {
		if n, in := p.pool.InUse(), p.InFlight(); n > 2*in+1<<20 {
			return fmt.Errorf("%d bytes in use, %d in flight", n, in)
		}
		return nil
	})
}

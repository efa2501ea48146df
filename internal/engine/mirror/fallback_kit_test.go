package mirror

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// copying is a path that copies one topic of one partition, with the counters of its batches.
type copying struct {
	*bench
	t              *testing.T
	source, target *kafkatest.Cluster
	topic          string
	registry       *prometheus.Registry
}

// eachWay runs a test from the older broker to the newer one, and back: the one speaks of topics by name, the other by id.
func eachWay(t *testing.T, test func(t *testing.T, source, target *kafkatest.Cluster)) {
	t.Helper()
	for _, pair := range [][2]kafkaproc.Version{{kafkatest.V39, kafkatest.V43}, {kafkatest.V43, kafkatest.V39}} {
		t.Run(string(pair[0]+" to "+pair[1]), func(t *testing.T) {
			t.Parallel()
			test(t, kafkatest.Shared(t, pair[0]), kafkatest.Shared(t, pair[1]))
		})
	}
}

// startCopying makes the copy's topic with configs and begins to copy from the first offset on.
func startCopying(t *testing.T, source, target *kafkatest.Cluster, topic string, configs map[string]string, change func(*Config)) *copying {
	t.Helper()
	kafkatest.CreateTopic(t, target, remote(topic), 1, configs)
	registry := prometheus.NewRegistry()
	b := run(t, batches, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), func(c *Config) {
		c.Registry = registry
		if change != nil {
			change(c)
		}
	})
	b.assign(topic, 1, 0)
	return &copying{bench: b, t: t, source: source, target: target, topic: topic, registry: registry}
}

// finish waits for the end of the source, and checks that records and spans are right.
func (c *copying) finish(isolation kafkatest.Isolation) {
	c.t.Helper()
	c.until(c.source, c.topic)
	want := kafkatest.ReadAll(c.t, c.source, c.topic, isolation)
	got := kafkatest.ReadAll(c.t, c.target, remote(c.topic), kafkatest.ReadUncommitted)
	kafkatest.RequireEqual(c.t, want, got)
	c.requireSpans(want, got, c.topic)
}

// verdicts are the counts of mirrorflow_batches_total, by "verdict reason".
func (c *copying) verdicts() map[string]int {
	c.t.Helper()
	families, err := c.registry.Gather()
	require.NoError(c.t, err)
	all := map[string]int{}
	for _, f := range families {
		if f.GetName() != "mirrorflow_batches_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var verdict, reason string
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "verdict":
					verdict = l.GetValue()
				case "reason":
					reason = l.GetValue()
				}
			}
			all[verdict+" "+reason] = int(m.GetCounter().GetValue())
		}
	}
	return all
}

// requireOnly checks that the counters are of the given kinds, each more than zero, and no others.
func (c *copying) requireOnly(kinds ...string) map[string]int {
	c.t.Helper()
	got := c.verdicts()
	for _, k := range kinds {
		require.Positive(c.t, got[k], "%q in %v", k, got)
	}
	for k := range got {
		require.True(c.t, slices.Contains(kinds, k), "%q in %v", k, got)
	}
	return got
}

// logged are the batches of the source's and of the target's log.
func (c *copying) logged() (source, target []batch.Batch) {
	c.t.Helper()
	return rawBatches(c.t, c.source, c.topic), rawBatches(c.t, c.target, remote(c.topic))
}

// requireOneProducer checks what stands in the target's headers: one producer, whose sequence numbers count the records
// from 0 on, and of the attributes the codec only.
func requireOneProducer(t *testing.T, target []batch.Batch) batch.Producer {
	t.Helper()
	require.NotEmpty(t, target)
	first := batch.Producer{ID: target[0].ProducerID(), Epoch: target[0].ProducerEpoch()}
	next := int32(0)
	for _, b := range target {
		require.Equal(t, first, batch.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch()}, "offset %d", b.BaseOffset())
		require.Equal(t, next, b.BaseSequence(), "offset %d", b.BaseOffset())
		require.EqualValues(t, b.Codec(), b.Attributes(), "offset %d", b.BaseOffset())
		require.True(t, b.Intact())
		next = batch.NextSequence(next, b.Count())
	}
	return first
}

// sealed makes a batch of records with the given timestamps and values of size bytes; header may change it before it gets
// its checksum.
func sealed(t *testing.T, of int8, size int, times []int64, header func(b []byte)) []byte {
	t.Helper()
	c, err := codec.New()
	require.NoError(t, err)
	w := batch.NewBuilder(c)
	w.Reset(batch.Options{RawBytes: 8 << 20})
	for i, ts := range times {
		value := make([]byte, size)
		for k := range value {
			value[k] = byte(k * (i + 5) * 13 >> 4)
		}
		require.NoError(t, w.AddRecord(int64(i), ts, batch.AppendBody(nil, fmt.Append(nil, i), value), of))
	}
	_, built, err := w.Build(nil)
	require.NoError(t, err)
	require.Equal(t, 1, len(built)) //nolint:testifylint // the bytes would be shown
	b := built[0].Batch
	require.Equal(t, of, b.Codec())
	if header != nil {
		header(b)
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

// producedAs is a change of a header: another producer's numbers.
func producedAs(p batch.Producer) func(b []byte) {
	return func(b []byte) {
		binary.BigEndian.PutUint64(b[43:], uint64(p.ID))
		binary.BigEndian.PutUint16(b[51:], uint16(p.Epoch))
		binary.BigEndian.PutUint32(b[53:], uint32(p.Sequence))
	}
}

// produceRaw writes batches to partition 0, one request each.
func produceRaw(t *testing.T, c *kafkatest.Cluster, topic string, all ...[]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := kafkatest.Client(t, c)
	md := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	md.Topics = append(md.Topics, mt)
	meta, err := md.RequestWith(ctx, client)
	require.NoError(t, err)
	for _, raw := range all {
		// A broker that has just become the leader may not know it yet, and then has written nothing.
		wait.For(t, 20*time.Second, "the broker to take a batch of "+topic, func() error {
			req := kmsg.NewPtrProduceRequest()
			req.TimeoutMillis = 10_000
			rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
			rt.Topic, rt.TopicID, rp.Records = topic, meta.Topics[0].TopicID, raw
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			answer, err := client.Broker(int(meta.Topics[0].Partitions[0].Leader)).Request(ctx, req)
			require.NoError(t, err)
			resp, ok := answer.(*kmsg.ProduceResponse)
			require.True(t, ok)
			p := resp.Topics[0].Partitions[0]
			err = kerr.ErrorForCode(p.ErrorCode)
			if err != nil && !kerr.IsRetriable(err) {
				require.NoError(t, err, "message %v", p.ErrorMessage)
			}
			return err
		})
	}
}

// times are n timestamps from now on, a millisecond apart.
func times(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = time.Now().UnixMilli() - int64(n) + int64(i)
	}
	return all
}

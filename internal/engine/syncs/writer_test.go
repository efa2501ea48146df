package syncs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const topic = "mm2-offset-syncs.a.b.internal"

func start(t *testing.T, change func(*Config)) (*kfake.Cluster, *Writer) {
	t.Helper()
	cluster, w := build(t, change)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return cluster, w
}

func build(t *testing.T, change func(*Config)) (*kfake.Cluster, *Writer) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	cfg := Config{Client: client, Topic: topic, LagMax: 100, ReplicationFactor: 1}
	if change != nil {
		change(&cfg)
	}
	w, err := New(cfg)
	require.NoError(t, err)
	w.pause = 50 * time.Millisecond
	return cluster, w
}

// read returns the first n syncs of the topic.
func read(t *testing.T, cluster *kfake.Cluster, n int) []mm2.OffsetSync {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all []mm2.OffsetSync
	for len(all) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "only %d syncs", len(all))
		fetches.EachRecord(func(r *kgo.Record) {
			require.Zero(t, r.Partition)
			s, err := mm2.DecodeOffsetSync(r.Key, r.Value)
			require.NoError(t, err)
			all = append(all, s)
		})
	}
	return all
}

func flush(t *testing.T, w *Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.Flush(ctx))
}

func span(source, target, count int64) []mirror.Span {
	return []mirror.Span{{Source: source, Target: target, Count: count}}
}

func TestSyncsAreWrittenByMM2sRuleAndTheLastOneAtFlush(t *testing.T) {
	t.Parallel()
	cluster, w := start(t, nil)
	w.Observe("t", 3, span(10, 0, 1)) // first record
	flush(t, w)
	w.Observe("t", 3, span(11, 1, 50)) // nothing due but at flush
	flush(t, w)
	w.Observe("t", 3, span(70, 51, 1)) // a gap
	flush(t, w)
	require.Equal(t, []mm2.OffsetSync{
		{Topic: "t", Partition: 3, Upstream: 10, Downstream: 0},
		{Topic: "t", Partition: 3, Upstream: 60, Downstream: 50},
		{Topic: "t", Partition: 3, Upstream: 70, Downstream: 51},
	}, read(t, cluster, 3))
}

func TestTopicIsCompactedWithOnePartition(t *testing.T) {
	t.Parallel()
	cluster, w := start(t, nil)
	w.Observe("t", 0, span(0, 0, 1))
	flush(t, w)
	info := cluster.TopicInfo(topic)
	require.NotNil(t, info)
	require.NotNil(t, cluster.PartitionInfo(topic, 0))
	require.Nil(t, cluster.PartitionInfo(topic, 1))
	require.Equal(t, "compact", *info.Configs["cleanup.policy"])
}

// refuse answers the next n Produce requests with a code.
func refuse(cluster *kfake.Cluster, n int32, code *kerr.Error) (refused *atomic.Int32) {
	refused = new(atomic.Int32)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if refused.Load() == n {
			return nil, nil, false
		}
		refused.Add(1)
		pr, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, errors.New("no produce request"), true
		}
		resp := pr.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range pr.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, code.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	return refused
}

func TestTroubleThatLastsIsReportedOnceAndTheSyncWrittenInTheEnd(t *testing.T) {
	t.Parallel()
	var errs, recoveries, lines atomic.Int32
	cluster, w := start(t, func(c *Config) {
		c.OnError = func(err error) {
			if err != nil {
				errs.Add(1)
			} else {
				recoveries.Add(1)
			}
		}
		c.Logger = slog.New(counter{slog.DiscardHandler, &lines})
	})
	refused := refuse(cluster, 5, kerr.TopicAuthorizationFailed)
	w.Observe("t", 0, span(5, 2, 1))
	flush(t, w)
	require.Equal(t, []mm2.OffsetSync{{Topic: "t", Partition: 0, Upstream: 5, Downstream: 2}}, read(t, cluster, 1))
	require.EqualValues(t, 5, refused.Load())
	require.EqualValues(t, 1, errs.Load())
	require.EqualValues(t, 1, recoveries.Load())
	require.EqualValues(t, 2, lines.Load())
}

// counter counts the writer's own lines.
type counter struct {
	slog.Handler
	n *atomic.Int32
}

func (counter) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "offset syncs") {
		c.n.Add(1)
	}
	return nil
}

func TestATopicThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	cluster, w := start(t, nil)
	w.Observe("t", 0, span(0, 0, 1))
	flush(t, w)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	w.Observe("t", 0, span(500, 400, 1))
	flush(t, w)
	require.Equal(t, []mm2.OffsetSync{{Topic: "t", Upstream: 500, Downstream: 400}}, read(t, cluster, 1))
	require.Equal(t, "compact", *cluster.TopicInfo(topic).Configs["cleanup.policy"])
}

func TestAPanicIsTheErrorThatRunReturns(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]int16{"of the loop": int16(kmsg.CreateTopics), "of what takes answers": int16(kmsg.Produce)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, w := build(t, func(c *Config) { c.OnError = func(error) { panic("boom") } })
			if refused == int16(kmsg.Produce) {
				refuse(cluster, 1, kerr.TopicAuthorizationFailed)
			} else {
				cluster.ControlKey(refused, func(req kmsg.Request) (kmsg.Response, error, bool) {
					resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
					st := kmsg.NewCreateTopicsResponseTopic()
					st.Topic, st.ErrorCode = topic, kerr.PolicyViolation.Code
					resp.Topics = append(resp.Topics, st)
					return resp, nil, true
				})
			}
			w.Observe("t", 0, span(0, 0, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var fault *report.PanicError
			require.ErrorAs(t, w.Run(ctx), &fault)
			require.Equal(t, "boom", fault.Value)
		})
	}
}

func TestForgottenPartitionStartsWithASync(t *testing.T) {
	t.Parallel()
	cluster, w := start(t, nil)
	w.Observe("t", 0, span(0, 0, 1))
	flush(t, w)
	w.Forget("t", 0)
	w.Observe("t", 0, span(1, 1, 1))
	require.Equal(t, []mm2.OffsetSync{
		{Topic: "t", Upstream: 0, Downstream: 0}, {Topic: "t", Upstream: 1, Downstream: 1},
	}, read(t, cluster, 2))
}

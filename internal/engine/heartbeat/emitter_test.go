package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

type suite struct{ m *testing.M }

func (s suite) Run() int { return kafkatest.Run(s.m) }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(suite{m})
}

const (
	sourceAlias = "k3x9f0a2b.kafka-1f6c02aa"
	targetAlias = "t7.kafka-00"
)

func config(t *testing.T, client *kgo.Client) Config {
	t.Helper()
	policy, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	return Config{
		Client: client, SourceAlias: sourceAlias, TargetAlias: targetAlias, Policy: policy, Interval: 100 * time.Millisecond,
		ReplicationFactor: -1, Board: report.NewBoard(time.Now), Logger: slog.New(slog.DiscardHandler), Side: "target",
	}
}

func run(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	e, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	return stop
}

func TestHeartbeatsComeAtOnceAndAreReadByMM2sFormatter(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Shared(t, kafkatest.V43)
	client := kafkatest.Client(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	cfg := config(t, client)
	cfg.Interval = time.Hour
	began := time.Now()
	stop := run(t, cfg)
	var beats []kafkatest.Record
	wait.For(t, 10*time.Second, "the first heartbeat", func() error {
		there, err := kadm.NewClient(client).ListTopics(t.Context(), "heartbeats")
		if err != nil || !there.Has("heartbeats") {
			return errors.New("no topic")
		}
		if beats = kafkatest.ReadAll(t, cluster, "heartbeats", kafkatest.ReadCommitted)[0]; len(beats) == 0 {
			return errors.New("no record")
		}
		return nil
	})
	stop()
	beat, err := mm2.DecodeHeartbeat(beats[0].Key, beats[0].Value)
	require.NoError(t, err)
	require.Equal(t, sourceAlias, beat.SourceAlias)
	require.Equal(t, targetAlias, beat.TargetAlias)
	require.GreaterOrEqual(t, beat.Timestamp, began.UnixMilli())
	require.Empty(t, cfg.Board.List())

	admin := kadm.NewClient(client)
	configs, err := admin.DescribeTopicConfigs(t.Context(), "heartbeats")
	require.NoError(t, err)
	for _, c := range configs[0].Configs {
		if c.Key == "cleanup.policy" {
			require.Equal(t, "compact", c.MaybeValue())
		}
	}
	require.Equal(t, 1, kafkatest.Partitions(t, cluster, "heartbeats"))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, err := kafkaproc.JavaCommand(ctx, kafkatest.V43, nil, "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", cluster.AdminBootstraps()[0], "--topic", "heartbeats", "--from-beginning",
		"--max-messages", "1", "--timeout-ms", "30000", "--formatter", "org.apache.kafka.connect.mirror.formatters.HeartbeatFormatter")
	require.NoError(t, err)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("console consumer: %s", exit.Stderr)
	}
	require.NoError(t, err)
	require.Contains(t, string(out), fmt.Sprintf("Heartbeat{sourceClusterAlias=%s, targetClusterAlias=%s, timestamp=%d}", sourceAlias, targetAlias, beat.Timestamp))
}

func fake(t *testing.T) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(100*time.Millisecond), kgo.MetadataMinAge(20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return c, client
}

func end(t *testing.T, client *kgo.Client) int64 {
	t.Helper()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "heartbeats")
	require.NoError(t, err)
	o, ok := ends.Lookup("heartbeats", 0)
	if !ok || o.Err != nil {
		return 0
	}
	return o.Offset
}

func TestHeartbeatsGoOnEachInterval(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	stop := run(t, config(t, client))
	defer stop()
	wait.For(t, 10*time.Second, "five heartbeats", func() error {
		if n := end(t, client); n < 5 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}

func TestARefusalIsAConditionUntilItIsOver(t *testing.T) {
	t.Parallel()
	c, client := fake(t)
	var refuse atomic.Bool
	refuse.Store(true)
	c.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !refuse.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = "heartbeats", kerr.InvalidReplicationFactor.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	cfg := config(t, client)
	stop := run(t, cfg)
	wait.For(t, 10*time.Second, "the condition", func() error {
		if !cfg.Board.Has(report.HeartbeatFailed, report.Flow) {
			return errors.New("none")
		}
		return nil
	})
	condition := cfg.Board.List()[0]
	require.Equal(t, report.Warning, condition.Severity)
	require.Contains(t, condition.Remedy, "replicationFactor")
	require.Equal(t, "INVALID_REPLICATION_FACTOR", condition.Evidence["error"])
	refuse.Store(false)
	wait.For(t, 15*time.Second, "the condition to end", func() error {
		if len(cfg.Board.List()) > 0 || end(t, client) == 0 {
			return errors.New("still there")
		}
		return nil
	})
	stop()
}

func TestATopicThatExistsOrMayNotBeMadeIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.TopicAlreadyExists, kerr.UnsupportedVersion, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			c, client := fake(t)
			_, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "heartbeats")
			require.NoError(t, err)
			c.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				rt := kmsg.NewCreateTopicsResponseTopic()
				rt.Topic, rt.ErrorCode = "heartbeats", code.Code
				resp.Topics = append(resp.Topics, rt)
				return resp, nil, true
			})
			cfg := config(t, client)
			stop := run(t, cfg)
			defer stop()
			wait.For(t, 10*time.Second, "a heartbeat", func() error {
				if end(t, client) == 0 {
					return errors.New("none")
				}
				return nil
			})
			require.Empty(t, cfg.Board.List())
		})
	}
}

func TestBackwardHeartbeatsHaveTheirOwnCondition(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	cfg := config(t, client)
	cfg.Side = "source"
	e, err := New(cfg)
	require.NoError(t, err)
	e.failed(kerr.TopicAuthorizationFailed, 1)
	require.Equal(t, report.Subject{Topic: "heartbeats", Partition: -1}, cfg.Board.List()[0].Subject)
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	for want, spoil := range map[string]func(*Config){
		"Board":              func(c *Config) { c.Board = nil },
		"SourceAlias":        func(c *Config) { c.SourceAlias = "" },
		"Interval":           func(c *Config) { c.Interval = 0 },
		"manual partitioner": func(c *Config) { c.Client = kafkatestPlain(t) },
	} {
		cfg := config(t, client)
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}

func kafkatestPlain(t *testing.T) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

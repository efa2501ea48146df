package topics_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

func TestMain(m *testing.M) {
	// The pattern engine's clock ends by itself.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// book is a ledger in memory.
type book map[string]map[string]string

func (b book) Owned(remote string) map[string]string { return b[remote] }

func (b book) SetOwned(_ context.Context, remote string, owned map[string]string) error {
	b[remote] = owned
	return nil
}

type bench struct {
	t              *testing.T
	source, target *kfake.Cluster
	srcAdm, tgtAdm *kadm.Client
	srcCl, tgtCl   *kgo.Client
	board          *report.Board
	book           book
	cfg            topics.Config
}

func setup(t *testing.T, include ...string) *bench {
	t.Helper()
	b := &bench{t: t, board: report.NewBoard(time.Now), book: book{}}
	cluster := func() (*kfake.Cluster, *kgo.Client) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return c, cl
	}
	b.source, b.srcCl = cluster()
	b.target, b.tgtCl = cluster()
	b.srcAdm, b.tgtAdm = kadm.NewClient(b.srcCl), kadm.NewClient(b.tgtCl)
	in, err := topics.Compile("Topics", include)
	require.NoError(t, err)
	exclude, err := topics.Compile("ConfigPropertiesExclude", []string{`min\.insync\.replicas`})
	require.NoError(t, err)
	policy, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	b.cfg = topics.Config{
		Source: b.srcCl, Target: b.tgtCl,
		Selector: mm2.TopicSelector{
			Filter: mm2.NewTopicFilter(in, nil), Policy: policy, SourceAlias: "p.a", TargetAlias: "p.b", Heartbeats: mm2.HeartbeatsNever,
		},
		Exclude: exclude, SyncConfigs: true, ReplicationFactor: 1, Ledger: b.book, Board: b.board, Logger: slog.New(slog.DiscardHandler),
	}
	return b
}

func (b *bench) create(adm *kadm.Client, name string, partitions int32, configs map[string]string) {
	b.t.Helper()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	r, err := adm.CreateTopic(b.t.Context(), partitions, 1, values, name)
	require.NoError(b.t, err)
	require.NoError(b.t, r.Err)
}

// round does what a refresh does.
func (b *bench) round(r *topics.Room) (topics.Discovery, topics.Target) {
	b.t.Helper()
	d, err := r.Discover(b.t.Context())
	require.NoError(b.t, err)
	var names []string
	for _, s := range d.Topics {
		names = append(names, s.Remote)
	}
	have, err := r.DescribeTarget(b.t.Context(), names)
	require.NoError(b.t, err)
	have, err = r.Ensure(b.t.Context(), d.Topics, have)
	require.NoError(b.t, err)
	require.NoError(b.t, r.SyncConfigs(b.t.Context(), d.Topics))
	return d, have
}

func (b *bench) override(topic, key string) string {
	b.t.Helper()
	rcs, err := b.tgtAdm.DescribeTopicConfigs(b.t.Context(), topic)
	require.NoError(b.t, err)
	for _, c := range rcs[0].Configs {
		if c.Key == key && c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			return c.MaybeValue()
		}
	}
	return ""
}

func (b *bench) conditions() map[string]report.Condition {
	out := map[string]report.Condition{}
	for _, c := range b.board.List() {
		out[c.Code+"/"+c.Subject.Topic] = c
	}
	return out
}

func TestSelectionListsWhatIsExcludedAlthoughItWasAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, "a.*", `p\.b\..*`, `__audit`)
	long := "a" + strings.Repeat("x", 247)
	for _, name := range []string{"a1", "b1", "p.b.t", "__audit", "__other", long} {
		b.create(b.srcAdm, name, 1, nil)
	}
	d, have := b.round(topics.New(b.cfg))
	require.Len(t, d.Topics, 1)
	require.Equal(t, "a1", d.Topics[0].Topic.Name)
	require.Equal(t, "p.a.a1", d.Topics[0].Remote)
	require.Equal(t, 1, d.Matched)
	reasons := map[string]string{}
	for _, x := range d.Excluded {
		reasons[x.Name] = x.Reason
	}
	require.Len(t, reasons, 3, "neither what was not asked for nor internal topics beside it: %v", reasons)
	require.Equal(t, "cycle", reasons["p.b.t"])
	require.Equal(t, "internal name", reasons["__audit"])
	require.Contains(t, reasons[long], "at most 249")
	require.Contains(t, d.InvalidNames, long)
	require.EqualValues(t, 1, have.Topics["p.a.a1"].Partitions)
	require.True(t, have.Topics["p.a.a1"].Leaders)
}

func TestB49_ConfigsAreInTheCreateRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, ".*")
	b.create(b.srcAdm, "t", 3, map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "1"})
	var seen *kmsg.CreateTopicsRequest
	b.target.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.target.KeepControl()
		seen = req.(*kmsg.CreateTopicsRequest)
		return nil, nil, false
	})
	b.round(topics.New(b.cfg))
	require.NotNil(t, seen)
	require.EqualValues(t, 3, seen.Topics[0].NumPartitions)
	configs := map[string]string{}
	for _, c := range seen.Topics[0].Configs {
		configs[c.Name] = *c.Value
	}
	require.Equal(t, map[string]string{"cleanup.policy": "compact"}, configs, "what is excluded is not there at creation either")
	require.Equal(t, map[string]string{"cleanup.policy": "compact"}, b.book["p.a.t"])
}

func TestB48_AValueThatTheTargetRefusesIsFoundAndLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, ".*")
	b.create(b.srcAdm, "t", 1, map[string]string{"compression.type": "zstd", "retention.ms": "1000000"})
	refuse := func(has bool, resp func() kmsg.Response) (kmsg.Response, error, bool) {
		b.target.KeepControl()
		if !has {
			return nil, nil, false
		}
		return resp(), nil, true
	}
	b.target.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req, has := r.(*kmsg.CreateTopicsRequest), false
		for _, c := range req.Topics[0].Configs {
			has = has || c.Name == "compression.type"
		}
		return refuse(has, func() kmsg.Response {
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			one := kmsg.NewCreateTopicsResponseTopic()
			one.Topic, one.ErrorCode, one.ErrorMessage = req.Topics[0].Topic, kerr.InvalidConfig.Code, kmsg.StringPtr("Invalid value zstd for configuration compression.type")
			resp.Topics = append(resp.Topics, one)
			return resp
		})
	})
	alters := 0
	b.target.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req, has := r.(*kmsg.IncrementalAlterConfigsRequest), false
		alters++
		for _, c := range req.Resources[0].Configs {
			has = has || c.Name == "compression.type"
		}
		return refuse(has, func() kmsg.Response {
			resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
			one := kmsg.NewIncrementalAlterConfigsResponseResource()
			one.ResourceType, one.ResourceName = req.Resources[0].ResourceType, req.Resources[0].ResourceName
			one.ErrorCode, one.ErrorMessage = kerr.InvalidConfig.Code, kmsg.StringPtr("Invalid value zstd for configuration compression.type")
			resp.Resources = append(resp.Resources, one)
			return resp
		})
	})
	r := topics.New(b.cfg)
	_, have := b.round(r)
	require.Contains(t, have.Topics, "p.a.t")
	require.Equal(t, "1000000", b.override("p.a.t", "retention.ms"))
	c, ok := b.conditions()[report.TopicConfigSyncFailed+"/t"]
	require.True(t, ok)
	require.Contains(t, c.Message, "compression.type")
	require.Equal(t, report.Warning, c.Severity)
	require.NotContains(t, b.book["p.a.t"], "compression.type", "what was not set is not ours")
	// The refused value is not sent at each round, the rest follows.
	before := alters
	b.round(r)
	require.Equal(t, before, alters)
	setSource(t, b, "retention.ms", "2000000")
	b.round(r)
	require.Equal(t, "2000000", b.override("p.a.t", "retention.ms"))
	require.Contains(t, b.conditions(), report.TopicConfigSyncFailed+"/t")
}

func setSource(t *testing.T, b *bench, key, value string) {
	t.Helper()
	rs, err := b.srcAdm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, "t")
	require.NoError(t, err)
	require.NoError(t, rs[0].Err)
}

func TestAFailedCreationIsShownForItsTopicAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, ".*")
	b.create(b.srcAdm, "bad", 1, nil)
	b.create(b.srcAdm, "good", 1, nil)
	stop := false
	b.target.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if stop {
			return nil, nil, false
		}
		b.target.KeepControl()
		req := r.(*kmsg.CreateTopicsRequest)
		if len(req.Topics) != 2 {
			return nil, nil, false
		}
		// The bad one is refused, the good one done by the admin client.
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range req.Topics {
			one := kmsg.NewCreateTopicsResponseTopic()
			one.Topic = topic.Topic
			if topic.Topic == "p.a.bad" {
				one.ErrorCode, one.ErrorMessage = kerr.PolicyViolation.Code, kmsg.StringPtr("no topics named bad")
			}
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	r := topics.New(b.cfg)
	d, err := r.Discover(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = r.Ensure(ctx, d.Topics, topics.Target{})
	require.NoError(t, err)
	c, ok := b.conditions()[report.TopicCreateFailed+"/bad"]
	require.True(t, ok)
	require.Contains(t, c.Message, "no topics named bad")
	require.NotEmpty(t, c.Remedy)
	require.Len(t, b.conditions(), 1)
	stop = true
	b.round(r)
	require.Empty(t, b.conditions(), "made at the next round, the condition is gone")
}

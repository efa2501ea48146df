package engine

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func setConfig(t *testing.T, w *world, adm *kadm.Client, topic, key, value string) {
	t.Helper()
	alter := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	if value == "" {
		alter = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key}
	}
	rs, err := adm.AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{alter}, topic)
	require.NoError(t, err)
	for _, r := range rs {
		require.NoError(t, r.Err)
	}
}

func TestB40_AddedPartitionsAreMirroredFromTheirFirstRecord(t *testing.T) {
	t.Parallel()
	w := real(t, "b40")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 2, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.StartPosition = StartLatest
	f := run(t, cfg)
	f.untilState(report.Running)
	rs, err := w.srcAdm.UpdatePartitions(w.ctx(), 6, topic)
	require.NoError(t, err)
	require.NoError(t, rs[topic].Err)
	for p := int32(2); p < 6; p++ {
		w.produce(w.srcCl, topic, p, 0, 100)
	}
	f.untilPosition(topic, 410)
	for p := int32(2); p < 6; p++ {
		require.Equal(t, want(p, 0, 100), w.read(w.tgtAdm, w.tgt, w.remote(topic), p))
	}
	require.Empty(t, w.read(w.tgtAdm, w.tgt, w.remote(topic), 0), "what was there before a flow that starts at latest stays there")
}

func TestB41_ATargetWithMorePartitionsIsLeftAloneAndOneWithFewerGrows(t *testing.T) {
	t.Parallel()
	w := real(t, "b41")
	more, fewer := w.topic("more"), w.topic("fewer")
	for _, topic := range []string{more, fewer} {
		w.create(w.srcAdm, topic, 4, nil)
		w.produce(w.srcCl, topic, 3, 0, 5)
	}
	w.create(w.tgtAdm, w.remote(more), 8, nil)
	w.create(w.tgtAdm, w.remote(fewer), 2, nil)
	f := run(t, settings(w.name, w.src, w.tgt, w.topic(".*")))
	f.untilPosition(more, 5)
	f.untilPosition(fewer, 5)
	ts, err := w.tgtAdm.ListTopics(w.ctx(), w.remote(more), w.remote(fewer))
	require.NoError(t, err)
	require.Len(t, ts[w.remote(more)].Partitions, 8)
	require.Len(t, ts[w.remote(fewer)].Partitions, 4)
	require.Equal(t, want(3, 0, 5), w.read(w.tgtAdm, w.tgt, w.remote(fewer), 3))
	require.Empty(t, f.untilState(report.Running).Conditions)
}

func TestB51_ConfigsFollowTheSourceAndWhatOthersSetOnTheTargetStays(t *testing.T) {
	t.Parallel()
	w := real(t, "b51")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, map[string]string{"retention.ms": "700000000"})
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilState(report.Running)
	remote := w.remote(topic)
	setConfig(t, w, w.tgtAdm, remote, "max.message.bytes", "2097152")
	setConfig(t, w, w.tgtAdm, remote, "min.insync.replicas", "1")
	setConfig(t, w, w.srcAdm, topic, "segment.ms", "360000")
	eventually(t, "segment.ms follows", func() bool {
		v, o := configOf(t, w.tgtAdm, remote, "segment.ms")
		return o && v == "360000"
	})
	f.drain()

	// What we set ourselves is known after a restart too.
	setConfig(t, w, w.srcAdm, topic, "retention.ms", "")
	setConfig(t, w, w.srcAdm, topic, "segment.ms", "")
	f = run(t, cfg)
	eventually(t, "both overrides are removed", func() bool {
		_, a := configOf(t, w.tgtAdm, remote, "retention.ms")
		_, b := configOf(t, w.tgtAdm, remote, "segment.ms")
		return !a && !b
	})
	v, override := configOf(t, w.tgtAdm, remote, "max.message.bytes")
	require.True(t, override, "an override made on the target by somebody else stays")
	require.Equal(t, "2097152", v)
	_, override = configOf(t, w.tgtAdm, remote, "min.insync.replicas")
	require.True(t, override)
	require.Empty(t, f.untilState(report.Running).Conditions)
}

func TestB51_MirrorModeWipesOverridesAsMM2Does(t *testing.T) {
	t.Parallel()
	w := real(t, "b51m")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.MirrorTopicConfigs = true
	f := run(t, cfg)
	f.untilState(report.Running)
	setConfig(t, w, w.tgtAdm, w.remote(topic), "flush.ms", "3600000")
	eventually(t, "the override is gone", func() bool {
		_, o := configOf(t, w.tgtAdm, w.remote(topic), "flush.ms")
		return !o
	})
}

func TestB48_AConfigThatTheTargetDoesNotKnowIsLeftOutAndTheRestApplied(t *testing.T) {
	t.Parallel()
	w := real(t, "b48")
	topic := w.topic("t")
	// 4.x does not know message.downconversion.enable any more.
	w.create(w.srcAdm, topic, 1, map[string]string{"message.downconversion.enable": "false", "retention.ms": "500000000"})
	w.produce(w.srcCl, topic, 0, 0, 3)
	f := run(t, settings(w.name, w.src, w.tgt, topic))
	f.untilPosition(topic, 3)
	v, override := configOf(t, w.tgtAdm, w.remote(topic), "retention.ms")
	require.True(t, override)
	require.Equal(t, "500000000", v)
	c := f.untilCondition(report.TopicConfigSyncFailed)
	require.Contains(t, c.Message, "message.downconversion.enable")
	require.Equal(t, report.Warning, c.Severity)
	require.Equal(t, report.Running, f.sink.status().State)
	setConfig(t, w, w.srcAdm, topic, "message.downconversion.enable", "")
	f.until("the condition goes", func(st report.Status) bool { return condition(st, report.TopicConfigSyncFailed) == nil })
}

func TestB50_AnExcludedConfigIsNotSetAtCreationEither(t *testing.T) {
	t.Parallel()
	w := real(t, "b50")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, map[string]string{"retention.ms": "300000", "segment.ms": "360000"})
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.ConfigPropertiesExclude = []string{`retention\..*`}
	run(t, cfg).untilState(report.Running)
	_, override := configOf(t, w.tgtAdm, w.remote(topic), "retention.ms")
	require.False(t, override)
	_, override = configOf(t, w.tgtAdm, w.remote(topic), "segment.ms")
	require.True(t, override)
}

func TestB45_ATopicThatCannotBeCreatedIsShownWithTheReasonAndTriedAgain(t *testing.T) {
	t.Parallel()
	w := real(t, "b45")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 4)
	cfg := settings(w.name, w.src, w.tgt, topic)
	first := run(t, cfg)
	first.untilPosition(topic, 4) // makes the state topics with the broker's factor
	first.drain()
	other := w.topic("u")
	w.create(w.srcAdm, other, 1, nil)
	w.produce(w.srcCl, other, 0, 0, 4)
	cfg.Topics = []string{other}
	cfg.ReplicationFactor = 3
	f := run(t, cfg)
	c := f.untilCondition(report.TopicCreateFailed)
	require.Contains(t, c.Message, "replication factor 3")
	require.Equal(t, other, c.Subject.Topic)
	f.untilState(report.Failed)
	w.create(w.tgtAdm, w.remote(other), 1, nil)
	f.untilPosition(other, 4)
	require.Equal(t, want(0, 0, 4), w.read(w.tgtAdm, w.tgt, w.remote(other), 0))
	require.Nil(t, condition(f.untilState(report.Running), report.TopicCreateFailed))
}

func TestB45_StateTopicsThatCannotBeCreatedAreShownWithTheReason(t *testing.T) {
	t.Parallel()
	w := real(t, "b45s")
	w.create(w.srcAdm, w.topic("t"), 1, nil)
	cfg := settings(w.name, w.src, w.tgt, w.topic("t"))
	cfg.ReplicationFactor = 3
	f := run(t, cfg)
	c := f.untilCondition(report.StateFailed)
	require.Contains(t, c.Message, ".b45s.src.internal: INVALID_REPLICATION_FACTOR")
	f.untilState(report.Failed)
	require.Nil(t, condition(f.sink.status(), "TARGET_UNREACHABLE"))
}

func TestB30_TwoFlowsWithDottedAliasesInOppositeDirectionsDoNotLoop(t *testing.T) {
	t.Parallel()
	w := real(t, "b30")
	topic := "b30-inventory"
	w.create(w.srcAdm, topic, 1, nil)
	w.create(w.tgtAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 5)
	w.produce(w.tgtCl, topic, 0, 100, 5)
	there := settings("b30x", w.src, w.tgt, `.*b30-.*`)
	there.SourceAlias, there.TargetAlias = "b30.kafka-a", "b30.kafka-b"
	there.KnownAliases = []string{"b30", "b30.kafka-a", "b30.kafka-b"}
	there.EmitHeartbeats = true
	back := settings("b30y", w.tgt, w.src, `.*b30-.*`)
	back.SourceAlias, back.TargetAlias, back.KnownAliases = there.TargetAlias, there.SourceAlias, there.KnownAliases
	back.EmitHeartbeats = true
	f, g := run(t, there), run(t, back)
	f.untilPosition(topic, 5)
	g.untilPosition(topic, 5)
	g.until("heartbeats are mirrored", func(st report.Status) bool {
		for _, tp := range st.Topics {
			if tp.Name == "heartbeats" && tp.RemoteName == "b30.kafka-b.heartbeats" && tp.Partitions[0].Position > 0 {
				return true
			}
		}
		return false
	})
	// Growth and configs are followed although the alias contains the separator.
	rs, err := w.srcAdm.UpdatePartitions(w.ctx(), 3, topic)
	require.NoError(t, err)
	require.NoError(t, rs[topic].Err)
	setConfig(t, w, w.srcAdm, topic, "retention.ms", "600000000")
	remote := "b30.kafka-a." + topic
	eventually(t, "growth and config have followed", func() bool {
		v, _ := configOf(t, w.tgtAdm, remote, "retention.ms")
		ts, err := w.tgtAdm.ListTopics(w.ctx(), remote)
		return err == nil && v == "600000000" && len(ts[remote].Partitions) == 3
	})
	w.produce(w.srcCl, topic, 2, 0, 7)
	f.untilPosition(topic, 12)
	mine := func(adm *kadm.Client) []string {
		ts, err := adm.ListTopics(w.ctx())
		require.NoError(t, err)
		var out []string
		for _, name := range ts.Names() {
			if strings.Contains(name, topic) {
				out = append(out, name)
			}
		}
		sort.Strings(out)
		return out
	}
	require.Equal(t, []string{topic, remote}, mine(w.tgtAdm))
	require.Equal(t, []string{topic, "b30.kafka-b." + topic}, mine(w.srcAdm))
	require.Equal(t, want(0, 0, 5), w.read(w.tgtAdm, w.tgt, remote, 0))
	require.Equal(t, want(0, 100, 5), w.read(w.srcAdm, w.src, "b30.kafka-b."+topic, 0))
	found := false
	for _, x := range f.sink.status().Excluded {
		found = found || x.Name == "b30.kafka-b."+topic && x.Reason == "cycle"
	}
	require.True(t, found, "%v", f.sink.status().Excluded)
}

func TestB31_SourceAndTargetThatAreOneClusterAreRefused(t *testing.T) {
	t.Parallel()
	w := real(t, "b31")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	f := run(t, settings(w.name, w.src, w.src, topic))
	c := f.untilCondition("TARGET_CLUSTER_CHANGED")
	require.Contains(t, c.Message, "one and the same cluster")
	f.untilState(report.Failed)
	ts, err := w.srcAdm.ListTopics(w.ctx())
	require.NoError(t, err)
	require.False(t, ts.Has(w.remote(topic)))
	f.drain()
}

func TestB44_AnotherClusterBehindTheAddressStopsTheFlow(t *testing.T) {
	t.Parallel()
	w := real(t, "b44")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.TargetClusterID = "AnotherClusterAltogether"
	f := run(t, cfg)
	c := f.untilCondition("TARGET_CLUSTER_CHANGED")
	require.Equal(t, "AnotherClusterAltogether", c.Evidence["expected_cluster_id"])
	f.untilState(report.Failed)
}

func TestB35_TopicsThatLookInternalAreShownAsExcluded(t *testing.T) {
	t.Parallel()
	w := real(t, "b35")
	for _, name := range []string{"b35-orders.internal", "__b35-audit", ".b35-hidden", "b35-billing.replica"} {
		w.create(w.srcAdm, name, 1, nil)
	}
	cfg := settings(w.name, w.src, w.tgt, `b35-orders\.internal`, `__b35-audit`, `\.b35-hidden`, `b35-billing\.replica`)
	cfg.TopicExcludeList = []string{`.*\.replica`}
	f := run(t, cfg)
	st := f.untilState(report.Running)
	require.Len(t, st.Topics, 1)
	require.Equal(t, "b35-orders.internal", st.Topics[0].Name)
	reasons := map[string]string{}
	for _, x := range st.Excluded {
		reasons[x.Name] = x.Reason
	}
	require.Equal(t, "internal name", reasons["__b35-audit"])
	require.Equal(t, "internal name", reasons[".b35-hidden"])
	require.Equal(t, `excluded by .*\.replica`, reasons["b35-billing.replica"])
}

func TestNothingMatchedIsSaidWithinSeconds(t *testing.T) {
	t.Parallel()
	w := real(t, "nomatch")
	w.create(w.srcAdm, w.topic("t"), 1, nil)
	f := run(t, settings(w.name, w.src, w.tgt, "nothing-like-this-.*"))
	began := time.Now()
	c := f.untilCondition(report.NoTopicsMatched)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Contains(t, c.Message, "nothing-like-this-.*")
	f.untilState(report.Degraded)
	w.create(w.srcAdm, "nothing-like-this-1", 1, nil)
	f.untilState(report.Running)
}

func TestANameTooLongForTheTargetIsSaidAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	w := real(t, "long")
	long := w.topic(strings.Repeat("x", 240))
	w.create(w.srcAdm, long, 1, nil)
	w.create(w.srcAdm, w.topic("ok"), 1, nil)
	f := run(t, settings(w.name, w.src, w.tgt, w.topic(".*")))
	c := f.untilCondition(report.TopicNameInvalid)
	require.Equal(t, long, c.Subject.Topic)
	require.Contains(t, c.Message, "249")
	st := f.untilState(report.Degraded)
	require.Len(t, st.Topics, 1)
}

// owners is an arbiter in memory.
type owners struct {
	mu sync.Mutex
	m  map[string]string
}

type ownersOf struct {
	o    *owners
	flow string
}

func (o ownersOf) Claim(_ context.Context, cluster string, names []string) (map[string]string, error) {
	o.o.mu.Lock()
	defer o.o.mu.Unlock()
	denied := map[string]string{}
	for _, n := range names {
		if owner, ok := o.o.m[cluster+n]; ok && owner != o.flow {
			denied[n] = owner
			continue
		}
		o.o.m[cluster+n] = o.flow
	}
	return denied, nil
}

func (o ownersOf) Release(_ context.Context, cluster string, names []string) error {
	o.o.mu.Lock()
	defer o.o.mu.Unlock()
	for _, n := range names {
		if o.o.m[cluster+n] == o.flow {
			delete(o.o.m, cluster+n)
		}
	}
	return nil
}

func TestARemoteTopicOfAnotherFlowIsLeftToItAndTakenOverWhereItStopped(t *testing.T) {
	t.Parallel()
	w := real(t, "own")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 5)
	book := &owners{m: map[string]string{}}
	a := settings(w.name, w.src, w.tgt, topic)
	a.Identity.FlowID, a.Owners = "a", ownersOf{book, "a"}
	b := a
	b.Identity.FlowID, b.Owners = "b", ownersOf{book, "b"}
	fa := run(t, a)
	fa.untilPosition(topic, 5)
	fb := run(t, b)
	c := fb.untilCondition(report.TopicOwnedByOther)
	require.Contains(t, c.Message, "flow a")
	require.Empty(t, fb.sink.status().Topics)
	w.produce(w.srcCl, topic, 0, 5, 5)
	fa.untilPosition(topic, 10)
	fa.drain()
	require.NoError(t, a.Owners.Release(w.ctx(), fa.task.targetID, []string{w.remote(topic)}))
	w.produce(w.srcCl, topic, 0, 10, 5)
	fb.untilPosition(topic, 15)
	require.Equal(t, want(0, 0, 15), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	require.Nil(t, condition(fb.untilState(report.Running), report.TopicOwnedByOther))
}

func TestTheTasksOfAFlowShareItsPartitions(t *testing.T) {
	t.Parallel()
	w := real(t, "tasks")
	topic := w.topic("t")
	const parts = 12
	w.create(w.srcAdm, topic, parts, nil)
	for p := range int32(parts) {
		w.produce(w.srcCl, topic, p, 0, 10)
	}
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.StartPosition = StartTimestamp
	cfg.StartTimestamp = time.Now().Add(-time.Hour)
	cfg.Identity.Tasks = 3
	cfg.Registry = prometheus.NewRegistry() // one worker may have them all
	seen := map[int32]int{}
	var flows []*flow
	for n := range 3 {
		c := cfg
		c.Identity.Task = n
		flows = append(flows, run(t, c))
	}
	for n, f := range flows {
		st := f.until(fmt.Sprintf("task %d has copied its share", n), func(st report.Status) bool {
			if st.State != report.Running || len(st.Topics) == 0 {
				return false
			}
			for _, p := range st.Topics[0].Partitions {
				if p.Position != 10 {
					return false
				}
			}
			return true
		})
		for _, p := range st.Topics[0].Partitions {
			seen[p.Partition]++
		}
	}
	require.Len(t, seen, parts)
	for p := range int32(parts) {
		require.Equal(t, 1, seen[p])
		require.Equal(t, want(p, 0, 10), w.read(w.tgtAdm, w.tgt, w.remote(topic), p))
	}
}

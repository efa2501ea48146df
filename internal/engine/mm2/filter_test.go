package mm2_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// prefix is a Matcher with no pattern engine behind it; "" matches all.
type prefix string

func (p prefix) Matches(name string) (bool, error) { return strings.HasPrefix(name, string(p)), nil }
func (p prefix) String() string                    { return string(p) + ".*" }

type stuck struct{}

var errStuck = errors.New("out of time")

func (stuck) Matches(string) (bool, error) { return false, errStuck }

func TestTopicsAreSelectedWithAReason(t *testing.T) {
	t.Parallel()
	base := mm2.TopicSelector{
		Filter:       mm2.NewTopicFilter([]mm2.Matcher{mm2.Literal("inventory"), prefix("ord"), prefix("A."), prefix("B."), prefix("mm2"), prefix("__")}, []mm2.Matcher{prefix("orders-tmp")}),
		Policy:       defaultPolicy(t),
		SourceAlias:  "A",
		TargetAlias:  "B",
		KnownAliases: []string{"X"},
	}
	by := func(r mm2.HeartbeatsRule, f *mm2.TopicFilter) mm2.TopicSelector {
		s := base
		s.Heartbeats = r
		if f != nil {
			s.Filter = f
		}
		return s
	}
	all := mm2.NewTopicFilter([]mm2.Matcher{prefix("")}, nil)
	for _, tc := range []struct {
		name      string
		selector  mm2.TopicSelector
		topic     string
		replicate bool
		says      string
	}{
		{"a literal", base, "inventory", true, "included by inventory"},
		{"a pattern", base, "orders", true, "included by ord.*"},
		{"excluded wins", base, "orders-tmp1", false, "excluded by orders-tmp.*"},
		{"in no list", base, "payments", false, "not matched"},
		{"no list at all", by(0, mm2.NewTopicFilter(nil, nil)), "payments", false, "not matched"},
		{"internal wins over lists", base, "__consumer_offsets", false, "internal name"},
		{"own state", by(0, all), "mirrorflow-state.A.internal", false, "internal name"},
		{"checkpoints", by(0, all), "A.checkpoints.internal", false, "internal name"},
		{"a user's .internal is data in 4.x", by(0, all), "foo.internal", true, "included by .*"},
		{"from the target", base, "B.t", false, "cycle"},
		{"from the target by way of another", by(0, all), "X.B.t", false, "cycle"},
		{"from ourselves", base, "A.t", false, "cycle"},
		{"from another", by(0, all), "X.t", true, "included by .*"},
		{"heartbeats pass the lists", base, "heartbeats", true, "heartbeats"},
		{"heartbeats of another", base, "X.heartbeats", true, "heartbeats"},
		{"heartbeats of the target", base, "B.heartbeats", false, "cycle"},
		{"a user's heartbeats are data", base, "team.heartbeats", false, "not matched"},
		{"heartbeats by the lists", by(mm2.HeartbeatsByFilter, nil), "heartbeats", false, "not matched"},
		{"heartbeats by the lists, named", by(mm2.HeartbeatsByFilter, all), "heartbeats", true, "included by .*"},
		{"heartbeats never", by(mm2.HeartbeatsNever, all), "heartbeats", false, "heartbeats disabled"},
		{"too long with the alias", by(0, all), strings.Repeat("x", 248), false, "remote name invalid"},
	} {
		d, err := tc.selector.Decide(tc.topic)
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.says, d.String(), tc.name)
		require.Equal(t, tc.replicate, d.Replicate, tc.name)
		if tc.replicate {
			require.Equal(t, "A."+tc.topic, d.Remote, tc.name)
		}
	}
}

func TestConnectTopicsStayInternalUnderAnotherSeparator(t *testing.T) {
	t.Parallel()
	p, err := mm2.NewDefaultReplicationPolicy("_", true)
	require.NoError(t, err)
	s := mm2.TopicSelector{Filter: mm2.NewTopicFilter([]mm2.Matcher{prefix("")}, nil), Policy: p, SourceAlias: "A", TargetAlias: "B"}
	for _, topic := range []string{"mm2-configs.A.internal", "mm2-offset-syncs_B_internal", "A_checkpoints_internal"} {
		d, err := s.Decide(topic)
		require.NoError(t, err)
		require.Equal(t, mm2.ReasonInternal, d.Reason, topic)
	}
}

func TestAMatcherThatReachesNoDecisionIsAnErrorAndNoMismatch(t *testing.T) {
	t.Parallel()
	s := mm2.TopicSelector{Policy: defaultPolicy(t), SourceAlias: "A", TargetAlias: "B"}
	s.Filter = mm2.NewTopicFilter([]mm2.Matcher{prefix("")}, []mm2.Matcher{stuck{}})
	d, err := s.Decide("t")
	require.ErrorIs(t, err, errStuck)
	require.False(t, d.Replicate)
	_, err = mm2.NewGroupFilter([]mm2.Matcher{stuck{}}, nil).Match("g")
	require.ErrorIs(t, err, errStuck)
}

func TestGroupsAreFilteredLikeTopics(t *testing.T) {
	t.Parallel()
	f := mm2.NewGroupFilter([]mm2.Matcher{prefix("")}, []mm2.Matcher{prefix("console-consumer-"), prefix("connect-"), prefix("__")})
	for group, want := range map[string]bool{"orders": true, "console-consumer-1": false, "connect-x": false, "__x": false} {
		v, err := f.Match(group)
		require.NoError(t, err)
		require.Equal(t, want, v.Passes, group)
	}
	require.Equal(t, []string{"console-consumer-.*", "connect-.*", "__.*"}, mm2.DefaultGroupExcludes)
}

func entry(name, value string, source mm2.ConfigSource) mm2.ConfigEntry {
	return mm2.ConfigEntry{Name: name, Value: &value, Source: source}
}

func configFilter() *mm2.ConfigPropertyFilter {
	var ms []mm2.Matcher
	for _, n := range mm2.DefaultConfigPropertyExcludes {
		ms = append(ms, mm2.Literal(n))
	}
	return mm2.NewConfigPropertyFilter(ms)
}

func TestConfigsAtCreationAreWhatTheSourceSets(t *testing.T) {
	t.Parallel()
	readOnly := entry("ro", "1", mm2.ConfigSourceDynamicTopic)
	readOnly.ReadOnly = true
	secret := entry("secret", "1", mm2.ConfigSourceDynamicTopic)
	secret.Sensitive = true
	source := []mm2.ConfigEntry{
		entry("retention.ms", "1000", mm2.ConfigSourceDynamicTopic),
		entry("cleanup.policy", "compact", mm2.ConfigSourceDynamicTopic),
		entry("segment.bytes", "5", mm2.ConfigSourceDynamicDefaultBroker),
		entry("flush.ms", "9", mm2.ConfigSourceStaticBroker),
		entry("max.message.bytes", "1048588", mm2.ConfigSourceDefault),
		entry("min.insync.replicas", "2", mm2.ConfigSourceDynamicTopic),
		entry("message.timestamp.after.max.ms", "1", mm2.ConfigSourceDynamicTopic),
		entry("message.format.version", "2.8", mm2.ConfigSourceDynamicTopic),
		readOnly, secret,
	}
	plan, err := configFilter().AtCreation(source, map[string]bool{"retention.ms": true, "cleanup.policy": true, "segment.bytes": true})
	require.NoError(t, err)
	require.Equal(t, []mm2.ConfigOp{
		{Name: "cleanup.policy", Value: "compact"},
		{Name: "retention.ms", Value: "1000"},
		{Name: "segment.bytes", Value: "5"},
	}, plan.Ops)
	require.Equal(t, map[string]string{"cleanup.policy": "compact", "retention.ms": "1000", "segment.bytes": "5"}, plan.Owned)
	require.Equal(t, []mm2.ConfigSkip{
		{Name: "message.format.version", Reason: mm2.ConfigSkipUnknownTarget},
		{Name: "message.timestamp.after.max.ms", Reason: mm2.ConfigSkipExcluded},
		{Name: "min.insync.replicas", Reason: mm2.ConfigSkipExcluded},
	}, plan.Skipped)
}

func TestIncrementalConfigSyncRemovesOnlyWhatItSet(t *testing.T) {
	t.Parallel()
	dflt := func(names ...string) (out []mm2.ConfigEntry) {
		for _, n := range names {
			out = append(out, entry(n, "d", mm2.ConfigSourceDefault))
		}
		return out
	}
	set := func(name, value string) mm2.ConfigEntry { return entry(name, value, mm2.ConfigSourceDynamicTopic) }
	for _, tc := range []struct {
		name           string
		source, target []mm2.ConfigEntry
		owned          map[string]string
		ops            []mm2.ConfigOp
		ownedAfter     map[string]string
	}{
		{"new on the source", []mm2.ConfigEntry{set("a", "1")}, dflt("a"), nil, []mm2.ConfigOp{{Name: "a", Value: "1"}}, map[string]string{"a": "1"}},
		{"in step", []mm2.ConfigEntry{set("a", "1")}, []mm2.ConfigEntry{set("a", "1")}, map[string]string{"a": "1"}, nil, map[string]string{"a": "1"}},
		{"changed on the source", []mm2.ConfigEntry{set("a", "2")}, []mm2.ConfigEntry{set("a", "1")}, map[string]string{"a": "1"}, []mm2.ConfigOp{{Name: "a", Value: "2"}}, map[string]string{"a": "2"}},
		{"changed on the target", []mm2.ConfigEntry{set("a", "1")}, []mm2.ConfigEntry{set("a", "9")}, map[string]string{"a": "1"}, []mm2.ConfigOp{{Name: "a", Value: "1"}}, map[string]string{"a": "1"}},
		{"someone else had it so", []mm2.ConfigEntry{set("a", "1")}, []mm2.ConfigEntry{set("a", "1")}, nil, nil, map[string]string{}},
		{"gone on the source", dflt("a"), []mm2.ConfigEntry{set("a", "1")}, map[string]string{"a": "1"}, []mm2.ConfigOp{{Name: "a", Delete: true}}, map[string]string{}},
		{"gone on the source, since changed on the target", dflt("a"), []mm2.ConfigEntry{set("a", "9")}, map[string]string{"a": "1"}, nil, map[string]string{}},
		{"gone on both", dflt("a"), dflt("a"), map[string]string{"a": "1"}, nil, map[string]string{}},
		{"a local override", dflt("a"), []mm2.ConfigEntry{set("a", "9")}, nil, nil, map[string]string{}},
		{"target not described", dflt("a"), nil, map[string]string{"a": "1", "b": "1"}, []mm2.ConfigOp{{Name: "a", Delete: true}, {Name: "b", Delete: true}}, map[string]string{}},
		{"excluded meanwhile", dflt("min.insync.replicas"), []mm2.ConfigEntry{set("min.insync.replicas", "2")}, map[string]string{"min.insync.replicas": "2"}, nil, map[string]string{"min.insync.replicas": "2"}},
	} {
		plan, err := configFilter().Plan(mm2.ConfigSyncIncremental, tc.source, tc.target, tc.owned)
		require.NoError(t, err)
		require.Equal(t, tc.ops, plan.Ops, tc.name)
		require.Equal(t, tc.ownedAfter, plan.Owned, tc.name)
	}
}

func TestMirrorConfigSyncWipesLocalOverridesAsMM2Does(t *testing.T) {
	t.Parallel()
	source := []mm2.ConfigEntry{
		entry("a", "1", mm2.ConfigSourceDynamicTopic), entry("b", "d", mm2.ConfigSourceDefault),
		entry("min.insync.replicas", "1", mm2.ConfigSourceDefault), entry("flush.ms", "9", mm2.ConfigSourceStaticBroker),
	}
	plan, err := configFilter().Plan(mm2.ConfigSyncMirror, source, nil, nil)
	require.NoError(t, err)
	require.Equal(t, []mm2.ConfigOp{{Name: "a", Value: "1"}, {Name: "b", Delete: true}}, plan.Ops)
	plan, err = configFilter().Plan(mm2.ConfigSyncMirror, source, []mm2.ConfigEntry{
		entry("a", "1", mm2.ConfigSourceDynamicTopic), entry("b", "d", mm2.ConfigSourceDefault), entry("c", "1", mm2.ConfigSourceDynamicTopic),
	}, nil)
	require.NoError(t, err)
	require.Empty(t, plan.Ops, "nothing is sent that is so already")
	plan, err = configFilter().Plan(mm2.ConfigSyncMirror, source, []mm2.ConfigEntry{
		entry("a", "1", mm2.ConfigSourceDynamicTopic), entry("b", "7", mm2.ConfigSourceDynamicTopic),
	}, nil)
	require.NoError(t, err)
	require.Equal(t, []mm2.ConfigOp{{Name: "b", Delete: true}}, plan.Ops)
}

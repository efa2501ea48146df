package mm2_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

func defaultPolicy(t testing.TB) mm2.ReplicationPolicy {
	t.Helper()
	p, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	return p
}

func identityPolicy(t testing.TB, source string) mm2.ReplicationPolicy {
	t.Helper()
	p, err := mm2.NewIdentityReplicationPolicy(source, ".", true)
	require.NoError(t, err)
	return p
}

const null = "<null>"

func orNull(s string, ok bool) string {
	if !ok {
		return null
	}
	return s
}

func TestDefaultPolicyReadsNamesAsJavaDoes(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	for _, tc := range []struct {
		topic, source, upstream, original string
	}{
		{"t", null, null, "t"},
		{"A.t", "A", "t", "t"},
		{"A.B.t", "A", "B.t", "t"},
		{"orders.v1", "orders", "v1", "v1"},
		{"t.", null, null, "t."},
		{"t..", null, null, "t.."},
		{".", null, null, "."},
		{".t", "", "t", "t"},
		{"a..b", "a", ".b", "b"},
		{"A.heartbeats", "A", "heartbeats", "heartbeats"},
		{"A.B.heartbeats", "A", "B.heartbeats", "heartbeats"},
		{"A.my-heartbeats", "A", "my-heartbeats", "my-heartbeats"},
		{"A.checkpoints.internal", "A", "checkpoints.internal", "internal"},
		{"connect.checkpoints.internal", "connect", "checkpoints.internal", "internal"},
		{"__consumer_offsets", null, null, "__consumer_offsets"},
	} {
		require.Equal(t, tc.source, orNull(p.TopicSource(tc.topic)), tc.topic)
		require.Equal(t, tc.upstream, orNull(p.UpstreamTopic(tc.topic)), tc.topic)
		require.Equal(t, tc.original, p.OriginalTopic(tc.topic), tc.topic)
	}
	require.True(t, p.IsHeartbeatsTopic("A.B.heartbeats"))
	require.True(t, p.IsHeartbeatsTopic("heartbeats"))
	for _, no := range []string{"A.my-heartbeats", "heartbeats!", "source1heartbeats"} {
		require.False(t, p.IsHeartbeatsTopic(no), no)
	}
}

func TestInternalTopicsByTheRulesOf4xAnd39(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	for _, tc := range []struct {
		topic           string
		in4x, in39, mm2 bool
	}{
		{".t", true, true, false},
		{"__consumer_offsets", true, true, false},
		{"A.checkpoints.internal", true, true, true},
		{"connect.checkpoints.internal", true, true, true},
		{"mm2-configs.A.internal", true, true, true},
		{"mm2-offset-syncs.B.internal", true, true, true},
		{"mm2.x", false, false, false},
		{"foo.internal", false, true, false},
		{"foo-internal", false, true, false},
		{"_schemas", false, false, false},
		{"checkpoints.internal", false, true, false},
		{"A.heartbeats", false, false, false},
	} {
		require.Equal(t, tc.in4x, p.IsInternalTopic(tc.topic), tc.topic)
		require.Equal(t, tc.in39, p.IsInternalTopic39(tc.topic), tc.topic)
		require.Equal(t, tc.mm2, p.IsMM2InternalTopic(tc.topic), tc.topic)
	}
	require.True(t, p.IsCheckpointsTopic("A.checkpoints.internal"))
	require.False(t, p.IsCheckpointsTopic("checkpoints.internal"))
}

func TestSeparatorsNameTopicsAsJavaDoes(t *testing.T) {
	t.Parallel()
	p, err := mm2.NewDefaultReplicationPolicy("_", true)
	require.NoError(t, err)
	require.Equal(t, "A_t", p.FormatRemoteTopic("A", "t"))
	require.Equal(t, "A", orNull(p.TopicSource("A_t")))
	require.Equal(t, "", orNull(p.TopicSource("_schemas")))
	require.Equal(t, "schemas", orNull(p.UpstreamTopic("_schemas")))
	require.Equal(t, null, orNull(p.TopicSource("A.t")))
	require.Equal(t, "A_checkpoints_internal", p.CheckpointsTopic("A"))
	require.Equal(t, "mm2-offset-syncs_B_internal", p.OffsetSyncsTopic("B"))
	require.Equal(t, "heartbeats", p.HeartbeatsTopic())

	p, err = mm2.NewDefaultReplicationPolicy("_", false)
	require.NoError(t, err)
	require.Equal(t, "A_t", p.FormatRemoteTopic("A", "t"))
	require.Equal(t, "A.checkpoints.internal", p.CheckpointsTopic("A"))
	require.Equal(t, "mm2-offset-syncs.B.internal", p.OffsetSyncsTopic("B"))

	_, err = mm2.NewDefaultReplicationPolicy("", true)
	require.ErrorIs(t, err, mm2.ErrEmptySeparator)
	_, err = mm2.NewIdentityReplicationPolicy("A", "", true)
	require.ErrorIs(t, err, mm2.ErrEmptySeparator)

	long, err := mm2.NewDefaultReplicationPolicy("--", true)
	require.NoError(t, err)
	require.Equal(t, "A--t", long.FormatRemoteTopic("A", "t"))
	require.Equal(t, "t", orNull(long.UpstreamTopic("A--t")))
}

func TestIdentityPolicyReadsNamesAsJavaDoes(t *testing.T) {
	t.Parallel()
	p := identityPolicy(t, "A")
	require.Equal(t, "t", p.FormatRemoteTopic("A", "t"))
	require.Equal(t, "A.my-heartbeats", p.FormatRemoteTopic("A", "my-heartbeats"))
	require.Equal(t, "A.heartbeats", p.FormatRemoteTopic("A", "heartbeats"))
	require.Equal(t, "A", orNull(p.TopicSource("x.y")))
	require.Equal(t, "x.y", orNull(p.UpstreamTopic("x.y")))
	require.Equal(t, "x.y", p.OriginalTopic("x.y"))
	require.Equal(t, null, orNull(p.TopicSource("heartbeats")))
	require.Equal(t, "B", orNull(p.TopicSource("B.heartbeats")))
	require.True(t, p.IsHeartbeatsTopic("B.heartbeats"))
	require.Equal(t, null, orNull(identityPolicy(t, "").TopicSource("x")))

	up, ok := p.IsRemoteOf("A", "x.y")
	require.True(t, ok)
	require.Equal(t, "x.y", up)
	_, ok = p.IsRemoteOf("B", "x.y")
	require.False(t, ok)
	up, ok = p.IsRemoteOf("A", "A.heartbeats")
	require.True(t, ok)
	require.Equal(t, "heartbeats", up)
	_, ok = p.IsRemoteOf("A", "heartbeats")
	require.False(t, ok)
}

func TestAliasesThatHoldTheSeparatorAreMatchedWhole(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	const alias = "proj.kafka-src"
	require.Equal(t, "proj.kafka-src.inventory", p.FormatRemoteTopic(alias, "inventory"))
	up, ok := p.IsRemoteOf(alias, "proj.kafka-src.inventory")
	require.True(t, ok)
	require.Equal(t, "inventory", up)
	for _, no := range []string{"proj.inventory", "proj.kafka-src", "proj.kafka-src.", "proj.kafka-srcx.t", "xproj.kafka-src.t"} {
		_, ok = p.IsRemoteOf(alias, no)
		require.False(t, ok, no)
	}
	require.Equal(t, "orders.v1", p.OriginalTopicOf("orders.v1", []string{alias, "B"}))
	require.Equal(t, "orders.v1", p.OriginalTopicOf("B.proj.kafka-src.orders.v1", []string{alias, "B"}))
	require.Equal(t, "t", p.OriginalTopicOf("a.b.t", []string{"a", "a.b"}), "the longest alias goes first")
	require.True(t, p.IsHeartbeatsTopicOf("B.proj.kafka-src.heartbeats", []string{alias, "B"}))
	require.False(t, p.IsHeartbeatsTopicOf("team.heartbeats", []string{alias, "B"}))
	require.Equal(t, "proj.kafka-src.checkpoints.internal", p.CheckpointsTopic(alias))
}

func TestCyclesAreSeenThroughFullAliases(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	const src, dst = "proj.kafka-src", "proj.kafka-dst"
	for topic, want := range map[string]bool{
		"t":                               false,
		"orders.v1":                       false,
		"proj.t":                          false, // Java would see the alias "proj" in both
		"proj.kafka-dst.t":                true,
		"proj.kafka-src.t":                true, // 4.4: a copy that came home
		"X.proj.kafka-dst.t":              true,
		"Y.proj.kafka-dst.t":              false, // Y is no cluster that we know
		"X.X.proj.kafka-src.t":            true,
		"X.t":                             false,
		"proj.kafka-dst":                  false,
		"X.proj.kafka-dst.proj.kafka-src": true,
	} {
		require.Equal(t, want, p.IsCycle(topic, src, dst, []string{"X"}), topic)
	}
	require.True(t, p.IsCycle("a.b.t", "S", "b", []string{"a", "a.b"}), "any reading of the name counts")

	id := identityPolicy(t, "A")
	require.False(t, id.IsCycle("B.t", "A", "B", nil))
	require.True(t, id.IsCycle("B.heartbeats", "A", "B", nil))
	require.False(t, id.IsCycle("A.heartbeats", "A", "B", nil), "Identity looks for the target only")
}

func TestTwoFlowsInOppositeDirectionsNeverLoop(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	aliases := []string{"a", "a.b", "b", "x.kafka-1", "x.kafka-2", "x"}
	for _, src := range aliases {
		for _, dst := range aliases {
			if src == dst {
				continue
			}
			there := p.FormatRemoteTopic(src, "t.v1")
			require.True(t, p.IsCycle(there, dst, src, nil), "%s back to %s", there, src)
		}
	}
}

func TestTopicNamesAreJudgedAsBrokersDo(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"a", "A.b_c-1", "...", strings.Repeat("x", 249)} {
		require.NoError(t, mm2.ValidateTopicName(ok), ok)
	}
	for _, no := range []string{"", ".", "..", "a b", "é", "a/b", strings.Repeat("x", 250), "a\n"} {
		require.ErrorIs(t, mm2.ValidateTopicName(no), mm2.ErrInvalidTopicName, no)
	}
}

func TestNamesOfTheMachinery(t *testing.T) {
	t.Parallel()
	require.Equal(t, "mm2-offsets.proj.kafka-src.internal", mm2.ConnectOffsetsTopic("proj.kafka-src"))
	require.Equal(t, "mm2-configs.A.internal", mm2.ConnectConfigsTopic("A"))
	require.Equal(t, "mm2-status.A.internal", mm2.ConnectStatusTopic("A"))
	require.Equal(t, "A-mm2", mm2.ConnectGroup("A"))
	require.Equal(t, "mirrorflow-state.A.internal", mm2.StateTopic("A"))
	require.True(t, mm2.IsStateTopic(mm2.StateTopic("x.y")))
	require.False(t, mm2.IsStateTopic("mirrorflow-state.internal"))
}

func TestPoliciesAreBuiltByJavasClassNames(t *testing.T) {
	t.Parallel()
	for _, class := range []string{mm2.DefaultReplicationPolicyClass, mm2.IdentityReplicationPolicyClass} {
		p, err := mm2.NewReplicationPolicy(class, "A", ".", true)
		require.NoError(t, err)
		require.Equal(t, class, p.Class())
	}
	_, err := mm2.NewReplicationPolicy("com.example.Own", "A", ".", true)
	require.Error(t, err)
}

func TestCheckpointsNameTopicsAsTheTargetKnowsThem(t *testing.T) {
	t.Parallel()
	p := defaultPolicy(t)
	require.Equal(t, "A.t", mm2.RenameTopic(p, "A", "B", "t"))
	require.Equal(t, "t", mm2.RenameTopic(p, "A", "B", "B.t"))
	require.Equal(t, "orders.v1", mm2.RenameTopic(p, "A", "B", "B.orders.v1"))
	require.Equal(t, "A.X.t", mm2.RenameTopic(p, "A", "B", "X.t"))
	require.Equal(t, "t", mm2.RenameTopic(identityPolicy(t, "A"), "A", "B", "t"))
}

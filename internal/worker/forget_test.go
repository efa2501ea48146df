package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Flows of one source share the state topic: forgetting one must leave the
// others' positions alone.
func TestForgettingAFlowRemovesItsPositionsAndNoOthers(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	target := kafka.Cluster{
		Side: "target", BootstrapServers: cluster.ListenAddrs(), Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"}),
	}
	open := func(remote func(string) string) *state.TopicStore {
		s, err := state.Open(state.Config{
			Target: target, ClientID: "test", SourceAlias: "a.b", LeaseEpoch: 1, ReplicationFactor: 1, MM2Positions: true, RemoteTopic: remote,
		})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	prefixed := func(s string) string { return "a.b." + s }
	identity := func(s string) string { return s }
	entry := func(topic string) state.Entry { return state.Entry{SourceTopic: topic, Position: 7, TargetNext: 7} }
	require.NoError(t, open(prefixed).Save(ctx, map[state.Key]state.Entry{
		{RemoteTopic: "a.b.orders", Partition: 0}:         entry("orders"),
		{RemoteTopic: "a.b.orders", Partition: 1}:         entry("orders"),
		{RemoteTopic: "a.b.orders-private", Partition: 0}: entry("orders-private"),
		{RemoteTopic: "a.b.stock", Partition: 0}:          entry("stock"),
	}))
	require.NoError(t, open(identity).Save(ctx, map[state.Key]state.Entry{{RemoteTopic: "orders-copy", Partition: 0}: entry("orders-copy")}))

	cfg := engine.Config{
		Target: target, SourceAlias: "a.b", TargetAlias: "t", Separator: ".", ReplicationFactor: 1,
		Topics: []string{"orders.*"}, TopicExcludeList: []string{".*-private"},
	}
	cfg.Identity.FlowID = "f"
	require.NoError(t, forget(ctx, cfg))
	require.NoError(t, forget(ctx, cfg), "there is nothing left to do")

	left, err := open(prefixed).Load(ctx)
	require.NoError(t, err)
	var keys []state.Key
	for k := range left {
		keys = append(keys, k)
	}
	require.ElementsMatch(t, []state.Key{
		{RemoteTopic: "a.b.orders-private", Partition: 0}, {RemoteTopic: "a.b.stock", Partition: 0}, {RemoteTopic: "orders-copy", Partition: 0},
	}, keys)

	cfg.IdentityPolicy = true
	require.NoError(t, forget(ctx, cfg))
	left, err = open(identity).Load(ctx)
	require.NoError(t, err)
	require.NotContains(t, left, state.Key{RemoteTopic: "orders-copy", Partition: 0})
	require.Contains(t, left, state.Key{RemoteTopic: "a.b.stock", Partition: 0})

	cfg.Topics = []string{"("}
	require.ErrorContains(t, forget(ctx, cfg), "topics")
}

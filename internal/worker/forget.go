package worker

import (
	"context"
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// forget removes the positions of a flow from the target, MM2's included. The
// state topic is shared by all flows from one alias, so only entries that the
// flow's lists select and whose remote topic is the one its policy makes are
// removed. No task of the flow may be running.
func forget(ctx context.Context, cfg engine.Config) error {
	class := mm2.DefaultReplicationPolicyClass
	if cfg.IdentityPolicy {
		class = mm2.IdentityReplicationPolicyClass
	}
	policy, err := mm2.NewReplicationPolicy(class, cfg.SourceAlias, cfg.Separator, true)
	if err != nil {
		return fmt.Errorf("replication policy: %w", err)
	}
	include, err := topics.Compile("Topics", cfg.Topics)
	if err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	exclude, err := topics.Compile("TopicExcludeList", cfg.TopicExcludeList)
	if err != nil {
		return fmt.Errorf("topicExcludeList: %w", err)
	}
	filter := mm2.NewTopicFilter(include, exclude)
	remote := func(source string) string { return policy.FormatRemoteTopic(cfg.SourceAlias, source) }

	store, err := state.Open(state.Config{
		Target: cfg.Target, ClientID: fmt.Sprintf("%s->%s|%s|forget", cfg.SourceAlias, cfg.TargetAlias, cfg.Identity.FlowID),
		SourceAlias: cfg.SourceAlias, ReplicationFactor: cfg.ReplicationFactor, MM2Positions: true,
		RemoteTopic: remote, Logger: cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	defer store.Close()
	entries, err := store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	var keys []state.Key
	for k, e := range entries {
		if k.RemoteTopic != remote(e.SourceTopic) {
			continue // another policy's
		}
		v, err := filter.Match(e.SourceTopic)
		if err != nil {
			return fmt.Errorf("match topic %s: %w", e.SourceTopic, err)
		}
		if v.Passes {
			keys = append(keys, k)
		}
	}
	if err := store.Forget(ctx, keys); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

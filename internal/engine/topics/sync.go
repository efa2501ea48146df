package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// Described configs are some 2 KB a topic and side and rarely change, so that a call of SyncConfigs looks at a share of
// the topics: as many as it takes to have looked at all of them within configsWithin, between these bounds.
const (
	configsWithin  = 30 * time.Second
	configsAtOnce  = 1000
	configsAtLeast = 10
)

// share is how many of n topics the next call looks at. The first one looks at all.
func (r *Room) share(n int, now time.Time) int {
	since := configsWithin
	if !r.looked.IsZero() {
		since = min(since, now.Sub(r.looked))
	}
	return min(n, configsAtOnce, max(configsAtLeast, int(int64(n)*int64(since)/int64(configsWithin))+1))
}

// SyncConfigs lets the configs of existing remote topics follow their source. It is called at each refresh, and looks at
// each topic within half a minute, or a refresh where that is longer; with thousands of topics, at a thousand a refresh.
// Trouble with one topic becomes its condition; the error is about the connection only.
func (r *Room) SyncConfigs(ctx context.Context, all []Selected) error {
	if !r.cfg.SyncConfigs || len(all) == 0 {
		return nil
	}
	now := r.cfg.Now()
	n := r.share(len(all), now)
	from := r.next % len(all)
	round := make([]Selected, 0, n)
	for i := range n {
		round = append(round, all[(from+i)%len(all)])
	}
	if err := r.syncRound(ctx, round); err != nil {
		return err // the same ones again
	}
	r.looked, r.next = now, (from+n)%len(all)
	return nil
}

func (r *Room) syncRound(ctx context.Context, round []Selected) error {
	sourceNames, remoteNames := make([]string, len(round)), make([]string, len(round))
	for i, w := range round {
		sourceNames[i], remoteNames[i] = w.Topic.Name, w.Remote
	}
	source, err := describeConfigs(ctx, r.cfg.Source, sourceNames)
	if err != nil {
		return fmt.Errorf("describe configs of source topics: %w", err)
	}
	target, err := describeConfigs(ctx, r.cfg.Target, remoteNames)
	if err != nil {
		return fmt.Errorf("describe configs of remote topics: %w", err)
	}
	for _, w := range round {
		if err := r.syncTopic(ctx, w, source[w.Topic.Name], target[w.Remote]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Room) syncTopic(ctx context.Context, w Selected, source, target described) error {
	if source.err != nil {
		if !errors.Is(source.err, kerr.UnknownTopicOrPartition) { // deleted since: the next refresh sees it
			r.configTrouble(w, "they cannot be read on the source: "+source.err.Error(), nil, "grant DESCRIBE_CONFIGS on the topic on the source", source.err)
		}
		return nil
	}
	if target.err != nil {
		if errors.Is(target.err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		// Without seeing the target we could only write blindly at every sync; MM2's mode does, ours does not.
		r.configTrouble(w, "they cannot be read on the target: "+target.err.Error(), nil, "grant DESCRIBE_CONFIGS on the remote topic on the target", target.err)
		return nil
	}
	owned := r.cfg.Ledger.Owned(w.Remote)
	plan, err := r.filter.Plan(r.cfg.Mode, source.entries, target.entries, owned)
	if err != nil {
		r.configTrouble(w, err.Error(), nil, "simplify configPropertiesExclude", err)
		return nil
	}
	ops, refused := r.withoutRefused(w.Remote, plan.Ops)
	if len(ops) == 0 {
		if len(refused) == 0 {
			delete(r.refused, w.Remote)
		}
		r.reportSkipped(w, plan.Skipped, refused)
		if !sameMap(owned, plan.Owned) && len(refused) == 0 {
			return r.remember(ctx, w, plan.Owned)
		}
		return nil
	}
	// Remembered before it is sent, the old facts included until the change is through (see Ledger).
	if err := r.remember(ctx, w, ownedKeys(owned, ops)); err != nil {
		return err
	}
	err = alterConfigs(ctx, r.cfg.Target, w.Remote, ops, false)
	if errors.Is(err, kerr.InvalidConfig) {
		ops, err = r.alterEach(ctx, w.Remote, ops)
		_, refused = r.withoutRefused(w.Remote, plan.Ops)
	}
	var be *Error
	switch {
	case err == nil:
	case errors.As(err, &be):
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		remedy := "grant ALTER_CONFIGS on the remote topic on the target, or switch syncTopicConfigs off"
		if !denied(err) {
			remedy = "exclude the property that the message names by configPropertiesExclude"
		}
		r.configTrouble(w, "they cannot be set on the target: "+err.Error(), opNames(ops), remedy, err)
		return nil
	default:
		return fmt.Errorf("alter configs of %s: %w", w.Remote, err)
	}
	r.reportSkipped(w, plan.Skipped, refused)
	if len(ops) > 0 {
		r.cfg.Logger.Info("topic configs followed the source", slog.String("topic", w.Topic.Name), slog.String("remote_topic", w.Remote), slog.Any("properties", opNames(ops)))
	}
	for name := range refused {
		delete(plan.Owned, name)
	}
	return r.remember(ctx, w, plan.Owned)
}

func (r *Room) remember(ctx context.Context, w Selected, owned map[string]string) error {
	if sameMap(r.cfg.Ledger.Owned(w.Remote), owned) {
		return nil
	}
	if err := r.cfg.Ledger.SetOwned(ctx, w.Remote, owned); err != nil {
		return fmt.Errorf("remember configs of %s: %w", w.Remote, err)
	}
	return nil
}

// withoutRefused takes out settings that the target refused before with the same value; asking again each time would
// be noise in its log. The result names those with the reason for the condition.
func (r *Room) withoutRefused(remote string, ops []mm2.ConfigOp) ([]mm2.ConfigOp, map[string]string) {
	bad := r.refused[remote]
	if len(bad) == 0 {
		return ops, nil
	}
	var keep []mm2.ConfigOp
	out := map[string]string{}
	for _, op := range ops {
		if v, ok := bad[op.Name]; ok && !op.Delete && v == op.Value {
			out[op.Name] = "value " + op.Value
			continue
		}
		keep = append(keep, op)
	}
	return keep, out
}

// alterEach applies the ops that the target takes one by one, remembers those it refuses and returns those applied.
func (r *Room) alterEach(ctx context.Context, remote string, ops []mm2.ConfigOp) ([]mm2.ConfigOp, error) {
	var good []mm2.ConfigOp
	for _, op := range ops {
		err := alterConfigs(ctx, r.cfg.Target, remote, []mm2.ConfigOp{op}, true)
		switch {
		case err == nil:
			good = append(good, op)
		case errors.Is(err, kerr.InvalidConfig):
			if r.refused[remote] == nil {
				r.refused[remote] = map[string]string{}
			}
			r.refused[remote][op.Name] = op.Value
		default:
			return nil, err
		}
	}
	if len(good) == 0 {
		return nil, nil
	}
	return good, alterConfigs(ctx, r.cfg.Target, remote, good, false)
}

func sameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

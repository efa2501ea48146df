package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// want is one offset that a group should have on the target.
type want struct {
	source   partition
	offset   int64 // on the target
	exact    bool
	topicID  [16]byte // Translation.TopicID
	metadata string
}

// wants are a group's, by target partition.
type wants map[mm2.TopicPartition]want

// syncRound commits what can be translated, into groups that are not active on the target.
//
// Whether a group may be written is asked in the same round; a group that gets members in between is protected by the
// broker, which refuses commits from outside (taken as "active" here).
func (r *Room) syncRound(ctx context.Context) error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	fetchErr := r.fetch(ctx, fresh)
	err := r.apply(ctx, r.translate())
	r.mu.Lock()
	r.lastSync = r.cfg.Now()
	r.syncFailed = fetchErr != nil || err != nil
	r.mu.Unlock()
	return errors.Join(fetchErr, err)
}

// translate computes what each group should have on the target. Groups whose offsets are stale are left out.
func (r *Room) translate() map[string]wants {
	r.mu.Lock()
	defer r.mu.Unlock()
	plan := map[string]wants{}
	for name, g := range r.kept {
		if g.err != nil {
			continue
		}
		ws := wants{}
		for tp, c := range g.commits {
			tr, ok, _ := r.cfg.Translator.Translate(tp.topic, tp.id, c.offset)
			if !ok || tr.Target < 0 {
				continue
			}
			ws[r.targetPartition(tp)] = want{tp, tr.Target, tr.Exact, tr.TopicID, c.metadata}
		}
		if len(ws) > 0 {
			plan[name] = ws
		}
	}
	return plan
}

func (r *Room) targetPartition(tp partition) mm2.TopicPartition {
	return mm2.TopicPartition{Topic: mm2.RenameTopic(r.cfg.Policy, r.cfg.SourceAlias, r.cfg.TargetAlias, tp.topic), Partition: tp.id}
}

// apply carries out one round's plan on the target, some groups at a time. It ends early when the target as a whole does
// not answer. Each round begins with other groups than the last, behind those of a round that ended early: whatever keeps
// a round from reaching the last groups, it is not the same ones that wait for ever.
func (r *Room) apply(ctx context.Context, plan map[string]wants) error {
	if len(plan) == 0 {
		r.troubles.clear(everything, phaseWrite)
		return nil
	}
	names := slices.Sorted(maps.Keys(plan))
	r.start %= len(names)
	names = slices.Concat(names[r.start:], names[:r.start])
	var errs []error
	done, away := 0, false
	for some := range slices.Chunk(names, describeBatch) {
		var err error
		if away, err = r.applySome(ctx, some, plan); err != nil {
			errs = append(errs, err)
		}
		done += len(some)
		if away || ctx.Err() != nil {
			break
		}
	}
	if done == len(names) {
		done = commitParallel
	}
	r.start += done
	err := errors.Join(errs...)
	if !away && !whole(err) {
		r.troubles.clear(everything, phaseWrite)
	}
	return err
}

// applySome carries out the plan for some groups. away tells that the target as a whole does not answer.
func (r *Room) applySome(ctx context.Context, names []string, plan map[string]wants) (away bool, err error) {
	described, err := r.describe(ctx, names)
	if err != nil {
		r.clusterFailed("target", phaseWrite, "asking for the state of the groups", err)
		return true, fmt.Errorf("describe target groups: %w", err)
	}
	var idle []string
	var errs []error
	for _, name := range names {
		switch d := described[name]; {
		case d.err != nil:
			errs = append(errs, r.writeFailed(name, "The state of the group %s could not be read on the target.", d.err))
		case d.active:
			r.decide(name, plan[name], nil)
			r.troubles.clear(name, phaseWrite)
			r.setActive(name, d.state)
		default:
			r.cfg.Board.Clear(report.GroupActiveOnTarget, subject(name))
			idle = append(idle, name)
		}
	}
	have, failures := r.targetOffsets(ctx, idle)
	commits := map[string]wants{}
	for _, name := range idle {
		if err, bad := failures[name]; bad {
			errs = append(errs, r.writeFailed(name, "The offsets of the group %s could not be read on the target.", err))
			continue
		}
		due := wants{}
		for tp, w := range plan[name] {
			// Forwards only: a group that is further there has been used, or the source's was set back.
			if at, ok := have[name][tp]; !ok || at < w.offset {
				due[tp] = w
			}
		}
		r.decide(name, plan[name], have[name])
		if len(due) == 0 {
			r.troubles.clear(name, phaseWrite)
			continue
		}
		commits[name] = due
	}
	errs = append(errs, r.commitAll(ctx, commits))
	return false, errors.Join(errs...)
}

// decide remembers what a round made of a group's offsets.
func (r *Room) decide(name string, ws wants, have map[mm2.TopicPartition]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.settled[name]
	if m == nil {
		if r.kept[name] == nil {
			return
		}
		m = map[partition]settled{}
		r.settled[name] = m
	}
	for tp, w := range ws {
		s := settled{target: w.offset, exact: w.exact, ahead: -1}
		if at, ok := have[tp]; ok && at > w.offset {
			s.ahead = at
		}
		m[w.source] = s
	}
}

// writeFailed reports a failure about one group on the target, or about the target as a whole.
func (r *Room) writeFailed(name, format string, err error) error {
	if whole(err) {
		r.clusterFailed("target", phaseWrite, "writing group offsets", err)
	} else {
		r.groupFailed(name, phaseWrite, format, err, remedyFor(err, "target", "READ on the group and on its topics"))
	}
	return fmt.Errorf("group %s on the target: %w", name, err)
}

// commitAll commits group by group, several at a time. What belongs to a topic that was made anew since is left out, and
// due again soon: committed, it would point into the new topic, and not go back any more.
func (r *Room) commitAll(ctx context.Context, commits map[string]wants) error {
	if len(commits) == 0 {
		return nil
	}
	ids, err := r.topicIDs(ctx, commits)
	if err != nil {
		r.clusterFailed("target", phaseWrite, "asking for topics", err)
		return fmt.Errorf("look up target topics: %w", err)
	}
	for name, ws := range commits {
		due, stale := current(ws, ids)
		if len(stale) == 0 {
			continue
		}
		r.cfg.Logger.Debug("offsets belong to a former life of their topic", slog.String("group", name), slog.Int("partitions", len(stale)))
		r.undecide(name, stale)
		if commits[name] = due; len(due) == 0 {
			delete(commits, name)
		}
	}
	if !r.cfg.MayWrite() {
		for name, ws := range commits {
			r.undecide(name, ws)
		}
		return errNotAllowed
	}
	names := slices.Sorted(maps.Keys(commits))
	errs := make([]error, len(names))
	c, cancel := r.bounded(ctx)
	defer cancel()
	inParallel(len(names), commitParallel, func(i int) {
		errs[i] = r.commit(c, names[i], commits[names[i]], ids)
	})
	return errors.Join(errs...)
}

// errNotAllowed says that nothing may be written now (Config.MayWrite).
var errNotAllowed = errors.New("groups: nothing may be written now")

// current parts offsets into those whose topic on the target is the one that they belong to, and others.
func current(ws wants, now map[string]topicID) (due, stale wants) {
	due, stale = wants{}, wants{}
	for tp, w := range ws {
		id := now[tp.Topic]
		if id.missing || w.topicID != id.id && w.topicID != [16]byte{} && id.id != [16]byte{} {
			stale[tp] = w
		} else {
			due[tp] = w
		}
	}
	return due, stale
}

// commit writes one group's offsets. A partition that fails does not keep the others back.
func (r *Room) commit(ctx context.Context, name string, ws wants, ids map[string]topicID) error {
	if !r.cfg.MayWrite() {
		r.undecide(name, ws)
		return errNotAllowed
	}
	failed, err := commitOffsets(ctx, r.cfg.Target, name, ws, ids)
	if err != nil {
		r.undecide(name, ws)
		return r.writeFailed(name, "The offsets of the group %s could not be written on the target.", err)
	}
	var errs []error
	bad := make([]string, 0, len(failed))
	for tp, err := range failed {
		if kafka.KindOf(err) == kafka.KindGroupBusy {
			r.troubles.clear(name, phaseWrite)
			r.setActive(name, "members joined")
			return nil
		}
		bad = append(bad, tp.String())
		errs = append(errs, fmt.Errorf("%s: %w", tp, err))
	}
	if len(errs) == 0 {
		r.troubles.clear(name, phaseWrite)
		return nil
	}
	slices.Sort(bad)
	first := failed[firstOf(failed)]
	r.troubles.set(name, phaseWrite, passing(first), report.Condition{
		Code: report.GroupSyncFailed, Severity: report.Error,
		Message:  fmt.Sprintf("The offsets of the group %s could not be written on the target for %d of %d partitions, %s first.", name, len(failed), len(ws), bad[0]),
		Evidence: map[string]any{"error": kafka.Brief(first), "partitions": bad[:min(len(bad), 20)], "failed": len(bad)},
		Remedy:   remedyFor(first, "target", "READ on the group and on its topics"),
	})
	return fmt.Errorf("commit offsets of group %s: %w", name, errors.Join(errs...))
}

// undecide makes offsets due again as soon as possible after a commit that did not get through.
func (r *Room) undecide(name string, ws wants) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ws {
		delete(r.settled[name], w.source)
	}
}

func firstOf(failed map[mm2.TopicPartition]error) mm2.TopicPartition {
	return slices.MinFunc(slices.Collect(maps.Keys(failed)), func(a, b mm2.TopicPartition) int {
		switch {
		case a.Topic < b.Topic:
			return -1
		case a.Topic > b.Topic:
			return 1
		}
		return int(a.Partition - b.Partition)
	})
}

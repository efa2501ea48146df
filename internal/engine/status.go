package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const clusterChanged = kafka.ClusterChanged

const (
	statusInterval = time.Second
	// statusSpacing keeps a burst of changes from becoming a burst of reports.
	statusSpacing = 100 * time.Millisecond
)

// statusLoop reports each second and at each change, until ctx ends.
func (t *Task) statusLoop(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		now := time.Now()
		t.sweepNotices(now)
		s := t.status(now, "")
		t.cfg.Sink.Status(s)
		t.judgeRate(now, lagOf(s))
		if !sleep(ctx, statusSpacing) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.board.Changed():
		case <-t.show:
		}
	}
}

// setExcluded notes what the last refresh left out, for the status.
func (t *Task) setExcluded(excluded []report.Excluded) {
	t.statusMu.Lock()
	t.excluded = excluded
	t.statusMu.Unlock()
}

// status is all that is known now. force replaces the state that the conditions give.
func (t *Task) status(now time.Time, force report.State) report.Status {
	// Asked before the conditions: what the first refresh has found is among them then.
	t.statusMu.Lock()
	ready := t.ready
	t.statusMu.Unlock()
	s := report.Status{ObservedAt: now, Conditions: t.board.List()}
	running, total := t.showTopics(&s)
	t.m.observeConditions(s.Conditions)
	for _, r := range t.besideNow() {
		if g, ok := r.(grouper); ok {
			s.Groups = append(s.Groups, g.Groups()...)
		}
	}
	t.statusMu.Lock()
	defer t.statusMu.Unlock()
	s.Excluded = t.excluded
	s.State = force
	if force == "" {
		s.State = stateOf(s.Conditions, ready, running, total)
	}
	if s.State != t.lastState {
		t.log.Info("state changed", slog.String("from", string(t.lastState)), slog.String("to", string(s.State)))
		t.lastState, t.since = s.State, now
	}
	s.Since = t.since
	return s
}

// showTopics fills in the topics. What has not changed since the last time is that time's: an idle flow makes nothing new.
func (t *Task) showTopics(s *report.Status) (running, total int) {
	t.shownMu.Lock()
	defer t.shownMu.Unlock()
	parts, last := t.parts.all(), t.shown
	all := make([]report.Topic, 0, len(last))
	changed := false
	for from := 0; from < len(parts); {
		name := parts[from].tp.Topic
		for len(last) > 0 && last[0].Name < name {
			last, changed = last[1:], true
		}
		topic := report.Topic{Name: name, RemoteName: parts[from].remote}
		if len(last) > 0 && last[0].Name == name {
			if last[0].RemoteName == topic.RemoteName {
				topic.Partitions = last[0].Partitions
			}
			last = last[1:]
		}
		to := from + 1
		for to < len(parts) && parts[to].tp.Topic == name {
			to++
		}
		lag, news := showPartitions(&topic, parts[from:to], &running)
		if news {
			changed = true
			t.m.observeLag(name, lag)
		}
		all = append(all, topic)
		total += to - from
		from = to
	}
	if changed || len(all) != len(t.shown) {
		t.shown = all
	}
	s.Topics = t.shown
	return running, total
}

// showPartitions replaces a topic's partitions as last shown when one of them has changed, and counts those that run.
func showPartitions(topic *report.Topic, parts []*partition, running *int) (lag int64, news bool) {
	old := topic.Partitions
	news = len(old) != len(parts)
	if news {
		topic.Partitions = make([]report.Partition, len(parts))
	}
	for i, p := range parts {
		now := p.report()
		lag += now.Lag
		if now.State == partRunning {
			*running++
		}
		if !news && now != old[i] {
			news = true
			topic.Partitions = slices.Clone(old)
		}
		if news {
			topic.Partitions[i] = now
		}
	}
	return lag, news
}

// stateOf derives the state from what was observed: FAILED when nothing can move, DEGRADED when something stopped or
// nothing was selected, else RUNNING. Warnings alone do not degrade: what they tell of has happened, and copying goes on.
func stateOf(conds []report.Condition, ready bool, running, total int) report.State {
	errs, warned := 0, false
	for _, c := range conds {
		if c.Subject == report.Flow && lostSide(c.Code) {
			return report.Failed
		}
		switch {
		case c.Code == report.NoTopicsMatched:
			warned = true
		case c.Severity == report.Error:
			errs++
		}
	}
	switch {
	case !ready && errs > 0:
		return report.Failed
	case !ready:
		return report.Starting
	case total > 0 && running == 0 && errs > 0:
		return report.Failed
	case total > 0 && running == 0:
		return report.Starting
	case errs > 0 || warned || running < total:
		return report.Degraded
	}
	return report.Running
}

// lostSide tells whether a code of the whole flow says that a cluster cannot be worked with.
func lostSide(code string) bool {
	for _, prefix := range []string{"SOURCE_", "TARGET_"} {
		if rest, ok := strings.CutPrefix(code, prefix); ok && connectionCode(rest) {
			return true
		}
	}
	return false
}

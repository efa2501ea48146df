package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const clusterChanged = kafka.ClusterChanged

const (
	statusInterval = time.Second
	// statusSpacing keeps a burst of changes from becoming a burst of reports.
	statusSpacing = 100 * time.Millisecond
	// boundsInterval is how often both ends of each partition are asked for, so that lag is fresh on idle and on stalled
	// partitions alike; boundsPerSecond makes it longer for tasks of many partitions.
	boundsInterval  = 2 * time.Second
	boundsPerSecond = 2000
)

// statusLoop reports each second and at each change, until ctx ends.
func (t *Task) statusLoop(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		now := time.Now()
		t.sweepNotices(now)
		t.cfg.Sink.Status(t.status(now, ""))
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
	s := report.Status{ObservedAt: now, Conditions: t.board.List()}
	lags := map[string]int64{}
	var topic *report.Topic
	running, total := 0, 0
	for _, p := range t.parts.all() {
		if topic == nil || topic.Name != p.tp.Topic {
			s.Topics = append(s.Topics, report.Topic{Name: p.tp.Topic, RemoteName: p.remote})
			topic = &s.Topics[len(s.Topics)-1]
		}
		p.mu.Lock()
		topic.Partitions = append(topic.Partitions, report.Partition{
			Partition: p.tp.Partition, LogStart: p.logStart, LogEnd: p.highWatermark, Position: p.position, TargetEnd: p.targetEnd,
			Lag: p.lag(), State: p.state,
		})
		lags[p.tp.Topic] += p.lag()
		total++
		if p.state == partRunning {
			running++
		}
		p.mu.Unlock()
	}
	t.m.observe(lags, s.Conditions)
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
		s.State = stateOf(s.Conditions, t.ready, running, total)
	}
	if s.State != t.lastState {
		t.log.Info("state changed", slog.String("from", string(t.lastState)), slog.String("to", string(s.State)))
		t.lastState, t.since = s.State, now
	}
	s.Since = t.since
	return s
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

// boundsPause is the time between two looks at the ends of all partitions.
func (t *Task) boundsPause() time.Duration {
	return max(boundsInterval, time.Duration(t.parts.len())*time.Second/boundsPerSecond)
}

// boundsLoop keeps log ends fresh, until ctx ends.
func (t *Task) boundsLoop(ctx context.Context) {
	for {
		if !sleep(ctx, t.boundsPause()) {
			return
		}
		source := report.Aside("source offsets", func() (bool, error) { t.sourceBounds(ctx); return true, nil })
		t.targetEnds(ctx)
		_, _ = source() // it reports by itself; a panic comes through
	}
}

func (t *Task) sourceBounds(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	parts := t.parts.all()
	if len(parts) == 0 {
		return
	}
	tps := make([]mirror.TP, len(parts))
	for i, p := range parts {
		tps[i] = p.tp
	}
	got, err := listBounds(c, t.source.client, tps)
	if err != nil {
		t.source.failed("offsets", err)
	} else {
		t.source.ok("offsets")
	}
	for _, p := range parts {
		b := got[p.tp]
		if b.err != nil {
			continue
		}
		p.mu.Lock()
		p.logStart, p.highWatermark = b.start, b.end
		p.mu.Unlock()
	}
}

func (t *Task) targetEnds(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	parts := t.parts.all()
	var ask []*partition
	var tps []mirror.TP
	for _, p := range parts {
		p.mu.Lock()
		if p.position >= 0 { // the remote partition exists
			ask = append(ask, p)
			tps = append(tps, mirror.TP{Topic: p.remote, Partition: p.tp.Partition})
		}
		p.mu.Unlock()
	}
	if len(tps) == 0 {
		return
	}
	got, err := listOffsets(c, t.target.client, tps, atEnd, uncommitted)
	if err != nil {
		t.target.failed("offsets", err)
	} else {
		t.target.ok("offsets")
	}
	for i, p := range ask {
		if g, ok := got[tps[i]]; ok && g.err == nil {
			p.mu.Lock()
			p.targetEnd = g.offset
			p.mu.Unlock()
		}
	}
}

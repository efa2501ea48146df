package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
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
	// openTransactionAfter is how long the last stable offset may stand still below the high watermark.
	openTransactionAfter = 10 * time.Second
)

// statusLoop reports each second and at each change, and hands over events, until ctx ends.
func (t *Task) statusLoop(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		t.cfg.Sink.Status(t.status(time.Now(), ""))
		c, cancel := context.WithTimeout(ctx, adminTimeout)
		if err := t.outbox.flush(c, t.cfg.Sink); err != nil && ctx.Err() == nil {
			t.log.Warn("events not recorded, tried again", slog.Any("error", err))
		}
		cancel()
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

// setSelection notes what the last refresh selected, for the status.
func (t *Task) setSelection(wanted []topics.Selected, excluded []report.Excluded) {
	remotes := make(map[string]string, len(wanted))
	for _, w := range wanted {
		remotes[w.Topic.Name] = w.Remote
	}
	t.statusMu.Lock()
	t.remotes, t.excluded = remotes, excluded
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

// boundsLoop keeps log ends fresh and watches for open transactions, until ctx ends.
func (t *Task) boundsLoop(ctx context.Context) {
	for {
		if !sleep(ctx, max(boundsInterval, time.Duration(t.parts.len())*time.Second/boundsPerSecond)) {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			t.sourceBounds(ctx)
		}()
		t.targetEnds(ctx)
		<-done
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
	var behind []*partition
	for _, p := range parts {
		b := got[p.tp]
		if b.err != nil {
			continue
		}
		p.mu.Lock()
		p.logStart, p.highWatermark = b.start, b.end
		if p.position >= 0 && p.position < b.end && !t.cfg.ReadUncommitted && p.state == partRunning {
			behind = append(behind, p)
		} else {
			p.stuckSince = time.Time{}
		}
		p.mu.Unlock()
	}
	t.watchTransactions(c, behind)
}

// watchTransactions asks for the last stable offsets of partitions with something to read, and sets OPEN_TRANSACTION
// where reading has stood at one for a while although the log goes on behind it.
func (t *Task) watchTransactions(ctx context.Context, behind []*partition) {
	tps := make([]mirror.TP, len(behind))
	for i, p := range behind {
		tps[i] = p.tp
	}
	stable := map[mirror.TP]listed{}
	if len(tps) > 0 {
		var err error
		if stable, err = listOffsets(ctx, t.source.client, tps, atEnd, committed); err != nil {
			return // said by sourceBounds
		}
	}
	now := time.Now()
	open := map[report.Subject]bool{}
	for _, p := range behind {
		got, ok := stable[p.tp]
		if !ok || got.err != nil {
			continue
		}
		sub := report.Subject{Topic: p.tp.Topic, Partition: p.tp.Partition}
		p.mu.Lock()
		p.lastStable = got.offset
		waiting := got.offset < p.highWatermark && p.position >= got.offset
		switch {
		case !waiting:
			p.stuckSince = time.Time{}
		case p.stuckSince.IsZero() || p.stuckAt != got.offset:
			p.stuckSince, p.stuckAt = now, got.offset
		}
		since, end := p.stuckSince, p.highWatermark
		p.mu.Unlock()
		if since.IsZero() || now.Sub(since) < openTransactionAfter {
			continue
		}
		open[sub] = true
		t.board.Set(openTransaction(p, got.offset, end))
	}
	t.board.ClearWhere(func(c report.Condition) bool { return c.Code == report.OpenTransaction && !open[c.Subject] })
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

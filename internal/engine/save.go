package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// flushTimeout bounds one flush of the offset syncs.
const flushTimeout = 2 * time.Second

// saveLoop stores changed positions until ctx ends: the more often the less it costs, so that what a crash makes us copy
// again is small, and saving takes a twentieth of the time at most. Where nothing changes it looks after what is stored.
// A save under way is not cut off by that but by the end of work: a clean stop waits for it, a lost lease does not.
func (t *Task) saveLoop(ctx, work context.Context) {
	t.first.await(ctx)
	for pause := saveSoonest; sleep(ctx, pause); {
		idle := time.NewTimer(checkInterval)
		select {
		case <-ctx.Done():
		case <-t.dirty:
		case <-idle.C:
		}
		idle.Stop()
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		c, cancel := context.WithTimeout(work, adminTimeout)
		if err := t.save(c); err != nil {
			signal(t.dirty)
			if ctx.Err() == nil {
				t.log.Warn("positions not stored, tried again", slog.Any("error", err))
			}
		}
		cancel()
		pause = min(saveInterval, max(saveSoonest, 20*time.Since(began)))
	}
}

// flushLoop writes offset syncs after positions, once each saveInterval at most, until ctx ends. It is apart from saving,
// which a cluster that is slow to take offset syncs must not hold up.
func (t *Task) flushLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.stored:
		}
		t.flushSyncs(ctx)
		if !sleep(ctx, saveInterval) {
			return
		}
	}
}

// save stores what changed since it was stored. Positions only ever hold what the target acknowledged (Observer.Passed),
// so a crash before it copies a tail again and loses nothing.
// A partition that cannot be stored keeps no other from it; the error tells of it.
func (t *Task) save(ctx context.Context) error {
	select {
	case t.saving <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("store positions: %w", ctx.Err())
	}
	defer func() { <-t.saving }()
	if t.footing.isLost() {
		return nil
	}
	entries := map[state.Key]state.Entry{}
	var took []unsaved
	var bad []error
	for _, p := range t.parts.all() {
		u, ok, err := t.unsaved(p)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("engine: offset map of %s: %w", p, err))
			t.mapFailed(p, err)
		case ok:
			entries[p.key()] = u.entry
			took = append(took, u)
		}
	}
	began := time.Now()
	if len(entries) == 0 {
		err := t.store.Check(ctx)
		t.stateResult(began, err)
		if err != nil {
			return errors.Join(append(bad, fmt.Errorf("look after stored positions: %w", err))...)
		}
	} else {
		err := t.store.Save(ctx, entries)
		t.stateResult(began, err)
		if err != nil {
			t.m.saveErrors.Inc()
			return errors.Join(append(bad, fmt.Errorf("store positions: %w", err))...)
		}
		for _, u := range took {
			u.p.mu.Lock()
			u.p.saved = u.changed
			u.p.mu.Unlock()
			t.board.Clear(report.StateFailed, u.p.subject())
		}
		t.entriesMu.Lock()
		for k, e := range entries {
			t.entries[k] = e
		}
		t.entriesMu.Unlock()
	}
	signal(t.stored)
	return errors.Join(bad...)
}

// unsaved is what a partition has that is not stored yet.
type unsaved struct {
	p       *partition
	changed uint64
	entry   state.Entry
}

func (t *Task) unsaved(p *partition) (u unsaved, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == p.saved || p.position < 0 {
		return u, false, nil
	}
	e := t.entry(p)
	if e.Map, err = copyMap(e.Map); err != nil {
		return u, false, err
	}
	return unsaved{p, p.changed, e}, true, nil
}

// flushSyncs writes the offset syncs that rest on stored positions. Failing is the writer's condition; it holds up
// nothing, since positions are stored already.
func (t *Task) flushSyncs(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.syncs.Flush(c); err != nil && ctx.Err() == nil {
		t.log.Debug("offset syncs wait", slog.Any("error", err))
	}
}

// saveUntil saves, again where it fails, until ctx ends.
func (t *Task) saveUntil(ctx context.Context) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := t.save(ctx)
		if err == nil || !sleep(ctx, pause) {
			return err
		}
		t.log.Debug("last positions not stored, tried again", slog.Any("error", err))
	}
}

// stateResult keeps STATE_FAILED in step: with a refusal of the state topics by the target, at once, and with whatever
// else keeps positions from being stored for longer than stateGrace. Trouble with the connection is the side's, too.
func (t *Task) stateResult(began time.Time, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, state.ErrMayNotWrite) || errors.Is(err, kafka.ErrMayNotWrite) {
		return // we end, or may not write: nothing that the target could help
	}
	since := t.stateTrouble.result(began, err)
	if err == nil {
		t.target.ok("state")
		t.board.Clear(report.StateFailed, report.Flow)
		return
	}
	var refusal *kerr.Error
	refused := errors.As(err, &refusal) && !refusal.Retriable && t.target.cluster.Classify(err) == nil
	if !refused {
		t.target.failed("state", err)
		if time.Since(since) < stateGrace {
			return
		}
	}
	t.board.Set(report.Condition{
		Code: report.StateFailed, Severity: report.Error, Subject: report.Flow,
		Message:  fmt.Sprintf("the topics that hold the positions cannot be used on the target: %s", err),
		Evidence: map[string]any{"topic": mm2.StateTopic(t.cfg.SourceAlias), "error": kafka.Brief(err)},
		Remedy:   "the message has the target's reason (a replication factor above the number of brokers, a create policy); tried again. Copying goes on; after a restart what was copied meanwhile is copied again",
	})
}

// stateGrace is for how long storing positions may fail before it is told for itself.
const stateGrace = 5 * time.Second

// streak is since when something fails.
type streak struct {
	mu    sync.Mutex
	since time.Time
}

// result notes an outcome of what was begun at some time and answers since when all outcomes were failures.
func (s *streak) result(began time.Time, err error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.since = time.Time{}
	} else if s.since.IsZero() {
		s.since = began
	}
	return s.since
}

// errNoMap says that a partition with a position has no offset map, a fault of ours.
var errNoMap = errors.New("there is none")

// mapFailed shows that a partition's position cannot be stored with its map.
func (t *Task) mapFailed(p *partition, err error) {
	t.board.Set(report.Condition{
		Code: report.StateFailed, Severity: report.Error, Subject: p.subject(),
		Message:  fmt.Sprintf("the position of %s cannot be stored, since its offset map cannot be encoded: %s", p, err),
		Evidence: map[string]any{"remote_topic": p.remote},
		Remedy:   "report it with the worker's log; the other partitions are stored, this one is copied again from its last stored position after a restart",
	})
}

// copyMap takes a copy that can be encoded while the original goes on.
func copyMap(m *mm2.OffsetMap) (*mm2.OffsetMap, error) {
	if m == nil {
		return nil, errNoMap
	}
	b, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return mm2.UnmarshalOffsetMap(b, 0)
}

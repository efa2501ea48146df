package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// flushTimeout bounds one flush of the offset syncs within the save loop.
const flushTimeout = 2 * time.Second

// saveLoop stores changed positions until ctx ends: the more often the less it costs, so that what a crash makes us copy
// again is small, and saving takes a twentieth of the time at most. Offset syncs follow each saveInterval.
func (t *Task) saveLoop(ctx context.Context) {
	timer := time.NewTimer(saveSoonest)
	defer timer.Stop()
	var flushed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		// A save under way is not cut off by a clean stop: the client would give up what is written behind it too. A lost
		// lease closes the client.
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminTimeout)
		if err := t.save(c); err != nil && ctx.Err() == nil {
			t.log.Warn("positions not stored, tried again", slog.Any("error", err))
		} else if time.Since(flushed) >= saveInterval {
			t.flushSyncs(ctx)
			flushed = time.Now()
		}
		cancel()
		timer.Reset(min(saveInterval, max(saveSoonest, 20*time.Since(began))))
	}
}

// save stores what changed since it was stored. Positions only ever hold what the target acknowledged (Observer.Passed),
// so a crash before it copies a tail again and loses nothing.
func (t *Task) save(ctx context.Context) error {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	if t.footing.isLost() {
		return nil
	}
	entries := map[state.Key]state.Entry{}
	type taken struct {
		p       *partition
		changed uint64
	}
	var took []taken
	for _, p := range t.parts.all() {
		p.mu.Lock()
		if p.changed != p.saved && p.position >= 0 {
			e := t.entry(p)
			m, err := copyMap(e.Map)
			if err != nil {
				p.mu.Unlock()
				return fmt.Errorf("engine: offset map of %s: %w", p, err)
			}
			e.Map = m
			entries[p.key()] = e
			took = append(took, taken{p, p.changed})
		}
		p.mu.Unlock()
	}
	if len(entries) > 0 {
		err := t.store.Save(ctx, entries)
		t.stateResult(err)
		if err != nil {
			t.m.saveErrors.Inc()
			return fmt.Errorf("store positions: %w", err)
		}
		for _, k := range took {
			k.p.mu.Lock()
			k.p.saved = k.changed
			k.p.mu.Unlock()
		}
		t.entriesMu.Lock()
		for k, e := range entries {
			t.entries[k] = e
		}
		t.entriesMu.Unlock()
	}
	return nil
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

// stateResult keeps STATE_FAILED in step: a refusal of the state topics by the target. Trouble with the connection is the
// side's.
func (t *Task) stateResult(err error) {
	var refusal *kerr.Error
	switch {
	case err == nil:
		t.target.ok("state")
		t.board.Clear(report.StateFailed, report.Flow)
	case errors.As(err, &refusal) && !refusal.Retriable && t.target.cluster.Classify(err) == nil:
		t.board.Set(report.Condition{
			Code: report.StateFailed, Severity: report.Error, Subject: report.Flow,
			Message:  fmt.Sprintf("the topics that hold the positions cannot be used on the target: %s", err),
			Evidence: map[string]any{"topic": mm2.StateTopic(t.cfg.SourceAlias), "error": refusal.Message},
			Remedy:   "the message has the target's reason (a replication factor above the number of brokers, a create policy); tried again",
		})
	default:
		t.target.failed("state", err)
	}
}

// copyMap takes a copy that can be encoded while the original goes on.
func copyMap(m *mm2.OffsetMap) (*mm2.OffsetMap, error) {
	b, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return mm2.UnmarshalOffsetMap(b, 0)
}

// outbox keeps events that nothing waits for until the sink has taken them.
type outbox struct {
	mu     sync.Mutex
	events []report.Event
}

func (o *outbox) add(e report.Event) {
	o.mu.Lock()
	o.events = append(o.events, e)
	o.mu.Unlock()
}

// flush hands over what is there, in order, until the sink refuses.
func (o *outbox) flush(ctx context.Context, sink Sink) error {
	for {
		o.mu.Lock()
		if len(o.events) == 0 {
			o.mu.Unlock()
			return nil
		}
		e := o.events[0]
		o.mu.Unlock()
		if err := sink.Event(ctx, e); err != nil {
			return fmt.Errorf("record event %s: %w", e.Code, err)
		}
		o.mu.Lock()
		o.events = o.events[1:]
		o.mu.Unlock()
	}
}

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// outboxLimit bounds the events that wait for a sink which refuses; more are in the log alone.
	outboxLimit = 10_000
	// eventsAgain is when a refused event is tried again.
	eventsAgain = time.Second
)

// outbox keeps events that nothing waits for until the sink has taken them.
type outbox struct {
	mu     sync.Mutex
	events []report.Event

	turn chan struct{} // held by who hands events over, so that each goes once and in order
	wake chan struct{}
}

func newOutbox() *outbox {
	return &outbox{turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// add keeps an event; false: too many wait already.
func (o *outbox) add(e report.Event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events) >= outboxLimit {
		return false
	}
	o.events = append(o.events, e)
	signal(o.wake)
	return true
}

// flush hands over what is there, in order, until the sink refuses or ctx ends.
func (o *outbox) flush(ctx context.Context, sink Sink) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("record events: %w", ctx.Err())
	}
	defer func() { <-o.turn }()
	for {
		e, ok := o.first()
		if !ok {
			return nil
		}
		if err := sink.Event(ctx, e); err != nil {
			return fmt.Errorf("record event %s: %w", e.Code, err)
		}
		o.mu.Lock()
		o.events = o.events[1:]
		o.mu.Unlock()
	}
}

func (o *outbox) first() (report.Event, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events) == 0 {
		return report.Event{}, false
	}
	return o.events[0], true
}

// tell has an event recorded in its time.
func (t *Task) tell(e report.Event) {
	if !t.outbox.add(e) {
		t.log.Error("event not recorded, too many wait already", slog.String("code", e.Code), slog.String("topic", e.Subject.Topic),
			slog.Int("partition", int(e.Subject.Partition)), slog.String("message", e.Message), slog.Any("evidence", e.Evidence))
	}
}

// eventLoop hands events over until ctx ends. It is apart from the status, which a sink that takes its time for an event
// must not hold up.
func (t *Task) eventLoop(ctx context.Context) {
	for {
		var again <-chan time.Time
		c, cancel := context.WithTimeout(ctx, adminTimeout)
		if err := t.outbox.flush(c, t.cfg.Sink); err != nil && ctx.Err() == nil {
			t.log.Warn("events not recorded, tried again", slog.Any("error", err))
			again = time.After(eventsAgain)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-t.outbox.wake:
		case <-again:
		}
	}
}

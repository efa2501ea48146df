package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// callTimeout bounds a call to the database on behalf of an engine.
const callTimeout = 5 * time.Second

// sink is what a task's engine reports to. Statuses are kept for the next
// batch; events go through at once, since only a stored event is not lost.
type sink struct{ t *task }

var (
	_ engine.Sink   = sink{}
	_ engine.Owners = owners{}
)

// Status implements engine.Sink.
func (k sink) Status(s report.Status) { k.t.observed(toTaskStatus(s, &k.t.translated)) }

// Event implements engine.Sink. It answers nil only after the database has the
// event. At most eventCalls events of all tasks are under way at a time; who
// waits too long gets an error and tries again. An event whose answer got lost
// may thus be stored twice.
func (k sink) Event(ctx context.Context, e report.Event) error {
	event, err := toEvent(e, k.t.s.id, k.t.key)
	if err != nil {
		// Evidence that cannot be encoded must not keep the rest of the event from being stored.
		k.t.log.Error("event evidence kept as text", slog.String("code", e.Code), slog.Any("error", err))
		e.Evidence = map[string]any{"evidence": fmt.Sprint(e.Evidence)}
		if event, err = toEvent(e, k.t.s.id, k.t.key); err != nil {
			return err
		}
	}
	return k.t.record(ctx, event)
}

func (t *task) record(ctx context.Context, e flows.Event) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case t.s.eventCalls <- struct{}{}:
		defer func() { <-t.s.eventCalls }()
	case <-ctx.Done():
		return fmt.Errorf("event %s not stored, too many are waiting: %w", e.Code, context.Cause(ctx))
	}
	if !t.trusted() {
		return ErrLeaseLost
	}
	err := t.s.store.RecordEvents(ctx, t.s.id, t.key, []flows.Event{e})
	return t.answer("record events", err)
}

// answer looks at the error of a call under the lease: a lost lease is acted upon.
func (t *task) answer(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case flows.CodeOf(err) == flows.CodeLeaseLost:
		t.s.verify(t)
		return ErrLeaseLost
	default:
		t.s.m.storeErrors.WithLabelValues(call).Inc()
		return fmt.Errorf("%s: %w", call, err)
	}
}

// owners lets a task's engine claim remote topics.
type owners struct{ t *task }

// Claim implements engine.Owners.
func (o owners) Claim(ctx context.Context, kafkaClusterID string, remoteTopics []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !o.t.trusted() {
		return nil, ErrLeaseLost
	}
	others, err := o.t.s.store.ClaimTopics(ctx, o.t.s.id, o.t.key, kafkaClusterID, remoteTopics)
	if err := o.t.answer("claim topics", err); err != nil {
		return nil, err
	}
	denied := make(map[string]string, len(others))
	for topic, flow := range others {
		if flow == uuid.Nil {
			denied[topic] = engine.OwnerElsewhere
			continue
		}
		denied[topic] = flow.String()
	}
	return denied, nil
}

// Release implements engine.Owners.
func (o owners) Release(ctx context.Context, kafkaClusterID string, remoteTopics []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !o.t.trusted() {
		return ErrLeaseLost
	}
	return o.t.answer("release topics", o.t.s.store.ReleaseTopics(ctx, o.t.s.id, o.t.key, kafkaClusterID, remoteTopics))
}

package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// movePause is the least time between two moves of tasks away from this worker: after a move everybody's loads are
// others, and a move costs its task a short stop.
const movePause = 500 * time.Millisecond

// mover remembers what a worker gave away.
type mover struct {
	task  *task     // on its way out; nil: none
	after time.Time // no other move before
}

// rebalance gives a task to a worker that has fewer, one at a time: it is drained like at a stop, so that the other
// goes on at the very record. Whether and what is the store's to decide; here is decided when to ask.
func (s *Supervisor) rebalance(ctx context.Context) {
	now := time.Now()
	if t := s.moves.task; t != nil {
		select {
		case <-t.ctx.Done(): // released, or lost
			s.moves = mover{after: now.Add(movePause)}
			time.AfterFunc(movePause, func() { signal(s.acquireNow) })
		default:
		}
		return
	}
	if now.Before(s.moves.after) {
		return
	}
	tasks := s.tasks()
	s.mu.Lock()
	alone := s.alive < 2
	s.mu.Unlock()
	if alone || len(tasks) < 2 {
		return
	}
	several := false
	of := map[uuid.UUID]bool{}
	for _, t := range tasks {
		several = several || of[t.key.FlowID]
		of[t.key.FlowID] = true
	}
	// Not cut off by a shutdown: a task that was marked is better drained as such.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ttl/3)
	defer cancel()
	key, err := s.store.MoveTask(ctx, s.id, several)
	if err != nil {
		s.m.storeErrors.WithLabelValues("move task").Inc()
		s.log.Debug("not known whether a task should move", slog.Any("error", err))
		return
	}
	if key == nil {
		return
	}
	s.mu.Lock()
	t := s.held[slot{key.FlowID, key.Task}]
	s.mu.Unlock()
	if t == nil || t.key != *key || t.leaving() {
		return // on its way out anyway
	}
	s.moves.task = t
	s.m.moved.Inc()
	t.log.Info("task moves to a worker with fewer")
	t.drain(ErrTaskMoved, time.Now().Add(s.drainTimeout))
}

// leave tells the database that this worker takes nothing more. Without it the others' shares would count it, and
// tasks could be moved to it, until it is gone.
func (s *Supervisor) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := s.store.Leave(ctx, s.id); err != nil {
		s.log.Debug("others do not know yet that this worker stops", slog.Any("error", err))
	}
}

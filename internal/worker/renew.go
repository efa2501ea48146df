package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
)

const (
	// lastWordsTimeout bounds the storing of ended tasks' last events and statuses. Their leases are released
	// whatever becomes of it.
	lastWordsTimeout = time.Second
	// releaseTimeout bounds the attempts to give leases back.
	releaseTimeout = 3 * time.Second
)

// renewLoop keeps the leases alive, all of them with one statement. It does
// nothing else that could wait, and the end of trust does not depend on it.
func (s *Supervisor) renewLoop(ctx context.Context) {
	var failing failure
	backoff := lifecycle.Backoff{Base: 50 * time.Millisecond, Max: renewEvery(s.ttl)}
	wait := renewEvery(s.ttl)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.renewNow:
			timer.Stop()
		}
		began := time.Now()
		err := s.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		failing.note(s.log, "renew tasks", err)
		if err != nil {
			wait = backoff.Next()
			continue
		}
		backoff.Reset()
		wait = max(0, renewEvery(s.ttl)-time.Since(began))
	}
}

// renew renews everything once. Without leases it is called all the same: it
// tells the database that this process works under no lease of its name.
func (s *Supervisor) renew(ctx context.Context) error {
	now := time.Now()
	timeout := s.ttl / 3
	var held []*task
	var keys []flows.LeaseKey
	for _, t := range s.tasks() {
		if tm, ok := t.held(); ok {
			held = append(held, t)
			keys = append(keys, t.key)
			timeout = min(timeout, tm.attemptTimeout(now))
		}
	}
	tm := term{attempt: time.Now(), ttl: s.ttl}
	cctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	renewed, err := s.store.RenewTasks(cctx, s.id, s.ttl, keys)
	took := time.Since(tm.attempt).Seconds()
	if err != nil {
		s.m.renewals.WithLabelValues("error").Observe(took)
		return err
	}
	s.m.renewals.WithLabelValues("ok").Observe(took)
	byKey := make(map[flows.LeaseKey]flows.RenewedLease, len(renewed))
	for _, r := range renewed {
		byKey[r.LeaseKey] = r
	}
	for _, t := range held {
		r, ok := byKey[t.key]
		if !ok {
			s.verify(t)
			continue
		}
		t.extend(tm)
		spec := t.currentSpec()
		switch {
		case !r.Enabled && r.TasksMax == spec.Flow.TasksMax:
			t.drain(ErrFlowDisabled, time.Now().Add(drainOnPoll))
		case r.TasksMax != spec.Flow.TasksMax:
			t.drain(ErrTasksChanged, time.Now().Add(drainOnPoll))
		case r.FlowRevision != spec.Flow.Revision, r.SourceCredentialsRevision != spec.Source.CredentialsRevision,
			r.TargetCredentialsRevision != spec.Target.CredentialsRevision:
			s.look(t.key.FlowID, drainOnPoll)
		}
	}
	return nil
}

// verify follows up a lease that the database no longer knows as ours. If its
// flow is deleted nobody comes after us, and a clean drain leaves positions on
// the target that are right to the record; otherwise the task ends at once.
func (s *Supervisor) verify(t *task) {
	t.mu.Lock()
	known := t.verifying || t.order.final() || t.phase == phaseLost || t.phase == phaseReleasing
	t.verifying = true
	t.mu.Unlock()
	if known {
		return
	}
	s.asks.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, verifyTimeout)
		defer cancel()
		_, err := s.store.GetFlowSpec(ctx, t.key.FlowID)
		if flows.CodeOf(err) == flows.CodeNotFound {
			t.drain(ErrFlowDisabled, time.Now().Add(drainOnPoll))
			return
		}
		t.lose("taken")
	})
}

// releaseLoop gives back the leases of tasks whose engines have returned.
func (s *Supervisor) releaseLoop(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.releaseNow:
		}
		s.mu.Lock()
		ended := s.ended
		s.ended = nil
		s.mu.Unlock()
		if len(ended) > 0 {
			work.Go(func() { s.release(ctx, ended) })
		}
	}
}

// release stores the last events and statuses, gives the leases back and forgets the tasks.
func (s *Supervisor) release(ctx context.Context, ended []*task) {
	var mine []*task
	var keys []flows.LeaseKey
	for _, t := range ended {
		if t.trusted() {
			mine = append(mine, t)
			keys = append(keys, t.key)
		}
	}
	released := false
	if len(mine) > 0 {
		s.lastWords(ctx, mine)
		for _, t := range mine {
			t.setPhase(phaseRunning, phaseReleasing)
			t.setPhase(phaseDraining, phaseReleasing)
		}
		released = s.giveBack(ctx, keys)
	}
	s.mu.Lock()
	for _, t := range ended {
		if k := (slot{t.key.FlowID, t.key.Task}); s.held[k] == t {
			delete(s.held, k)
		}
	}
	s.mu.Unlock()
	for _, t := range ended {
		t.close()
	}
	if released {
		for _, t := range mine {
			t.log.Info("lease released")
		}
	}
}

// lastWords stores what ended tasks still have to say.
func (s *Supervisor) lastWords(ctx context.Context, ended []*task) {
	ctx, cancel := context.WithTimeout(ctx, lastWordsTimeout)
	defer cancel()
	for _, t := range ended {
		awaitGroup(ctx, &t.events)
	}
	if err := s.reportTasks(ctx, ended, 0); err != nil {
		s.log.Warn("last statuses not stored", slog.Any("error", err))
	}
}

// giveBack releases leases, again and again for a while, and tells whether that succeeded.
func (s *Supervisor) giveBack(ctx context.Context, keys []flows.LeaseKey) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	backoff := lifecycle.Backoff{Base: 50 * time.Millisecond, Max: time.Second}
	for {
		err := s.store.ReleaseTasks(ctx, s.id, keys)
		if err == nil {
			s.m.ended.WithLabelValues("released").Add(float64(len(keys)))
			return true
		}
		s.m.storeErrors.WithLabelValues("release tasks").Inc()
		if backoff.Wait(ctx) != nil {
			// Left out of the renewals from here on, they become free after a TTL.
			s.m.ended.WithLabelValues("not released").Add(float64(len(keys)))
			s.log.Warn("leases not released, they run out by themselves", slog.Int("leases", len(keys)), slog.Any("error", err))
			return false
		}
	}
}

// close frees what belongs to the lease, after its end.
func (t *task) close() {
	t.mu.Lock()
	t.phase = phaseLost
	t.timer.Stop()
	t.mu.Unlock()
	t.cancel(nil)
}

// awaitGroup waits for a group until ctx ends.
func awaitGroup(ctx context.Context, g *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

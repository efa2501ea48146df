package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// phase is what happens under a lease.
type phase string

const (
	phaseRunning   phase = "running"
	phaseDraining  phase = "draining"
	phaseReleasing phase = "releasing" // the engine has returned
	phaseLost      phase = "lost"
)

// order tells a task to drain: for good (ErrFlowDisabled, ErrTasksChanged,
// ErrTaskMoved, ErrShutdown) or to start again (ErrFlowChanged).
type order struct {
	reason error
	by     time.Time // the engine is cut off then
}

func (o order) final() bool { return o.reason != nil && !errors.Is(o.reason, ErrFlowChanged) }

// task is one term of one lease in this process.
//
// Its context ends the instant trust ends, by a timer of its own that waits for
// nobody. The goroutine in run (engine.go) starts and stops engines; everybody
// else talks to it through the members below the mutex and wake.
type task struct {
	s    *Supervisor
	key  flows.LeaseKey
	log  *slog.Logger
	prev *task // an earlier term of the same task whose engine has not returned yet; nil: none

	ctx    context.Context //nolint:containedctx // the lease's life is what this type is about
	cancel context.CancelCauseFunc
	wake   chan struct{}  // buffered by one: there is an order
	done   chan struct{}  // nothing works under the lease any more
	events sync.WaitGroup // events of the worker itself that are being stored

	translated translated

	mu        sync.Mutex
	term      term
	timer     *time.Timer
	phase     phase
	verifying bool
	spec      flows.FlowSpec // the newest known
	order     order
	// What runs, what it works by, and its credentials; nil while nothing does.
	runner         Runner
	started        flows.FlowSpec
	source, target *share
	// redact knows the secrets of the engine made last: what it answers may quote brokers, which may echo.
	redact kafka.Redactor

	status     flows.TaskStatus // without own conditions
	own        []flows.Condition
	dirty      bool
	reported   flows.TaskStatus
	reportedAt time.Time
}

func newTask(s *Supervisor, lease flows.TaskLease, tm term) *task {
	ctx, cancel := context.WithCancelCause(context.Background())
	now := time.Now()
	t := &task{
		s: s, key: lease.LeaseKey, ctx: ctx, cancel: cancel, term: tm, phase: phaseRunning, spec: lease.Spec,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		log: s.log.With(
			slog.String("flow_id", lease.FlowID.String()), slog.Int("task", lease.Task), slog.Int64("lease_epoch", lease.Epoch)),
		status: flows.TaskStatus{State: flows.StateStarting, Since: now, ObservedAt: now},
		dirty:  true,
	}
	s.trust.extend(tm)
	t.timer = time.AfterFunc(tm.left(now), t.trustOver)
	return t
}

// trustOver runs when the timer of the last known term fires.
func (t *task) trustOver() {
	t.mu.Lock()
	left := t.term.left(time.Now())
	if left > 0 { // renewed meanwhile
		t.timer.Reset(left)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.lose("trust over")
	if !t.s.trust.holds() {
		// What brokers have not read yet, they need not.
		t.s.hub.Abort()
	}
}

// lose ends everything under the lease at once.
func (t *task) lose(reason string) {
	t.mu.Lock()
	if t.phase == phaseLost || t.phase == phaseReleasing {
		t.mu.Unlock()
		return
	}
	t.phase = phaseLost
	t.dirty = false
	t.timer.Stop()
	t.mu.Unlock()
	t.cancel(ErrLeaseLost)
	t.s.m.ended.WithLabelValues(reason).Inc()
	t.log.Warn("lease lost, task stopped", slog.String("reason", reason))
}

// extend takes over a term that an attempt to renew has won.
func (t *task) extend(tm term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == phaseLost {
		return
	}
	t.term = t.term.later(tm)
	t.s.trust.extend(tm)
	t.timer.Reset(t.term.left(time.Now()))
}

// trusted tells whether the lease may be used to write. It looks at the clock
// itself: after a stall of the whole process the timer may not have fired yet.
func (t *task) trusted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase != phaseLost && t.term.trusted(time.Now())
}

// held tells whether the lease is to be renewed, and its term.
func (t *task) held() (term, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term, t.phase != phaseLost
}

func (t *task) currentSpec() flows.FlowSpec {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spec
}

// drain orders the engine to finish by the given time. A final order is never
// replaced by one that is not.
func (t *task) drain(reason error, by time.Time) {
	t.mu.Lock()
	t.drainLocked(order{reason, by})
	t.mu.Unlock()
}

func (t *task) drainLocked(o order) {
	switch {
	case t.order.final() && !o.final():
		return
	case t.order.final() && t.order.by.Before(o.by):
		return
	}
	t.order = o
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// takeOrder answers the order given. A final one stays in force.
func (t *task) takeOrder() order {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.order
	if !o.final() {
		t.order = order{}
	}
	return o
}

// leaving tells whether the task was ordered to end for good.
func (t *task) leaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.order.final()
}

// offer hands over a specification just read. What it changes takes effect by
// the given time: new credentials and another rate in place, anything else by a drain.
func (t *task) offer(spec flows.FlowSpec, by time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == phaseLost || stale(t.spec, spec) {
		return
	}
	old := t.spec
	sameTasks := spec.Flow.TasksMax == old.Flow.TasksMax
	if sameTasks {
		t.spec = spec
	} // else an engine that is about to start would work by the new number while others work by the old one
	switch {
	case !spec.Flow.Enabled:
		t.drainLocked(order{ErrFlowDisabled, by})
		return
	case !sameTasks:
		t.drainLocked(order{ErrTasksChanged, by})
		return
	}
	if !news(old, spec) {
		return
	}
	if !t.followLocked(old, spec) {
		t.drainLocked(order{ErrFlowChanged, by})
	}
}

// followLocked has the engine go on with next, given its credentials and its rate, and tells whether it can.
func (t *task) followLocked(old, next flows.FlowSpec) bool {
	if t.runner == nil || !canFollow(t.started, next) {
		return false
	}
	if old.Source.CredentialsRevision != next.Source.CredentialsRevision || old.Target.CredentialsRevision != next.Target.CredentialsRevision {
		s, err := openBoth(t.s.opener, next)
		switch {
		case err != nil:
			t.setOwnLocked(secretsUnreadable(err, flows.SeverityWarning, time.Now()))
			t.log.Error("new credentials cannot be opened, the old ones stay in use", slog.Any("error", err))
		case t.source.Get().NeedsNewClient(s.source) || t.target.Get().NeedsNewClient(s.target):
			return false
		default:
			t.source.set(s.source, next.Source.CredentialsRevision)
			t.target.set(s.target, next.Target.CredentialsRevision)
			t.setOwnLocked()
			t.log.Info("credentials replaced")
		}
	}
	if rate := next.Flow.RateOfTask(t.key.Task); rate != old.Flow.RateOfTask(t.key.Task) {
		t.runner.SetMaxBytesPerSecond(rate)
		t.log.Info("rate changed", slog.Int64("bytes_per_second", rate))
	}
	aliases := t.started.KnownAliases // these it was not given anew
	t.started = next
	t.started.KnownAliases = aliases
	return true
}

// observed takes over a status of the engine.
func (t *task) observed(st flows.TaskStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st.State == flows.StateStopped && !errors.Is(t.order.reason, ErrFlowDisabled) {
		// The engine stops to start again, here or elsewhere: the flow is not stopped.
		st.State = flows.StateStarting
	}
	if st.State != flows.StateStarting && len(t.own) > 0 && t.own[0].Code == codeTaskFault {
		t.setOwnLocked() // it works again, or knows by itself what is wrong
	}
	t.setStatusLocked(st)
}

func (t *task) setStatusLocked(st flows.TaskStatus) {
	if t.phase == phaseLost {
		return
	}
	urgent := !sameHealth(t.status, st)
	t.status = st
	t.dirty = true
	if urgent {
		signal(t.s.reportNow)
	}
}

// setOwnLocked replaces the conditions that the worker itself adds.
func (t *task) setOwnLocked(cs ...flows.Condition) {
	if len(cs) == 0 && len(t.own) == 0 || t.phase == phaseLost {
		return
	}
	t.own = cs
	t.dirty = true
	signal(t.s.reportNow)
}

// failed reports that nothing moves and why; what was observed stays.
func (t *task) failed(c flows.Condition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	st := t.status
	if st.State != flows.StateFailed {
		st.State, st.Since = flows.StateFailed, now
	}
	st.ObservedAt = now
	st.Conditions = nil
	t.setOwnLocked(c)
	t.setStatusLocked(st)
}

// since answers how long the worker's own condition has been set; now when it is not.
func (t *task) since(code string, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.own {
		if c.Code == code {
			return c.Since
		}
	}
	return now
}

// report answers the status to be stored, if there is anything to store: it
// changed, or was stored longer than refresh ago.
func (t *task) report(now time.Time, refresh time.Duration) (flows.TaskReport, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty || t.phase == phaseLost || !t.term.trusted(now) {
		return flows.TaskReport{}, false
	}
	st := t.status
	st.Conditions = append(append([]flows.Condition(nil), t.own...), st.Conditions...)
	same := !t.reportedAt.IsZero() && sameStatus(st, t.reported)
	if same && now.Sub(t.reportedAt) < refresh {
		return flows.TaskReport{}, false
	}
	t.dirty = false
	t.reported, t.reportedAt = st, now
	return flows.TaskReport{LeaseKey: t.key, Status: st, Unchanged: same}, true
}

// unreported marks a status as not stored.
func (t *task) unreported() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty, t.reportedAt = true, time.Time{}
}

// signal wakes whoever waits at a channel that is buffered by one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

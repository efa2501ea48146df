package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
)

// Runner is one run of an engine; *engine.Task is one.
type Runner interface {
	// Run works until ctx ends or Drain was called. See engine.Task.
	Run(ctx context.Context) error
	// Drain finishes what is under way, until ctx ends at most; Run returns then.
	Drain(ctx context.Context) error
	// SetMaxBytesPerSecond changes the limit at once; 0: none. It may be called before Run, too. It must not call its
	// sink: the task's lock is held.
	SetMaxBytesPerSecond(n int64)
}

// Condition codes of the worker itself (docs/conditions.md).
const (
	codeSecretsUnreadable = "SECRETS_UNREADABLE"
	codeTaskFault         = "TASK_FAULT"
)

const (
	// drainGrace is what an engine may take to return after its drain's time is over: half a second to store what was
	// acknowledged (engine.ErrDrainOverdue), and a little to return.
	drainGrace = 600 * time.Millisecond
	// stuckAfter is when an engine that was told to stop at once is reported as stuck.
	stuckAfter = 5 * time.Second
	// calmAfter is how long an engine must have run for its next fault to be the first again.
	calmAfter = time.Minute
)

// errReturned is the fault of an engine that returned without being asked to.
var errReturned = errors.New("the engine returned without being asked to")

// run starts engines until the lease is lost or a final order came.
func (t *task) run() {
	defer close(t.done)
	if !t.awaitPrevious() {
		return
	}
	backoff := lifecycle.Backoff{Base: time.Second, Max: 30 * time.Second}
	for reason := "acquired"; ; {
		began := time.Now()
		err := t.runEngine(reason)
		var unreadable *unreadableError
		switch {
		case t.ctx.Err() != nil || t.leaving():
			return
		case errors.Is(err, ErrFlowChanged):
			reason = "changed"
			backoff.Reset()
			continue
		case errors.As(err, &unreadable):
			// Only another specification or other keys can help; the first comes as an order,
			// the second with a restart of the process.
			t.log.Error("secrets cannot be opened", slog.Any("error", err))
			t.failed(secretsUnreadable(unreadable.err, flows.SeverityError, t.since(codeSecretsUnreadable, began)))
			if t.pause(0).final() {
				return
			}
			reason = "changed"
			continue
		}
		if time.Since(began) > calmAfter {
			backoff.Reset()
		}
		wait := backoff.Next()
		t.fault(err, wait)
		if t.pause(wait).final() {
			return
		}
		reason = "fault"
	}
}

// awaitPrevious waits for the engine of an earlier term: two engines of one
// task never run at a time in this process.
func (t *task) awaitPrevious() bool {
	if t.prev == nil {
		return true
	}
	for {
		select {
		case <-t.prev.done:
			t.prev = nil
			return true
		case <-t.ctx.Done():
			return false
		case <-t.wake:
			if t.takeOrder().final() {
				return false
			}
		}
	}
}

// pause waits, forever when d is 0, until there is an order or the lease is lost.
func (t *task) pause(d time.Duration) order {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return order{}
	case <-t.wake:
		return t.takeOrder()
	case <-t.ctx.Done():
		return order{reason: context.Cause(t.ctx)}
	}
}

// fault reports an engine's fault and records it.
func (t *task) fault(err error, wait time.Duration) {
	now := time.Now()
	text := err.Error()
	var p *panicError
	if errors.As(err, &p) {
		t.redactor().Logger(t.log).Error("engine panicked", slog.Any("panic", p.value), slog.String("stack", string(p.stack)))
		text = "the engine panicked; the worker's log has the stack" // the value may be anything
	} else {
		t.log.Error("engine failed", slog.Any("error", err), slog.Duration("restart_in", wait))
	}
	c := flows.Condition{
		Code: codeTaskFault, Severity: flows.SeverityError, Since: t.since(codeTaskFault, now),
		Message:  fmt.Sprintf("The task stopped with a fault and is started again: %s.", text),
		Evidence: map[string]any{"restartInMs": wait.Milliseconds()},
		Remedy:   "If it does not go by itself, report it with the worker's log.",
	}
	t.failed(c)
	event, err := toEvent(report.Event{
		At: now, Code: codeTaskFault, Subject: report.Flow, Message: c.Message, Evidence: c.Evidence,
	}, t.s.id, t.key)
	if err != nil {
		t.log.Error("event not made", slog.Any("error", err))
		return
	}
	// Tried until it is stored or the lease ends, beside the restart.
	t.events.Go(func() {
		var b lifecycle.Backoff
		for t.ctx.Err() == nil && t.record(t.ctx, event) != nil {
			if b.Wait(t.ctx) != nil {
				return
			}
		}
	})
}

// redactor knows the secrets of the engine made last.
func (t *task) redactor() kafka.Redactor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.redact
}

// unreadableError says that a specification's secrets cannot be opened.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

func secretsUnreadable(err error, severity flows.Severity, since time.Time) flows.Condition {
	return flows.Condition{
		Code: codeSecretsUnreadable, Severity: severity, Since: since,
		Message: "The credentials of a cluster cannot be read by this worker: " + err.Error() + ".",
		Remedy:  "Give the worker the private key that is named and restart it, or PUT the service with its credentials again.",
	}
}

// panicError is a panic of an engine.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// contained calls f and turns a panic into an error.
func contained(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// start makes an engine for the newest specification.
func (t *task) start() (Runner, error) {
	t.mu.Lock()
	t.order = keepFinal(t.order) // the newest specification is what is about to start
	spec := t.spec
	t.mu.Unlock()
	s, err := openBoth(t.s.opener, spec)
	if err != nil {
		return nil, &unreadableError{err}
	}
	cfg := toEngineConfig(spec, s)
	cfg.Identity = engine.Identity{
		FlowID: t.key.FlowID.String(), Task: t.key.Task, Tasks: spec.Flow.TasksMax, Worker: t.s.id, LeaseEpoch: t.key.Epoch,
	}
	cfg.PassThrough = t.s.passThrough
	cfg.Logger, cfg.Registry, cfg.Sink, cfg.Owners = t.s.log, t.s.registry, sink{t}, owners{t}
	cfg.MayWrite = t.trusted
	cfg.MaxBytesPerSecond = spec.Flow.RateOfTask(t.key.Task)
	cfg.Source.Metrics, cfg.Target.Metrics = t.s.kafka, t.s.kafka
	source, target := t.s.shares.take(spec.Source, s.source), t.s.shares.take(spec.Target, s.target)
	cfg.Hub = t.s.hub
	cfg.Source.Credentials, cfg.Source.Key = source.Credentials, source.key
	cfg.Target.Credentials, cfg.Target.Key = target.Credentials, target.key
	redact := kafka.Redactor{cfg.Source.Credentials, cfg.Target.Credentials}
	t.mu.Lock()
	t.redact = redact
	t.mu.Unlock()
	var r Runner
	err = contained(func() (err error) {
		r, err = t.s.newRunner(cfg)
		return err
	})
	if err != nil {
		source.leave()
		target.leave()
		return nil, redact.Error(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runner, t.started, t.source, t.target = r, spec, source, target
	if t.order.final() {
		return r, nil
	}
	// What was offered while the engine was made could not be given to it.
	o := t.order
	t.order = order{}
	if news(spec, t.spec) && !t.followLocked(spec, t.spec) {
		if o.reason == nil {
			o = order{ErrFlowChanged, time.Now().Add(drainOnPoll)}
		}
		t.drainLocked(o)
	}
	return r, nil
}

func keepFinal(o order) order {
	if o.final() {
		return o
	}
	return order{}
}

// runEngine runs one engine to its end. It answers the reason of the order that
// ended it, or the engine's fault.
func (t *task) runEngine(reason string) error {
	if o := t.takeOrder(); o.final() {
		return o.reason
	}
	r, err := t.start()
	if err != nil {
		return err
	}
	defer func() {
		t.mu.Lock()
		source, target := t.source, t.target
		t.runner, t.started, t.source, t.target = nil, flows.FlowSpec{}, nil, nil
		t.mu.Unlock()
		source.leave()
		target.leave()
	}()
	t.s.m.restarts.WithLabelValues(reason).Inc()
	if reason != "fault" { // a fault's condition stays until the new engine has observed something
		t.mu.Lock()
		t.setOwnLocked()
		t.mu.Unlock()
	}
	t.log.Info("task started", slog.String("reason", reason), slog.String("source", t.currentSpec().Source.Alias),
		slog.String("target", t.currentSpec().Target.Alias))

	ctx, cutOff := context.WithCancelCause(t.ctx)
	defer cutOff(nil)
	ended := make(chan error, 1)
	redact := t.redactor()
	go func() { ended <- redact.Error(contained(func() error { return r.Run(ctx) })) }()
	for {
		select {
		case err := <-ended:
			if err == nil {
				err = errReturned
			}
			return err
		case <-t.ctx.Done():
			return t.await(ended)
		case <-t.wake:
			o := t.takeOrder()
			if o.reason == nil {
				continue
			}
			t.drainEngine(r, o, cutOff, ended)
			return o.reason
		}
	}
}

// drainEngine lets the engine finish by the order's time, then has it store what
// was acknowledged and stop, then cuts it off. It returns when the engine has.
// The lease may be lost all the while: the engine's context is the lease's.
func (t *task) drainEngine(r Runner, o order, cutOff context.CancelCauseFunc, ended chan error) {
	began := time.Now()
	t.setPhase(phaseRunning, phaseDraining)
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	go func() {
		// What it answers comes out of Run as well.
		_ = contained(func() error { return r.Drain(ctx) })
	}()
	deadline := time.NewTimer(time.Until(o.by))
	defer deadline.Stop()
	var overdue <-chan time.Time
	clean := true
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-ended:
			waiting = false
		case <-t.wake: // while it drains for one reason, a more urgent one may come
			if next := t.takeOrder(); next.final() && next.by.Before(o.by) {
				deadline.Reset(time.Until(next.by))
			}
		case <-deadline.C:
			cancel(engine.ErrDrainOverdue)
			timer := time.NewTimer(drainGrace)
			defer timer.Stop()
			overdue = timer.C
		case <-overdue:
			clean, waiting = false, false
			cutOff(errOverdue)
			err = t.await(ended)
		case <-t.ctx.Done():
			clean, waiting = false, false
			err = t.await(ended)
		}
	}
	log := t.log.With(slog.String("reason", o.reason.Error()), slog.Duration("took", time.Since(began)))
	if clean && err == nil {
		log.Info("task drained")
	} else {
		log.Warn("task stopped before it was drained, records may be copied twice", slog.Any("error", err))
	}
	if !o.final() {
		t.setPhase(phaseDraining, phaseRunning)
	}
}

// await waits for an engine that was told to stop at once. Nothing else can be
// done under this lease before it has returned, so there is no bound; one that
// takes long is a fault that operators must hear of.
func (t *task) await(ended <-chan error) error {
	stuck := time.NewTicker(stuckAfter)
	defer stuck.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-stuck.C:
			t.log.Error("engine does not stop, restart this worker if it never does", slog.Duration("after", stuckAfter))
		}
	}
}

func (t *task) setPhase(from, to phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == from {
		t.phase = to
	}
}

// newEngine makes real engines; it is what Config.NewRunner is when not set.
func newEngine(cfg engine.Config) (Runner, error) { return engine.New(cfg) }

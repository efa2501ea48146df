package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// ErrLeaseLost is the cancellation cause of Run's context that says: somebody else owns the task now. Run then stops
// producing at once and stores nothing. With any other cause it stops cleanly.
var ErrLeaseLost = errors.New("engine: lease lost")

// ErrDrainOverdue is the cancellation cause, of Drain's context or of Run's, that says: the task is still ours, and there
// is no time left for a clean stop. Producing stops at once, what was acknowledged until then is stored if that goes
// within half a second, and Run ends with an error that wraps it.
var ErrDrainOverdue = errors.New("engine: drain overdue")

// DrainTimeout bounds the clean stop that the end of Run's context begins; Drain takes its caller's.
const DrainTimeout = 10 * time.Second

const (
	// lastSaveTimeout bounds the storing of positions after a drain that failed, overdueSaveTimeout after one that is
	// overdue.
	lastSaveTimeout    = 2 * time.Second
	overdueSaveTimeout = 500 * time.Millisecond
	// wreckTimeout is how long a task that had a panic is waited for: a lock may be held for ever.
	wreckTimeout = 5 * time.Second
)

// running is one Run of a task: its goroutines, and what ends them. spawn is the only way to start one.
type running struct {
	t *Task
	// loops ends with the beginning of a stop, copying when nothing more may be produced, work at the very end, or at once
	// with the lease.
	work, copying, loops   context.Context
	end                    context.CancelCauseFunc
	stopCopying, stopLoops context.CancelFunc

	looping, always sync.WaitGroup // looping ends with loops, always with work or copying
	fault           chan error     // the first fault
	panicked        atomic.Bool

	mu     sync.Mutex
	copied chan struct{} // closed when the path ended; nil: it never ran
}

func (t *Task) newRunning(ctx context.Context) *running {
	r := &running{t: t, fault: make(chan error, 1)}
	r.work, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.copying, r.stopCopying = context.WithCancel(r.work)
	r.loops, r.stopLoops = context.WithCancel(r.work)
	return r
}

// Run works until ctx ends or Drain was called. Trouble with the clusters is never an error: it is reported, and tried
// again for ever. When ctx ends with the cause ErrLeaseLost, Run abandons everything at once, stores nothing and answers
// ErrLeaseLost; with ErrDrainOverdue see there; with another cause it stops cleanly, within DrainTimeout, and answers
// nil, or what kept the stop from being clean (records on the target may be copied again then). Other errors are faults
// of ours, panics among them (report.PanicError).
func (t *Task) Run(ctx context.Context) error {
	defer close(t.done)
	defer t.close()
	r := t.newRunning(ctx)
	defer r.end(nil)
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrLeaseLost) {
			r.end(ErrLeaseLost)
		}
	})()
	r.start()
	select {
	case err := <-r.fault:
		r.finish(err)
		return err
	case req := <-t.drainReq:
		dctx, abandon := context.WithCancelCause(req.ctx)
		defer abandon(nil)
		defer context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); urgent(cause) {
				abandon(cause)
			}
		})()
		err := r.drain(dctx)
		req.done <- err
		return err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		if errors.Is(cause, ErrLeaseLost) {
			r.finish(cause)
			return ErrLeaseLost
		}
		dctx, stop := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
		defer stop()
		dctx, abandon := context.WithCancelCause(dctx)
		defer abandon(nil)
		if urgent(cause) {
			abandon(cause)
		}
		return r.drain(dctx)
	}
}

// urgent tells whether a cause leaves no time for a clean stop.
func urgent(cause error) bool {
	return errors.Is(cause, ErrLeaseLost) || errors.Is(cause, ErrDrainOverdue)
}

// spawn runs a part of the task. Its error, or its panic, is the task's fault.
func (r *running) spawn(wg *sync.WaitGroup, where string, f func() error) {
	wg.Go(func() {
		if err := r.contained(where, f); err != nil {
			select {
			case r.fault <- err:
			default: // the first one counts
			}
		}
	})
}

// contained calls f; a panic is logged here, and then an error like others.
func (r *running) contained(where string, f func() error) error {
	err := report.Contained(where, f)
	var p *report.PanicError
	if errors.As(err, &p) {
		r.panicked.Store(true)
		r.t.log.Error("panic in a part of the task", slog.String("part", p.Where), slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	}
	return err
}

// loop makes a part of a function that ends with its context and has no errors.
func loop(ctx context.Context, f func(context.Context)) func() error {
	return func() error {
		f(ctx)
		return nil
	}
}

// unlessOver is err unless ctx has ended, which is a part's reason to end and no fault.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// start starts what runs always, and prepares the rest aside.
func (r *running) start() {
	t := r.t
	r.spawn(&r.always, "source watch", loop(r.work, t.source.watch))
	r.spawn(&r.always, "target watch", loop(r.work, t.target.watch))
	r.spawn(&r.always, "status", loop(r.work, t.statusLoop))
	r.spawn(&r.always, "events", loop(r.work, t.eventLoop))
	r.spawn(&r.looping, "refresh", func() error {
		prepared := t.prepare(r.loops)
		if t.syncs != nil {
			r.spawn(&r.always, "offset syncs", func() error {
				t.first.await(r.work)
				return unlessOver(r.work, wrap("engine: offset syncs", t.syncs.Run(r.work)))
			})
		}
		if prepared != nil {
			t.first.open()
			return unlessOver(r.loops, prepared)
		}
		r.startPath()
		r.spawn(&r.looping, "positions", loop(r.loops, func(ctx context.Context) { t.saveLoop(ctx, r.work) }))
		r.spawn(&r.looping, "flushing offset syncs", loop(r.loops, t.flushLoop))
		r.spawn(&r.looping, "offsets", loop(r.loops, t.boundsLoop))
		r.spawn(&r.looping, "transactions", loop(r.loops, t.transactionsLoop))
		for _, beside := range t.beside {
			r.spawn(&r.looping, fmt.Sprintf("%T", beside), func() error {
				t.first.await(r.loops)
				return unlessOver(r.loops, t.runBeside(r.loops, beside))
			})
		}
		t.refreshLoop(r.loops)
		return nil
	})
}

func (r *running) startPath() {
	copied := make(chan struct{})
	r.mu.Lock()
	r.copied = copied
	r.mu.Unlock()
	r.spawn(&r.always, "data path", func() error {
		defer close(copied)
		return unlessOver(r.copying, wrap("engine: data path", r.t.path.Run(r.copying)))
	})
}

// finish ends what is left. Whoever waits for a cluster does so under a context that ends here: the connections are others'
// too, and stay.
func (r *running) finish(cause error) {
	r.end(cause)
	ended := make(chan struct{})
	go func() {
		r.looping.Wait()
		r.always.Wait()
		close(ended)
	}()
	r.await(ended)
}

// await waits for the end of a part; not for ever when there was a panic.
func (r *running) await(ended <-chan struct{}) {
	if !r.panicked.Load() {
		<-ended
		return
	}
	limit := time.NewTimer(wreckTimeout)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		r.t.log.Error("parts of a task that had a panic do not end; they hold memory until this worker is restarted")
	}
}

// drain stops as cleanly as ctx allows and ends everything.
func (r *running) drain(ctx context.Context) error {
	r.stopLoops()
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		done <- r.contained("drain", func() error { return r.orderly(ctx) })
	}()
	err, ended := within(ctx, done)
	r.finish(nil)
	if !ended {
		r.await(over)
		select {
		case late := <-done:
			err = errors.Join(err, late)
		default:
		}
	}
	if err == nil {
		r.t.cfg.Sink.Status(r.t.status(time.Now(), report.Stopped))
	}
	return err
}

// orderly is the clean stop, in this order: what loops has ended, so that nothing is assigned; acknowledgements, since
// only they may be stored; positions; groups last, since they translate by what was stored.
func (r *running) orderly(ctx context.Context) error {
	t := r.t
	looped := make(chan struct{})
	go func() {
		r.looping.Wait()
		close(looped)
	}()
	select {
	case <-looped:
	case <-ctx.Done():
		return r.giveUp(ctx, ctx.Err())
	}
	if t.path == nil {
		return nil
	}
	if err := t.path.Drain(ctx); err != nil {
		return r.giveUp(ctx, err)
	}
	if err := t.saveUntil(ctx); err != nil {
		return r.giveUp(ctx, err)
	}
	if t.footing.isLost() {
		return t.outbox.flush(ctx, t.cfg.Sink)
	}
	t.flushSyncs(ctx)
	for _, beside := range t.beside {
		if f, ok := beside.(finisher); ok {
			if err := f.Finish(ctx); err != nil {
				t.log.Warn("last group sync failed", slog.Any("error", err))
			}
		}
	}
	return t.outbox.flush(ctx, t.cfg.Sink)
}

// giveUp ends a stop that cannot be clean. What was acknowledged until now is stored all the same, if that goes quickly:
// it makes the tail that is copied twice shorter. Nothing is produced any more by then, or the tail would grow.
func (r *running) giveUp(ctx context.Context, err error) error {
	cause, limit := context.Cause(ctx), lastSaveTimeout
	switch {
	case errors.Is(cause, ErrLeaseLost):
		return ErrLeaseLost
	case errors.Is(cause, ErrDrainOverdue):
		limit = overdueSaveTimeout
		err = errors.Join(cause, err)
	}
	c, cancel := context.WithTimeout(r.work, limit)
	defer cancel()
	r.stopCopying()
	r.mu.Lock()
	copied := r.copied
	r.mu.Unlock()
	if copied != nil {
		select {
		case <-copied:
		case <-c.Done():
		}
	}
	return errors.Join(fmt.Errorf("engine: drain: %w", err), r.t.save(c))
}

// within waits for done until ctx ends, and a little longer, for the one who works to notice that by himself. ended is
// false when nothing came.
func within(ctx context.Context, done <-chan error) (err error, ended bool) {
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	wait := 2 * lastSaveTimeout
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrLeaseLost):
		return ErrLeaseLost, false
	case errors.Is(cause, ErrDrainOverdue):
		wait = overdueSaveTimeout + 100*time.Millisecond
	}
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case err := <-done:
		return err, true
	case <-grace.C:
		return fmt.Errorf("engine: drain: %w", context.Cause(ctx)), false
	}
}

// Drain stops cleanly: nothing new is fetched, what is in flight is acknowledged, positions are stored, groups are
// synced once more, then Run returns. After a Drain that answers nil the next run copies nothing twice. It waits until
// ctx ends at most; Run then returns all the same, with the error.
func (t *Task) Drain(ctx context.Context) error {
	req := drainRequest{ctx: ctx, done: make(chan error, 1)}
	select {
	case t.drainReq <- req:
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-req.done:
		return err
	case <-t.done:
		select {
		case err := <-req.done:
			return err
		default:
			return nil
		}
	}
}

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// ErrShutdown is the cause of a context that a signal cancelled.
var ErrShutdown = errors.New("the process is shutting down")

// Notify answers a context that SIGTERM or SIGINT cancels with cause
// ErrShutdown. After the first signal the default handling is back, so that a
// second one ends the process at once. stop releases the signals.
func Notify(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	go func() {
		select {
		case <-ch:
			cancel(ErrShutdown)
		case <-ctx.Done():
		}
		signal.Stop(ch)
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Component is a part of a process that runs until it is told to stop.
type Component struct {
	Name string
	// Run works until ctx ends, then stops in good order and answers nil. It calls ready once,
	// when the components after it may start. Returning before ctx ends stops the process.
	Run func(ctx context.Context, ready func()) error
}

// ErrStopped is answered when a component returned without being asked to and
// without an error.
var ErrStopped = errors.New("stopped unasked")

// Run starts the components in the order given, each when the one before it is
// ready. When ctx ends or a component returns, it stops them in the reverse
// order, each when the one after it has returned: what others rest on goes
// last. It answers the errors of all components, nil when ctx ended and all
// returned nil. A panic of a component is an error like others.
func Run(ctx context.Context, log *slog.Logger, components ...Component) error {
	type running struct {
		Component
		cancel context.CancelCauseFunc
		done   chan struct{}
		err    error
	}
	var started []*running
	fell := make(chan *running, len(components))
	var fallen *running

	// The components' contexts do not end with ctx: the order of stopping is ours.
	base := context.WithoutCancel(ctx)
start:
	for _, c := range components {
		cctx, cancel := context.WithCancelCause(base)
		r := &running{Component: c, cancel: cancel, done: make(chan struct{})}
		ready := make(chan struct{})
		started = append(started, r)
		go func() {
			defer close(r.done)
			r.err = call(cctx, c, ready)
			if r.err == nil && cctx.Err() == nil {
				r.err = ErrStopped
			}
			fell <- r
		}()
		select {
		case <-ready:
		case fallen = <-fell:
			break start
		case <-ctx.Done():
			break start
		}
	}
	if fallen == nil {
		select {
		case <-ctx.Done():
		case fallen = <-fell:
		}
	}
	if fallen != nil {
		log.Error("component stopped, stopping the process", slog.String("component", fallen.Name), slog.Any("error", fallen.err))
	}

	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrShutdown
	}
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
		begin := time.Now()
		r.cancel(cause)
		<-r.done
		log.Debug("component stopped", slog.String("component", r.Name), slog.Duration("took", time.Since(begin)))
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
		}
	}
	return errors.Join(errs...)
}

// call runs one component, closing ready at most once.
func call(ctx context.Context, c Component, ready chan struct{}) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	closed := false
	return c.Run(ctx, func() {
		if !closed {
			closed = true
			close(ready)
		}
	})
}

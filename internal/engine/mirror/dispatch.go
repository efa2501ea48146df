package mirror

import (
	"context"
	"sync"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// dispatcher calls the observer from one goroutine, in the order of push, so that a call may come back into the path
// without meeting its lock.
type dispatcher struct {
	mu     sync.Mutex
	queue  []func()
	wake   chan struct{}
	closed bool

	// calling is held during a call: who holds it knows that none is under way.
	calling sync.Mutex
	fault   func(error) // takes a panic of the observer, after which it is called no more
	failed  bool        // of run's goroutine
}

func newDispatcher(fault func(error)) *dispatcher {
	return &dispatcher{wake: make(chan struct{}, 1), fault: fault}
}

func (d *dispatcher) push(f func()) {
	d.mu.Lock()
	if !d.closed {
		d.queue = append(d.queue, func() { d.call(f) })
	}
	d.mu.Unlock()
	notify(d.wake)
}

func (d *dispatcher) call(f func()) {
	if d.failed {
		return
	}
	d.calling.Lock()
	defer d.calling.Unlock()
	err := report.Contained("the observer of the data path", func() error {
		f()
		return nil
	})
	if err != nil {
		d.failed = true
		d.fault(err)
	}
}

// quietly calls f while no call of the observer is under way.
func (d *dispatcher) quietly(f func()) {
	d.calling.Lock()
	defer d.calling.Unlock()
	f()
}

// run calls what is pushed until ctx ends, then what is left.
func (d *dispatcher) run(ctx context.Context) {
	for {
		d.mu.Lock()
		batch := d.queue
		d.queue = nil
		if len(batch) == 0 && ctx.Err() != nil {
			d.closed = true
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for _, f := range batch {
			f()
		}
		if len(batch) == 0 {
			select {
			case <-d.wake:
			case <-ctx.Done():
			}
		}
	}
}

// flush returns when all that was pushed before has been called, or never will be, or ctx ends.
func (d *dispatcher) flush(ctx context.Context) error {
	done := make(chan struct{})
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.queue = append(d.queue, func() { close(done) })
	d.mu.Unlock()
	notify(d.wake)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notify leaves a signal in a channel of capacity one.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

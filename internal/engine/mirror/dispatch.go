package mirror

import (
	"context"
	"sync"
)

// dispatcher calls the observer from one goroutine, in the order of push, so that a call may come back into the path
// without meeting its lock.
type dispatcher struct {
	mu     sync.Mutex
	queue  []func()
	wake   chan struct{}
	closed bool
}

func newDispatcher() *dispatcher { return &dispatcher{wake: make(chan struct{}, 1)} }

func (d *dispatcher) push(f func()) {
	d.mu.Lock()
	if !d.closed {
		d.queue = append(d.queue, f)
	}
	d.mu.Unlock()
	notify(d.wake)
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

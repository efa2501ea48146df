package engine

import (
	"context"
	"sync"
)

// footing tells whether the clusters behind the addresses are those that the positions belong to. While they are not,
// nothing is copied, stored or written beside. The zero value is firm.
type footing struct {
	mu     sync.Mutex
	lost   bool
	cancel []context.CancelFunc
	firm   chan struct{} // closed when firm again; nil while firm
}

// set changes it.
func (f *footing) set(firm bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case firm && f.lost:
		f.lost = false
		close(f.firm)
		f.firm = nil
	case !firm && !f.lost:
		f.lost = true
		f.firm = make(chan struct{})
		for _, c := range f.cancel {
			c()
		}
		f.cancel = nil
	}
}

// isLost tells how it stands.
func (f *footing) isLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// await returns a context that ends when the footing is lost, once it is firm; false: ctx ended first.
func (f *footing) await(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	for {
		f.mu.Lock()
		if !f.lost {
			c, cancel := context.WithCancel(ctx)
			f.cancel = append(f.cancel, cancel)
			f.mu.Unlock()
			return c, cancel, true
		}
		firm := f.firm
		f.mu.Unlock()
		select {
		case <-firm:
		case <-ctx.Done():
			return nil, nil, false
		}
	}
}

// runBeside runs a room while the footing is firm, until ctx ends.
func (t *Task) runBeside(ctx context.Context, r runner) error {
	for {
		c, cancel, ok := t.footing.await(ctx)
		if !ok {
			return nil
		}
		err := r.Run(c)
		lost := c.Err() != nil
		cancel()
		if ctx.Err() != nil || !lost {
			return err
		}
	}
}

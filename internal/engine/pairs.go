package engine

import (
	"context"
	"sync"
)

// pair names a stream of heartbeats: from whom to whom, written to which cluster.
type pair struct{ clusterID, source, target string }

// turns lets one task at a time emit the heartbeats of a pair in this process, however many flows the pair has. It is
// the one thing that tasks of a process share. The others wait, and one takes over when the emitting task ends.
type turns struct {
	mu sync.Mutex
	m  map[pair]*turn
}

type turn struct {
	slot  chan struct{}
	users int
}

var emitting = turns{m: map[pair]*turn{}}

// acquire waits for the pair's turn; false: ctx ended first. release must be called after true.
func (t *turns) acquire(ctx context.Context, p pair) bool {
	t.mu.Lock()
	e := t.m[p]
	if e == nil {
		e = &turn{slot: make(chan struct{}, 1)}
		t.m[p] = e
	}
	e.users++
	t.mu.Unlock()
	select {
	case e.slot <- struct{}{}:
		return true
	case <-ctx.Done():
		t.leave(p, e)
		return false
	}
}

func (t *turns) release(p pair) {
	t.mu.Lock()
	e := t.m[p]
	t.mu.Unlock()
	<-e.slot
	t.leave(p, e)
}

func (t *turns) leave(p pair, e *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(t.m, p)
	}
}

// inTurn runs a room while it is the pair's turn.
type inTurn struct {
	runner
	turns *turns
	pair  pair
}

// Run implements runner.
func (r inTurn) Run(ctx context.Context) error {
	if !r.turns.acquire(ctx, r.pair) {
		return nil
	}
	defer r.turns.release(r.pair)
	return r.runner.Run(ctx)
}

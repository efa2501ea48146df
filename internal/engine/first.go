package engine

import (
	"context"
	"sync"
	"time"
)

// firstWait is how long what stands beside the copying waits for the first record at most.
const firstWait = 500 * time.Millisecond

// firstRecord holds up what stands beside the copying (side topics above all, whose making keeps a target busy) until the
// first record is there, or need not be waited for.
type firstRecord struct {
	once sync.Once
	ch   chan struct{}
}

func newFirstRecord() *firstRecord { return &firstRecord{ch: make(chan struct{})} }

// open ends the waiting, for good.
func (f *firstRecord) open() { f.once.Do(func() { close(f.ch) }) }

// await waits until open or the end of ctx.
func (f *firstRecord) await(ctx context.Context) {
	select {
	case <-f.ch:
	case <-ctx.Done():
	}
}

// awaitFirst waits for the first record, for a while, where one is to come. Positions are not stored meanwhile; a
// successor finds what came in this time behind the point that was stored before.
func (t *Task) awaitFirst(ctx context.Context) {
	if !t.anythingToRead() {
		t.first.open()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	t.first.await(ctx)
	t.first.open()
}

// anythingToRead tells whether a partition that runs is behind its source.
func (t *Task) anythingToRead() bool {
	for _, p := range t.parts.all() {
		p.mu.Lock()
		behind := p.state == partRunning && p.position < p.highWatermark
		p.mu.Unlock()
		if behind {
			return true
		}
	}
	return false
}

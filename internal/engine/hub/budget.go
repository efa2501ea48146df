package hub

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// leastAsked is the least worth a request, in bytes, as long as there is room at all.
const leastAsked = 64 << 10

// budget counts the bytes read and not given back, of all clusters, in the buffers that hold them.
type budget struct {
	total int64
	most  int64 // asked of a broker at a time
	pool  *wire.Pool
	// expected is what requests under way will probably bring.
	expected atomic.Int64

	mu      sync.Mutex
	waiting map[chan<- struct{}]int64
	least   atomic.Int64 // of waiting
}

func newBudget(total, most int64) *budget {
	b := &budget{total: total, most: most, pool: wire.NewPool(total + most), waiting: map[chan<- struct{}]int64{}}
	b.least.Store(math.MaxInt64)
	b.pool.OnRelease(b.released)
	return b
}

// free is what may still be read.
func (b *budget) free() int64 { return b.total - b.pool.InUse() }

// ask is how many bytes the next request may ask for; 0: there is no room.
func (b *budget) ask(limit int64) int64 {
	room := b.free() - b.expected.Load()
	switch {
	case room >= leastAsked:
		return min(limit, b.most, room)
	case b.free() > 0:
		return min(limit, leastAsked)
	}
	return 0
}

// notify has ch signalled once when n bytes are free.
func (b *budget) notify(ch chan<- struct{}, n int64) {
	b.mu.Lock()
	b.waiting[ch] = n
	b.least.Store(min(n, b.least.Load()))
	b.mu.Unlock()
	b.released() // what was freed before ch was known
}

// forget takes a notify back.
func (b *budget) forget(ch chan<- struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, ch)
	b.measure()
}

func (b *budget) released() {
	free := b.free()
	if free < b.least.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch, n := range b.waiting {
		if n <= free {
			delete(b.waiting, ch)
			signal(ch)
		}
	}
	b.measure()
}

// measure finds the least of what is waited for; the lock is held.
func (b *budget) measure() {
	least := int64(math.MaxInt64)
	for _, n := range b.waiting {
		least = min(least, n)
	}
	b.least.Store(least)
}

// signal leaves a signal in a channel of capacity one.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Pool gives the buffers that the budget counts, to whoever holds what was read in another form.
func (h *Hub) Pool() *wire.Pool { return h.budget.pool }

// Free is how many bytes may still be read, in buffers; less than nothing when the budget was passed. A flow should hold
// no more than is free, and may always hold one batch: so n flows that stand still hold 1/(n+1) of the budget each, as much
// as they leave to others, and nobody is shut out.
func (h *Hub) Free() int64 { return h.budget.free() }

// NotifyFree has ch, of capacity one, signalled once when n bytes are free, which may be at once. A further call for the
// same channel replaces the former.
func (h *Hub) NotifyFree(ch chan<- struct{}, n int64) { h.budget.notify(ch, n) }

// ForgetFree takes NotifyFree back.
func (h *Hub) ForgetFree(ch chan<- struct{}) { h.budget.forget(ch) }

package wire

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// smallest is the size of the smallest buffers, a power of two.
const (
	smallestBits = 12
	smallest     = 1 << smallestBits
	classes      = 4 * (32 - smallestBits)
)

// Pool keeps buffers for answers. It is bounded in what it keeps, not in what it gives: whoever asks decides how much may
// be in flight. Safe for concurrent use.
type Pool struct {
	most     int64
	inUse    atomic.Int64
	released func() // nil: nobody

	mu   sync.Mutex
	idle int64
	free [classes][]*Buffer
	// responses are decoded answers, whose slices are used again.
	responses []*FetchResponse
}

// NewPool makes a pool that keeps what comes back as long as that and what is in use are no more than most bytes: who never
// has more in use gets new memory only in the beginning.
func NewPool(most int64) *Pool { return &Pool{most: most} }

// OnRelease has f called whenever a buffer has come back, by whoever released it: f must be quick and must not block. To be
// called before the first Get.
func (p *Pool) OnRelease(f func()) { p.released = f }

// InUse is the number of bytes in buffers that were given out and not released.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// keptResponses is how many decoded answers a pool keeps; few connections have more under way at a time.
const keptResponses = 32

// response returns an empty answer that Release gives back.
func (p *Pool) response() *FetchResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.responses)
	if n == 0 {
		return &FetchResponse{pool: p}
	}
	r := p.responses[n-1]
	p.responses[n-1] = nil
	p.responses = p.responses[:n-1]
	r.pool = p
	return r
}

func (p *Pool) putResponse(r *FetchResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.responses) < keptResponses {
		p.responses = append(p.responses, r)
	}
}

// Buffer is counted memory: it goes back to its pool when everyone who retained it has released it.
type Buffer struct {
	b    []byte
	pool *Pool
	refs atomic.Int32
}

// classOf is the class of buffers for n bytes and their size: powers of two and three steps between them, so that at most
// a fifth is wasted.
func classOf(n int) (class, size int) {
	if n <= smallest {
		return 0, smallest
	}
	top := bits.Len(uint(n-1)) - 1 // 2^top < n <= 2^(top+1)
	step := 1 << (top - 2)
	quarter := (n - 1 - 1<<top) / step
	return 4*(top-smallestBits) + quarter + 1, 1<<top + (quarter+1)*step
}

// Get returns a buffer of n bytes, of any content, that the caller has to release once.
func (p *Pool) Get(n int) *Buffer {
	class, size := classOf(n)
	b := p.take(class, size)
	if b == nil {
		b = &Buffer{b: make([]byte, size), pool: p}
	}
	p.inUse.Add(int64(cap(b.b)))
	b.b = b.b[:n]
	b.refs.Store(1)
	return b
}

// larger is how many classes, from its own on, a buffer may come from: those of less than twice the size. New memory costs
// more than what is wasted.
const larger = 4

// take returns an idle buffer of a class or of one not much above, or nil when a new one has to be made, for which it makes
// room.
func (p *Pool) take(class, size int) *Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := class; c < min(class+larger, classes); c++ {
		if b := p.pop(c); b != nil {
			return b
		}
	}
	for c := 0; c < classes && p.idle > 0 && p.inUse.Load()+p.idle+int64(size) > p.most; {
		if p.pop(c) == nil {
			c++
		}
	}
	return nil
}

// pop takes a buffer off the list of a class; the lock is held.
func (p *Pool) pop(class int) *Buffer {
	list := p.free[class]
	if len(list) == 0 {
		return nil
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	p.free[class] = list[:len(list)-1]
	p.idle -= int64(cap(b.b))
	return b
}

// Bytes are the buffer's bytes, valid while it is retained.
func (b *Buffer) Bytes() []byte { return b.b }

// Size is what the buffer takes in memory.
func (b *Buffer) Size() int { return cap(b.b) }

// Retain counts one more user.
func (b *Buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("wire: a buffer was retained after its release")
	}
}

// Release ends one use. The last one returns the memory, so nobody may touch it after.
func (b *Buffer) Release() {
	switch left := b.refs.Add(-1); {
	case left > 0:
		return
	case left < 0:
		panic("wire: a buffer was released too often")
	}
	p := b.pool
	size := int64(cap(b.b))
	p.inUse.Add(-size)
	p.keep(b, size)
	if p.released != nil {
		p.released()
	}
}

func (p *Pool) keep(b *Buffer, size int64) {
	class, _ := classOf(cap(b.b))
	p.mu.Lock()
	defer p.mu.Unlock()
	if class < classes && p.inUse.Load()+p.idle+size <= p.most {
		p.idle += size
		p.free[class] = append(p.free[class], b)
	}
}

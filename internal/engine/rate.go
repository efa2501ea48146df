package engine

import (
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
)

// limited is a path that keeps to a rate.
type limited interface {
	// SetMaxBytesPerSecond sets the limit from now on; 0: no limit. It may be called at any time.
	SetMaxBytesPerSecond(n int64)
	// HeldBack tells the limit, and for how long altogether, ever, it has kept the path from reading more.
	HeldBack() (limit int64, held time.Duration)
}

// rate hands a limit to the path, which is made long after the task. The zero value limits nothing.
type rate struct {
	mu    sync.Mutex
	limit int64
	path  limited // nil until the path is there
}

// limits says which path the limit is about.
func (r *rate) limits(p mirror.Path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := p.(limited); ok {
		r.path = l
		l.SetMaxBytesPerSecond(r.limit)
	}
}

// heldBack is what the path tells of its limit; no limit before there is a path, or where it keeps to none.
func (r *rate) heldBack() (limit int64, held time.Duration) {
	r.mu.Lock()
	path := r.path
	r.mu.Unlock()
	if path == nil {
		return 0, 0
	}
	return path.HeldBack()
}

func (r *rate) set(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = n
	if r.path != nil {
		r.path.SetMaxBytesPerSecond(n)
	}
}

// SetMaxBytesPerSecond replaces Config.MaxBytesPerSecond from now on, without a stop; 0: no limit, and so is a negative
// number. It may be called at any time, before Run and after its end too, and by several at once.
func (t *Task) SetMaxBytesPerSecond(n int64) { t.rate.set(max(0, n)) }

package engine

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
)

// ratedPath is a path that notes its limits.
type ratedPath struct {
	stubPath
	mu     sync.Mutex
	limits []int64
}

func (p *ratedPath) SetMaxBytesPerSecond(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits = append(p.limits, n)
}

func (p *ratedPath) HeldBack() (int64, time.Duration) { return 0, 0 }

func (p *ratedPath) told() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.limits)
}

func TestALimitReachesThePathWheneverItIsSet(t *testing.T) {
	t.Parallel()
	p := &ratedPath{}
	r := rate{limit: 5000}
	r.set(4000) // before there is a path
	r.limits(p)
	r.set(3000)
	r.set(0)
	require.Equal(t, []int64{4000, 3000, 0}, p.told())

	task := &Task{rate: rate{limit: 1}}
	task.SetMaxBytesPerSecond(-1)
	task.rate.limits(p)
	require.Equal(t, []int64{4000, 3000, 0, 0}, p.told(), "a negative number is no limit")
	var unlimited mirror.Path = &stubPath{}
	task.rate.limits(unlimited) // a path that keeps to no rate is left alone
	task.SetMaxBytesPerSecond(7)
	require.Equal(t, []int64{4000, 3000, 0, 0, 7}, p.told())
}

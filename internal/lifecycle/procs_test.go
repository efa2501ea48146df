package lifecycle

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcsFollowTheWork(t *testing.T) {
	t.Parallel()
	p := procs{now: 1, most: 6}
	for i, step := range []struct {
		busy float64
		want int
	}{{0.1, 1}, {0.7, 1}, {0.9, 2}, {1.5, 2}, {1.7, 4}, {3.9, 6}, {6, 6}, {2, 6}} {
		require.Equal(t, step.want, p.adjust(step.busy), "step %d", i)
	}
	calm := func(n int, busy float64) {
		for range n {
			p.adjust(busy)
		}
	}
	calm(procsCalm-1, 0.1)
	require.Equal(t, 6, p.now, "not before it was calm for long enough")
	calm(1, 5)
	calm(procsCalm-1, 0.1)
	require.Equal(t, 6, p.now, "all in a row")
	calm(1, 0.1)
	require.Equal(t, 3, p.now)
	calm(5*procsCalm, 0)
	require.Equal(t, 1, p.now)
}

func TestAdjustProcsSetsWhatIsNeeded(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var used time.Duration
	limit := 3
	ticks, done := make(chan time.Time), make(chan struct{})
	now := time.Now()
	go func() {
		defer close(done)
		adjustProcs(ctx, ticks, func() (time.Duration, bool) { return used, true }, func() int {
			runtime.GOMAXPROCS(limit)
			return limit
		})
	}()
	ticks <- time.Time{} // passed over: by now it has begun
	look := func(after time.Duration, cpus float64) {
		now = now.Add(after)
		used += time.Duration(cpus * float64(after))
		ticks <- now
		ticks <- now // has no length, and is passed over: the one before has been dealt with
	}
	look(time.Second, 0.1)
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	look(time.Second, 1)
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	look(time.Second, 2)
	require.Equal(t, 3, runtime.GOMAXPROCS(0))
	limit = 5
	look(time.Second, 3)
	require.Equal(t, 3, runtime.GOMAXPROCS(0), "how many there may be is asked now and then")
	for range procsRenew + 1 {
		look(time.Second, 3)
	}
	require.Equal(t, 5, runtime.GOMAXPROCS(0))
	limit = 2
	for range procsRenew {
		look(time.Second, 4)
	}
	require.Equal(t, 2, runtime.GOMAXPROCS(0), "the container has less")
	for range procsCalm {
		look(time.Second, 0)
	}
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	cancel()
	<-done
	require.Equal(t, 2, runtime.GOMAXPROCS(0), "as if it had never been")
}

func TestAdjustProcsLeavesWhatTheEnvironmentSays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	AdjustProcs(t.Context()) // returns at once
	require.NoError(t, t.Context().Err())
}

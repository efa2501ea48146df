package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/wait"
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

func TestAdjustProcsGivesACPUMoreToABusyProcess(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	runtime.GOMAXPROCS(2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		AdjustProcs(ctx)
	}()
	is := func(n int) {
		t.Helper()
		wait.For(t, 30*time.Second, fmt.Sprintf("%d CPUs", n), func() error {
			if got := runtime.GOMAXPROCS(0); got != n {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	is(1)
	go func() { // work, until it is over
		for ctx.Err() == nil {
		}
	}()
	is(2)
	cancel()
	<-done
	is(2)
}

func TestAdjustProcsLeavesWhatTheEnvironmentSays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	AdjustProcs(t.Context()) // returns at once
	require.NoError(t, t.Context().Err())
}

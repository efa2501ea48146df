package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// Which partitions a task copies depends on how many tasks there are: engines of two numbers that run at a time
// would copy a partition twice, wherever they run.
func TestEnginesOfTwoNumbersOfTasksNeverRunAtATime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	_, _, in := f.pair()
	f.join("b")
	flow := f.create(in, "orders")
	f.run(flow.ID, 0)
	for _, n := range []int{3, 2, 5, 1, 4} {
		o := flow.Options
		o.TasksMax = n
		changed := time.Now()
		_, err := f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
		require.NoError(t, err)
		wait.For(t, 10*time.Second, fmt.Sprintf("%d tasks", n), func() error {
			running := map[int]bool{}
			for _, r := range f.runsOf(flow.ID) {
				if ended, _ := r.end(); ended.IsZero() && r.cfg.Identity.Tasks == n {
					running[r.cfg.Identity.Task] = true
				}
			}
			if len(running) != n {
				return fmt.Errorf("%d run", len(running))
			}
			return nil
		})
		t.Logf("%d tasks run %v after the change", n, time.Since(changed))
	}
	runs := f.runsOf(flow.ID)
	for i, x := range runs {
		ended, cause := x.end()
		require.NoError(t, cause, "drained, not cut off")
		for _, y := range runs[i+1:] {
			if x.cfg.Identity.Tasks != y.cfg.Identity.Tasks {
				require.False(t, ended.IsZero() || y.began.Before(ended), "task %d of %d on %s ran beside task %d of %d on %s",
					x.cfg.Identity.Task, x.cfg.Identity.Tasks, x.worker, y.cfg.Identity.Task, y.cfg.Identity.Tasks, y.worker)
			}
		}
	}
}

// A worker that is cut off from the database keeps its task until its trust ends. Until then nobody else may work by
// another number.
func TestAChangeOfTasksWaitsForAWorkerThatDoesNotHearOfIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join("a")
	_, _, in := f.pair()
	flow := f.create(in, "orders")
	old := f.run(flow.ID, 0)
	f.join("b")
	a.gate.set(true)
	o := flow.Options
	o.TasksMax = 2
	_, err := f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	next := f.run(flow.ID, 1)
	require.Equal(t, 2, next.cfg.Identity.Tasks)
	ended, _ := old.end()
	require.False(t, ended.IsZero(), "the old one still runs")
	require.False(t, next.began.Before(ended))
	a.gate.set(false)
	wait.For(t, 10*time.Second, "both tasks", func() error {
		if len(f.runsOf(flow.ID)) < 3 {
			return errors.New("one is missing")
		}
		return nil
	})
}

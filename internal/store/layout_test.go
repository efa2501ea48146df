package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
)

func (w *world) setTasks(f flows.Flow, n int) {
	w.t.Helper()
	o := f.Options
	o.TasksMax = n
	_, err := w.manager.UpdateFlow(w.t.Context(), w.project, f.ID, o, flows.AnyRevision)
	require.NoError(w.t, err)
}

// Which task copies a partition depends on their number, so tasks of two numbers never work at a time.
func TestAfterAChangeOfItsTasksAFlowWaitsUntilAllItsLeasesAreReleased(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after int }{{1, 3}, {3, 1}, {2, 3}} {
		t.Run(fmt.Sprintf("%d to %d", c.before, c.after), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.pair()
			f := p.flow("x")
			w.setTasks(f, c.before)
			old := w.acquire("w1", 10)
			require.Len(t, old, c.before)
			w.setTasks(f, c.after)

			renewed, err := w.store.RenewTasks(t.Context(), "w1", ttl, keysOf(old))
			require.NoError(t, err)
			require.Len(t, renewed, c.before, "until they are released they are held")
			for _, r := range renewed {
				require.Equal(t, c.after, r.TasksMax)
			}
			for _, l := range old {
				require.Empty(t, w.acquire("w1", 10))
				require.Empty(t, w.acquire("w2", 10), "w1 still holds a task")
				require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{l.LeaseKey}))
			}
			next := w.acquire("w2", 10)
			require.Len(t, next, c.after)
			for _, l := range next {
				require.Equal(t, c.after, l.Spec.Flow.TasksMax)
			}
			require.Equal(t, c.after, w.queryInt("SELECT count(*) FROM tasks"), "what is no task any more is gone")
		})
	}
}

func TestAChangeOfOneFlowsTasksKeepsNoOtherFlowWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	require.Len(t, w.acquire("w1", 10), 1)
	w.setTasks(f, 2)
	other := p.flow("y")
	got := w.acquire("w1", 10)
	require.Len(t, got, 1)
	require.Equal(t, other.ID, got[0].FlowID)
}

func TestADeadWorkersTasksKeepAChangedFlowWaitingNoLongerThanTheirLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	dead, err := w.store.AcquireTasks(t.Context(), "dead", short, 1)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	w.setTasks(f, 2)
	until(t, "both tasks are taken", func() bool { return len(w.acquire("w2", 10)) == 2 })
}

// The numbers may change between a worker's look at the flow and its lock on a task: workers that race with many
// changes never hold tasks of two numbers.
func TestRacingWorkersNeverHoldTasksOfTwoNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	held := map[flows.LeaseKey]int{}
	taken := 0
	var mixed []string
	var work sync.WaitGroup
	for n := range 4 {
		work.Go(func() {
			worker := fmt.Sprint("w", n)
			for ctx.Err() == nil {
				leases, err := w.store.AcquireTasks(context.WithoutCancel(ctx), worker, ttl, 2)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				mu.Lock()
				for _, l := range leases {
					held[l.LeaseKey] = l.Spec.Flow.TasksMax
				}
				taken += len(leases)
				for a, x := range held {
					for b, y := range held {
						if x != y {
							mixed = append(mixed, fmt.Sprintf("task %d of %d beside task %d of %d", a.Task, x, b.Task, y))
						}
					}
				}
				mu.Unlock()
				if _, err := w.store.RenewTasks(context.WithoutCancel(ctx), worker, ttl, keysOf(leases)); err != nil {
					t.Errorf("renew: %v", err)
					return
				}
				mu.Lock()
				for _, l := range leases {
					delete(held, l.LeaseKey)
				}
				mu.Unlock()
				if err := w.store.ReleaseTasks(context.WithoutCancel(ctx), worker, keysOf(leases)); err != nil {
					t.Errorf("release: %v", err)
					return
				}
			}
		})
	}
	for n := range 150 {
		w.setTasks(f, 1+n%4)
	}
	stop()
	work.Wait()
	require.Empty(t, mixed)
	require.Positive(t, taken)
}

func keysOf(leases []flows.TaskLease) []flows.LeaseKey {
	keys := make([]flows.LeaseKey, 0, len(leases))
	for _, l := range leases {
		keys = append(keys, l.LeaseKey)
	}
	return keys
}

func TestALeaseOfBeforeTheLayoutWasStoredCountsAsOneOfTheFlowAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	w.setTasks(f, 2)
	require.Len(t, w.acquire("w1", 1), 1)
	require.NoError(t, store.MigrateTo(t.Context(), w.url, 1))
	require.NoError(t, store.Migrate(t.Context(), w.url))
	require.Len(t, w.acquire("w2", 10), 1, "the other task is free and of the same number")
}

package worker

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// setMove decides what MoveTask answers.
func (s *script) setMove(key flows.LeaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move = &key
}

func (s *script) setOthers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = n
}

func TestATaskThatMovesIsDrainedAndReleasedAndTheOthersGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.store.setOthers(1)
		first, second := b.lease(nil), b.lease(nil)
		b.start()
		engines := map[string]*fakeEngine{}
		for n := range 2 {
			e := b.engine(n)
			engines[e.cfg.Identity.FlowID] = e
		}
		pass(3 * time.Second)
		require.False(t, engines[first.FlowID.String()].wasDrained())
		b.store.setMove(first)
		pass(1100 * time.Millisecond)
		require.True(t, engines[first.FlowID.String()].wasDrained())
		_, cause := engines[first.FlowID.String()].end()
		require.NoError(t, cause, "cleanly")
		require.False(t, b.store.holds(first))
		require.False(t, engines[second.FlowID.String()].wasDrained())
		require.True(t, b.store.holds(second))
		require.Equal(t, flows.StateStarting, b.store.lastReport(first).State, "it goes on elsewhere")

		since := time.Now()
		pass(5 * time.Second)
		require.Zero(t, b.store.count("move", since), "the last one stays")
		require.Equal(t, 2, b.made())
	})
}

func TestOneTaskMovesAtATimeWithAPauseAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.store.setOthers(1)
		b.make = func(e *fakeEngine) error { e.obeys = false; return nil } // drains last until they are cut off
		first := b.lease(nil)
		b.lease(nil)
		b.lease(nil)
		b.start()
		pass(100 * time.Millisecond)
		b.store.setMove(first)
		signal(b.s.acquireNow)
		synctest.Wait()
		since := time.Now().Add(time.Millisecond)
		pass(5*time.Second + drainGrace - 200*time.Millisecond)
		require.Zero(t, b.store.count("move", since), "while one is on its way nobody asks for another")
		pass(200 * time.Millisecond)
		require.False(t, b.store.holds(first))
		released := time.Now()
		pass(movePause - 100*time.Millisecond)
		require.Zero(t, b.store.count("move", released))
		pass(3 * time.Second) // it is noticed when tasks are looked for next
		require.Positive(t, b.store.count("move", released))
	})
}

func TestNobodyAsksForMovesThatCannotBe(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		b.lease(nil)
		b.start()
		began := time.Now()
		pass(5 * time.Second)
		require.Zero(t, b.store.count("move", began), "a worker alone")
		b.store.setOthers(1)
		pass(5 * time.Second)
		require.Positive(t, b.store.count("move", began))
		require.Zero(t, b.store.count("move several", began))

		// Two tasks of one flow may have to part, whatever the loads are.
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.TasksMax = 2; s.Flow.Revision++ })
		pass(3 * time.Second) // the old number's task is drained
		b.store.mu.Lock()
		for n := range 2 {
			b.store.free = append(b.store.free, flows.TaskLease{LeaseKey: flows.LeaseKey{FlowID: key.FlowID, Task: n, Epoch: 2}, Spec: b.store.specs[key.FlowID]})
		}
		b.store.mu.Unlock()
		pass(3 * time.Second)
		require.Positive(t, b.store.count("move several", began))
	})
}

func TestAWorkerThatStopsSaysSoBeforeItsTasksDrain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.lease(nil)
		b.start()
		b.engine(0)
		b.shutdown()
		leave, release := b.store.index("leave"), b.store.index("release")
		require.GreaterOrEqual(t, leave, 0)
		require.Less(t, leave, release)
	})
}

// requireOneAtATime wants no two engines of a task to have run at the same time, and all that ended to have ended cleanly.
func (f *fleet) requireOneAtATime(id flows.Flow) (runs int) {
	f.t.Helper()
	of := map[int][]*watchedRun{}
	for _, r := range f.runsOf(id.ID) {
		of[r.cfg.Identity.Task] = append(of[r.cfg.Identity.Task], r)
		runs++
	}
	for task, rs := range of {
		for i, r := range rs[:len(rs)-1] {
			ended, cause := r.end()
			require.False(f.t, ended.IsZero(), "run %d of task %d goes on beside the next", i, task)
			require.NoError(f.t, cause)
			require.False(f.t, rs[i+1].began.Before(ended), "task %d", task)
			require.Less(f.t, r.cfg.Identity.LeaseEpoch, rs[i+1].cfg.Identity.LeaseEpoch)
		}
	}
	return runs
}

// waitShares waits until each worker runs as many tasks as wanted, of all flows together.
func (f *fleet) waitShares(within time.Duration, all []flows.Flow, want map[string]int) {
	f.t.Helper()
	wait.For(f.t, within, fmt.Sprint("shares ", want), func() error {
		got := map[string]int{}
		for _, flow := range all {
			for _, r := range f.runsOf(flow.ID) {
				if ended, _ := r.end(); ended.IsZero() {
					got[r.worker]++
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return errors.New(fmt.Sprint("they are ", got))
		}
		return nil
	})
}

func TestAWorkerThatJoinsTakesItsShareOfWhatRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	_, _, in := f.pair()
	in.TasksMax = 3
	three := f.create(in, "orders")
	in.TasksMax = 1
	all := []flows.Flow{three}
	for n := range 3 {
		all = append(all, f.create(in, fmt.Sprint("stock", n)))
	}
	f.waitShares(10*time.Second, all, map[string]int{"a": 6})
	f.join("b")
	f.waitShares(20*time.Second, all, map[string]int{"a": 3, "b": 3})
	c := f.join("c")
	f.waitShares(20*time.Second, all, map[string]int{"a": 2, "b": 2, "c": 2})
	// Shares are even before a flow's tasks are spread, which takes an exchange at times.
	f.waitShares(20*time.Second, []flows.Flow{three}, map[string]int{"a": 1, "b": 1, "c": 1})
	f.waitShares(20*time.Second, all, map[string]int{"a": 2, "b": 2, "c": 2})
	runs := 0
	for _, flow := range all {
		runs += f.requireOneAtATime(flow)
	}
	require.LessOrEqual(t, runs, 6+3+2+2, "three moved to b, two to c, and at most one in exchange for another")

	// One that goes leaves its tasks to the others, once each.
	c.stop()
	f.waitShares(10*time.Second, all, map[string]int{"a": 3, "b": 3})
	after := 0
	for _, flow := range all {
		after += f.requireOneAtATime(flow)
	}
	require.Equal(t, runs+2, after)
}

// Workers come, go and lose the database at random: no task ever runs twice at a time, and in the end all is even.
func TestWhateverHappensToWorkersATaskRunsOnceAtATimeAndAllEndsEven(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	crew := map[string]*member{"w0": f.join("w0")}
	_, _, in := f.pair()
	var all []flows.Flow
	for n, tasks := range []int{1, 1, 2, 3} {
		in.TasksMax = tasks
		all = append(all, f.create(in, fmt.Sprint("t", n)))
	}
	r := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // reproducible on purpose
	some := func() string {
		names := slices.Sorted(maps.Keys(crew))
		return names[r.IntN(len(names))]
	}
	var cut string
	for n := 1; n <= 8; n++ {
		switch {
		case len(crew) < 2 || n%2 == 1 && len(crew) < 4:
			name := fmt.Sprint("w", n)
			crew[name] = f.join(name)
		case cut == "":
			cut = some()
			crew[cut].gate.set(true)
		default:
			name := some()
			crew[name].stop()
			delete(crew, name)
		}
		pass := time.NewTimer(time.Duration(500+r.IntN(2000)) * time.Millisecond)
		<-pass.C // something may be under way when the next thing happens
		if cut != "" && r.IntN(2) == 0 {
			if m := crew[cut]; m != nil {
				m.gate.set(false)
			}
			cut = ""
		}
	}
	if m := crew[cut]; m != nil {
		m.gate.set(false)
	}
	names := slices.Sorted(maps.Keys(crew))
	wait.For(t, 40*time.Second, fmt.Sprint("an even share for each of ", names), func() error {
		got := map[string]int{}
		for _, n := range names {
			got[n] = 0
		}
		for _, flow := range all {
			for _, r := range f.runsOf(flow.ID) {
				if ended, _ := r.end(); ended.IsZero() {
					got[r.worker]++
				}
			}
		}
		least, most, sum := 1<<30, 0, 0
		for _, n := range got {
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		if sum != 7 || most-least > 1 || len(got) != len(names) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
	runs := 0
	for _, flow := range all {
		of := map[int][]*watchedRun{}
		for _, r := range f.runsOf(flow.ID) {
			of[r.cfg.Identity.Task] = append(of[r.cfg.Identity.Task], r)
		}
		for task, rs := range of {
			runs += len(rs)
			slices.SortFunc(rs, func(a, b *watchedRun) int { return a.began.Compare(b.began) })
			for i := range len(rs) - 1 {
				ended, _ := rs[i].end()
				require.False(t, ended.IsZero(), "task %d", task)
				require.False(t, rs[i+1].began.Before(ended), "task %d ran on %s and %s at a time", task, rs[i].worker, rs[i+1].worker)
			}
		}
	}
	t.Logf("%d runs of 7 tasks, in the end on %v", runs, names)
}

package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// crew are workers that act one after the other.
type crew struct {
	*world
	names []string
	held  map[string]map[flows.LeaseKey]bool
	moves int
}

func (w *world) crew(names ...string) *crew {
	c := &crew{world: w, held: map[string]map[flows.LeaseKey]bool{}}
	for _, n := range names {
		c.join(n)
	}
	return c
}

// join lets a worker take part, as one that has lived for long.
func (c *crew) join(name string) {
	c.t.Helper()
	c.names = append(c.names, name)
	c.held[name] = map[flows.LeaseKey]bool{}
	_, err := c.store.Beat(c.t.Context(), name, ttl)
	require.NoError(c.t, err)
	c.exec("UPDATE workers SET started_at = now() - interval '1 hour'")
}

func (c *crew) take(name string, n int) {
	c.t.Helper()
	for _, l := range c.acquire(name, n) {
		for other, held := range c.held {
			for k := range held {
				require.False(c.t, k.FlowID == l.FlowID && k.Task == l.Task, "%s got what %s holds", name, other)
			}
		}
		c.held[name][l.LeaseKey] = true
	}
}

func (c *crew) renew(name string) {
	c.t.Helper()
	var keys []flows.LeaseKey
	for k := range c.held[name] {
		keys = append(keys, k)
	}
	renewed, err := c.store.RenewTasks(c.t.Context(), name, ttl, keys)
	require.NoError(c.t, err)
	require.Len(c.t, renewed, len(keys))
}

// several tells whether the worker runs more than one task of some flow.
func (c *crew) several(name string) bool {
	for _, n := range c.ofFlows(name) {
		if n > 1 {
			return true
		}
	}
	return false
}

func (c *crew) ofFlows(name string) map[uuid.UUID]int {
	n := map[uuid.UUID]int{}
	for k := range c.held[name] {
		n[k.FlowID]++
	}
	return n
}

func (c *crew) give(name string) *flows.LeaseKey {
	c.t.Helper()
	k, err := c.store.MoveTask(c.t.Context(), name, c.several(name))
	require.NoError(c.t, err)
	if k == nil {
		return nil
	}
	require.True(c.t, c.held[name][*k], "only what the worker holds can be moved")
	again, err := c.store.MoveTask(c.t.Context(), name, c.several(name))
	require.NoError(c.t, err)
	require.Equal(c.t, k, again, "one at a time, and an answer that got lost is given again")
	return k
}

func (c *crew) release(name string, k flows.LeaseKey) {
	c.t.Helper()
	require.NoError(c.t, c.store.ReleaseTasks(c.t.Context(), name, []flows.LeaseKey{k}))
	delete(c.held[name], k)
	c.moves++
}

// turn is one worker's turn: renew, take, give one. It tells whether anything happened.
func (c *crew) turn(name string) bool {
	c.t.Helper()
	before := len(c.held[name])
	c.renew(name)
	c.take(name, 64)
	k := c.give(name)
	if k != nil {
		c.release(name, *k)
	}
	return k != nil || len(c.held[name]) != before
}

// settle has all take turns in random order until nothing happens any more.
func (c *crew) settle(r *rand.Rand) {
	c.t.Helper()
	for calm, turns := 0, 0; calm < 2; turns++ {
		require.Less(c.t, turns, 200, "it never settles: %v", c.loads())
		calm++
		for _, i := range r.Perm(len(c.names)) {
			if c.turn(c.names[i]) {
				calm = 0
			}
		}
	}
}

func (c *crew) loads() map[string]int {
	out := map[string]int{}
	for _, n := range c.names {
		out[n] = len(c.held[n])
	}
	return out
}

// requireBalanced wants loads that differ by one at most, and so of each flow.
func (c *crew) requireBalanced() {
	c.t.Helper()
	within := func(counts map[string]int, what any) {
		least, most := 1<<30, 0
		for _, n := range c.names {
			least, most = min(least, counts[n]), max(most, counts[n])
		}
		require.LessOrEqual(c.t, most-least, 1, "%v: %v", what, counts)
	}
	within(c.loads(), "all tasks")
	all := map[uuid.UUID]map[string]int{}
	for _, n := range c.names {
		for f, count := range c.ofFlows(n) {
			if all[f] == nil {
				all[f] = map[string]int{}
			}
			all[f][n] = count
		}
	}
	for f, counts := range all {
		within(counts, f)
	}
}

// Whatever runs where, tasks move until they are spread evenly, and then stay.
func TestTasksMoveUntilTheyAreSpreadEvenlyAndThenStay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
			w := newWorld(t)
			p := w.pair()
			total := 0
			for n := range 1 + r.IntN(8) {
				in := p.input(fmt.Sprint("t", n))
				in.TasksMax = 1 + r.IntN(4)
				total += in.TasksMax
				_, err := w.manager.CreateFlow(t.Context(), w.project, in)
				require.NoError(t, err)
			}
			c := w.crew("first")
			c.take("first", 1000)
			require.Len(t, c.held["first"], total)
			for n := range 1 + r.IntN(4) {
				c.join(fmt.Sprint("w", n))
				if r.IntN(2) == 0 { // some join before all others have settled
					c.settle(r)
					c.requireBalanced()
				}
			}
			c.settle(r)
			c.requireBalanced()
			t.Logf("%d tasks, %d workers, %d moves", total, len(c.names), c.moves)
			require.LessOrEqual(t, c.moves, total*len(c.names), "moves")
			moved := c.moves
			c.settle(r)
			require.Equal(t, moved, c.moves, "what is even stays")
		})
	}
}

func TestAWorkerThatJoinsGetsItsShareWithAsManyMovesAsThatNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for n := range 12 {
		p.flow(fmt.Sprint("t", n))
	}
	c := w.crew("a")
	c.take("a", 100)
	c.join("b")
	c.join("c")
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // reproducible on purpose
	c.settle(r)
	require.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4}, c.loads())
	require.Equal(t, 8, c.moves)
}

// All see the same worker without tasks at the same time.
func TestManyThatGiveDoNotGiveTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	c := w.crew("a", "b", "c", "d", "e", "f")
	for n := range 12 {
		p.flow(fmt.Sprint("t", n))
	}
	for _, n := range c.names {
		c.take(n, 2)
	}
	c.join("late")
	for _, n := range c.names {
		c.renew(n)
	}
	answers := make([]*flows.LeaseKey, len(c.names))
	errs := make([]error, len(c.names))
	var all sync.WaitGroup
	for i, n := range c.names {
		all.Go(func() { answers[i], errs[i] = w.store.MoveTask(context.WithoutCancel(t.Context()), n, false) })
	}
	all.Wait()
	given := map[string]flows.LeaseKey{}
	for i, k := range answers {
		require.NoError(t, errs[i])
		if k != nil {
			given[c.names[i]] = *k
		}
	}
	require.Len(t, given, 1, "two of twelve are due to the seventh, and one makes the difference")
	for n, k := range given {
		c.release(n, k)
		// It is kept for the one that it is meant for, whoever asks first.
		for _, other := range c.names {
			if other != "late" {
				c.take(other, 10)
			}
		}
		c.take("late", 10)
	}
	require.Equal(t, 1, c.loads()["late"])
}

func TestTwoTasksOfAFlowDoNotStayTogetherWhileAnotherWorkerHasNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	c := w.crew("a")
	in := p.input("x")
	in.TasksMax = 2
	_, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	c.take("a", 10)
	c.join("b")
	p.flow("y")
	p.flow("z")
	c.take("b", 10)
	require.Equal(t, map[string]int{"a": 2, "b": 2}, c.loads(), "even, but not spread")
	c.settle(rand.New(rand.NewPCG(1, 1))) //nolint:gosec // reproducible on purpose
	c.requireBalanced()
	require.Equal(t, 2, c.moves, "one for another")
}

func TestATaskIsGivenNeitherToANewcomerOfTheMomentNorToOneThatStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for n := range 4 {
		p.flow(fmt.Sprint("t", n))
	}
	c := w.crew("a")
	c.take("a", 10)
	c.join("b")
	c.renew("a")
	w.exec("UPDATE workers SET started_at = now() WHERE id LIKE 'b#%'")
	require.Nil(t, c.give("a"), "it may be gone in a moment")
	w.exec("UPDATE workers SET started_at = now() - interval '1 hour', taking_at = now() - interval '6 s' WHERE id LIKE 'b#%'")
	require.Nil(t, c.give("a"), "it does not look for tasks")
	_, err := w.store.Beat(t.Context(), "b", ttl)
	require.NoError(t, err)
	require.NoError(t, w.store.Leave(t.Context(), "b"))
	require.Nil(t, c.give("a"), "it stops")

	_, err = w.store.Beat(t.Context(), "b", ttl)
	require.NoError(t, err)
	k := c.give("a")
	require.NotNil(t, k)
	require.NoError(t, w.store.Leave(t.Context(), "b"))
	again, err := w.store.MoveTask(t.Context(), "a", false)
	require.NoError(t, err)
	require.Nil(t, again, "not decided anew in the same call")
	require.Zero(t, w.queryInt("SELECT count(*) FROM tasks WHERE moving_to <> ''"))
	c.renew("a")
	require.Nil(t, c.give("a"))
}

func TestATaskThatItsNewWorkerDoesNotTakeIsForAllAfterAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	c := w.crew("a")
	for n := range 4 {
		p.flow(fmt.Sprint("t", n))
	}
	c.take("a", 10)
	c.join("b")
	c.renew("a")
	k := c.give("a")
	require.NotNil(t, k)
	c.release("a", *k)
	c.join("c") // with a share of two
	c.take("c", 10)
	require.Zero(t, c.loads()["c"])
	w.exec("UPDATE tasks SET changed_at = now() - interval '4 s' WHERE owner = ''")
	c.take("c", 10)
	require.Equal(t, 1, c.loads()["c"])

	// One that is gone is waited for no time at all.
	c.renew("a")
	k = c.give("a")
	require.NotNil(t, k)
	c.release("a", *k)
	w.exec("DELETE FROM workers WHERE id LIKE 'b#%'")
	c.take("c", 10)
	require.Equal(t, 2, c.loads()["c"])
}

func TestAWorkerThatStopsDoesNotCountForTheOthersShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	c := w.crew("a", "b")
	for n := range 4 {
		p.flow(fmt.Sprint("t", n))
	}
	c.take("a", 10)
	c.take("b", 10)
	require.Equal(t, map[string]int{"a": 2, "b": 2}, c.loads())
	require.NoError(t, w.store.Leave(t.Context(), "a"))
	c.renew("a") // it goes on renewing while its tasks drain
	for k := range c.held["a"] {
		c.release("a", k)
		break
	}
	c.take("b", 10)
	require.Equal(t, map[string]int{"a": 1, "b": 3}, c.loads(), "taken at once, though a still holds one")
}

func TestTheTasksOfANewFlowAreTakenByDifferentWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	c := w.crew("a", "b", "c")
	in := p.input("x")
	in.TasksMax = 3
	f, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	for n := range 9 { // shares with room for more of x
		p.flow(fmt.Sprint("t", n))
	}
	c.take("b", 12)
	require.Len(t, c.held["b"], 4)
	require.Equal(t, 1, c.ofFlows("b")[f.ID])
	for _, n := range []string{"c", "a"} {
		c.take(n, 2)
		require.Equal(t, 1, c.ofFlows(n)[f.ID])
	}

	// What nobody takes within 2 s is for whoever has room.
	in = p.input("z")
	in.TasksMax = 3
	f, err = w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	w.exec("UPDATE tasks SET changed_at = now() - interval '1 hour' WHERE owner = '' AND flow_id = $1", f.ID)
	c.take("a", 3)
	require.Equal(t, 3, c.ofFlows("a")[f.ID])
}

// A giver may freeze at any moment, with its transaction open.
func TestAGiverThatFreezesKeepsNobodyFromRenewing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for n := range 4 {
		p.flow(fmt.Sprint("t", n))
	}
	c := w.crew("a")
	c.take("a", 10)
	c.join("b")
	c.renew("a")
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	frozen, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = frozen.Exec(t.Context(),
		`SELECT pg_advisory_xact_lock(hashtextextended('mirrorflow: move a task to ' || id, 0)) FROM workers WHERE id LIKE 'b#%'`)
	require.NoError(t, err)
	require.Nil(t, c.give("a"), "somebody else decides about b")
	c.renew("b")
	c.take("b", 1)
	require.NoError(t, frozen.Rollback(t.Context()))
	require.NotNil(t, c.give("a"))
}

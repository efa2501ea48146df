package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestAcquireGivesATaskWithAllThatIsNeededToRunIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	leases := w.acquire("w1", 10)
	require.Len(t, leases, 1)
	require.Equal(t, flows.LeaseKey{FlowID: f.ID, Task: 0, Epoch: 1}, leases[0].LeaseKey)
	spec, err := w.store.GetFlowSpec(t.Context(), f.ID)
	require.NoError(t, err)
	require.Equal(t, spec, leases[0].Spec)
	require.Equal(t, f, spec.Flow)
	require.Equal(t, p.source, spec.Source)
	require.Equal(t, p.target, spec.Target)
	require.Equal(t, []string{"dst.kafka-b", "src.kafka-a"}, spec.KnownAliases)
	require.Empty(t, w.acquire("w1", 10))
	require.Empty(t, w.acquire("w2", 10))
	_, err = w.store.GetFlowSpec(t.Context(), uuid.New())
	requireCode(t, flows.CodeNotFound, err)
}

func TestOnlyEnabledFlowsAreGivenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	in := p.input("x")
	in.Enabled = false
	f, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	require.Empty(t, w.acquire("w1", 10))
	f.Enabled = true
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Len(t, w.acquire("w1", 10), 1)
}

func TestRacingWorkersGetEveryTaskOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	in := p.input("x")
	in.TasksMax = 60
	f, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	const workers = 6
	for i := range workers {
		_, err := w.store.Beat(t.Context(), fmt.Sprint("w", i), ttl)
		require.NoError(t, err)
	}
	got := make([][]flows.TaskLease, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for range 12 {
				got[i] = append(got[i], w.acquire(fmt.Sprint("w", i), 3)...)
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for i := range workers {
		require.LessOrEqual(t, len(got[i]), 10, "a fair share is a sixth")
		for _, l := range got[i] {
			require.Equal(t, f.ID, l.FlowID)
			require.False(t, seen[l.Task], "task %d was given twice", l.Task)
			seen[l.Task] = true
			require.EqualValues(t, 1, l.Epoch)
		}
	}
	require.Len(t, seen, 60)
}

func TestAWorkerAloneTakesEverythingAndOneOfTwoTakesHalf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	in := p.input("x")
	in.TasksMax = 7
	_, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	alive, err := w.store.Beat(t.Context(), "w2", ttl)
	require.NoError(t, err)
	require.Equal(t, 1, alive)
	require.Len(t, w.acquire("w1", 100), 4)
	require.Len(t, w.acquire("w2", 100), 3)

	other := newWorld(t)
	in = other.pair().input("x")
	in.TasksMax = 7
	_, err = other.manager.CreateFlow(t.Context(), other.project, in)
	require.NoError(t, err)
	require.Len(t, other.acquire("w1", 5), 5)
	require.Len(t, other.acquire("w1", 5), 2)
}

func TestADeadWorkersTasksRunElsewhereWithAHigherEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	dead, err := w.store.AcquireTasks(t.Context(), "dead", short, 1)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	var next []flows.TaskLease
	until(t, "another worker takes the task", func() bool {
		next = w.acquire("w2", 1)
		return len(next) == 1
	})
	require.Equal(t, flows.LeaseKey{FlowID: f.ID, Task: 0, Epoch: 2}, next[0].LeaseKey)
	renewed, err := w.store.RenewTasks(t.Context(), "dead", ttl, []flows.LeaseKey{dead[0].LeaseKey})
	require.NoError(t, err)
	require.Empty(t, renewed)
}

func TestALeaseThatRanOutIsLostAlsoWhenNobodyTookTheTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	l := w.acquire("w1", 1)[0]
	w.exec("UPDATE workers SET expires_at = now() - interval '1 ms'")
	renewed, err := w.store.RenewTasks(t.Context(), "w1", ttl, []flows.LeaseKey{l.LeaseKey})
	require.NoError(t, err)
	require.Empty(t, renewed)
	lost, err := w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: l.LeaseKey}})
	require.NoError(t, err)
	require.Equal(t, []flows.LeaseKey{l.LeaseKey}, lost)
	again := w.acquire("w1", 1)
	require.Len(t, again, 1)
	require.EqualValues(t, 2, again[0].Epoch)
}

func TestAWorkerStartedAgainUnderItsNameIsAnotherHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	old, err := w.store.AcquireTasks(t.Context(), "w1", time.Second, 1)
	require.NoError(t, err)
	require.Len(t, old, 1)
	again := w.open()
	renewed, err := again.RenewTasks(t.Context(), "w1", ttl, []flows.LeaseKey{old[0].LeaseKey})
	require.NoError(t, err)
	require.Empty(t, renewed)
	lost, err := again.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: old[0].LeaseKey}})
	require.NoError(t, err)
	require.Len(t, lost, 1)
	var next []flows.TaskLease
	until(t, "the old process's lease ends though the new one beats", func() bool {
		_, err := again.Beat(t.Context(), "w1", ttl)
		require.NoError(t, err)
		next, err = again.AcquireTasks(t.Context(), "w1", ttl, 1)
		require.NoError(t, err)
		return len(next) == 1
	})
	require.EqualValues(t, 2, next[0].Epoch)
	s, err := w.manager.FlowStatus(t.Context(), w.project, f.ID)
	require.NoError(t, err)
	require.Equal(t, []flows.TaskAssignment{{Task: 0, Worker: "w1", Epoch: 2}}, s.Tasks)
}

func TestRenewKeepsALeaseBeyondItsFirstEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	l, err := w.store.AcquireTasks(t.Context(), "w1", time.Second, 1)
	require.NoError(t, err)
	keys := []flows.LeaseKey{l[0].LeaseKey}
	start := w.dbNow()
	until(t, "two terms pass", func() bool {
		renewed, err := w.store.RenewTasks(t.Context(), "w1", time.Second, keys)
		require.NoError(t, err)
		require.Len(t, renewed, 1)
		require.Empty(t, w.acquire("w2", 1))
		return w.dbNow().Sub(start) > 2*time.Second
	})
}

func (w *world) dbNow() (now time.Time) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	require.NoError(w.t, err)
	require.NoError(w.t, conn.QueryRow(w.t.Context(), "SELECT clock_timestamp()").Scan(&now))
	require.NoError(w.t, conn.Close(w.t.Context()))
	return now
}

// What a renewal costs must not grow with the square of the leases: compared in a join without statistics, as many as
// these took longer than the store lets a statement run.
func TestThousandsOfLeasesAreRenewedAndReportedInOneCallEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for n := range 6 {
		in := p.input(fmt.Sprint("t", n))
		in.TasksMax = 1024
		_, err := w.manager.CreateFlow(t.Context(), w.project, in)
		require.NoError(t, err)
	}
	var keys []flows.LeaseKey
	var reports []flows.TaskReport
	for _, l := range w.acquire("w1", 10000) {
		keys = append(keys, l.LeaseKey)
		reports = append(reports, flows.TaskReport{LeaseKey: l.LeaseKey, Status: flows.TaskStatus{State: flows.StateRunning}})
	}
	require.Len(t, keys, 6*1024)
	for range 2 { // the first confirms, the second only reads
		renewed, err := w.store.RenewTasks(t.Context(), "w1", ttl, keys)
		require.NoError(t, err)
		require.Len(t, renewed, len(keys))
	}
	lost, err := w.store.ReportTasks(t.Context(), "w1", reports)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", keys))
	require.Len(t, w.acquire("w2", 10000), len(keys))
}

func TestRenewTellsWhatChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	keys := []flows.LeaseKey{w.acquire("w1", 1)[0].LeaseKey}
	renew := func() flows.RenewedLease {
		r, err := w.store.RenewTasks(t.Context(), "w1", ttl, keys)
		require.NoError(t, err)
		require.Len(t, r, 1)
		return r[0]
	}
	require.Equal(t, flows.RenewedLease{
		LeaseKey: keys[0], FlowRevision: 1, SourceCredentialsRevision: 1, TargetCredentialsRevision: 1, TasksMax: 1, Enabled: true,
	}, renew())
	w.exec("UPDATE services SET credentials_revision = 5 WHERE id = $1", p.target.ID)
	f.Enabled = false
	_, err := w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, flows.RenewedLease{
		LeaseKey: keys[0], FlowRevision: 2, SourceCredentialsRevision: 1, TargetCredentialsRevision: 5, TasksMax: 1,
	}, renew())
	require.NoError(t, w.manager.DeleteFlow(t.Context(), w.project, f.ID, false, flows.AnyRevision))
	r, err := w.store.RenewTasks(t.Context(), "w1", ttl, keys)
	require.NoError(t, err)
	require.Empty(t, r)
}

func TestReleaseGivesTasksBackAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	l := w.acquire("w1", 1)[0]
	stale := l.LeaseKey
	stale.Epoch--
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{stale}))
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w2", []flows.LeaseKey{l.LeaseKey}))
	require.Empty(t, w.acquire("w2", 1), "a foreign or old key releases nothing")
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{l.LeaseKey}))
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM workers"), "a worker with nothing left does not count for the others' share")
	next := w.acquire("w2", 1)
	require.Len(t, next, 1)
	require.EqualValues(t, 2, next[0].Epoch)
}

func TestATaskThatItsHolderDoesNotKnowOfBecomesFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	p.flow("x")
	p.flow("y")
	known := w.acquire("w1", 1)[0].LeaseKey
	forgotten := w.acquire("w1", 1)[0].LeaseKey // as if the answer had never arrived
	until(t, "the forgotten task becomes free", func() bool {
		r, err := w.store.RenewTasks(t.Context(), "w1", short, []flows.LeaseKey{known})
		require.NoError(t, err)
		require.Len(t, r, 1)
		return w.queryInt("SELECT count(*) FROM tasks WHERE owner = ''") == 1
	})
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM tasks WHERE owner = '' AND flow_id = $1", forgotten.FlowID))
}

func TestEveryWriteOfAnOldTermIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	old := w.acquire("w1", 1)[0].LeaseKey
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{old}))
	current := w.acquire("w1", 1)[0].LeaseKey
	require.EqualValues(t, 2, current.Epoch)
	ctx := t.Context()
	for _, c := range []struct {
		name   string
		worker string
		key    flows.LeaseKey
		ok     bool
	}{
		{"the holder", "w1", current, true},
		{"the holder under an old epoch", "w1", old, false},
		{"another worker with the right epoch", "w2", current, false},
		{"nobody", "", current, false},
		{"a task that does not exist", "w1", flows.LeaseKey{FlowID: current.FlowID, Task: 1, Epoch: 2}, false},
		{"a flow that does not exist", "w1", flows.LeaseKey{FlowID: uuid.New(), Epoch: 2}, false},
	} {
		report := flows.TaskReport{LeaseKey: c.key, Status: flows.TaskStatus{State: flows.StateRunning, Since: time.Now(), ObservedAt: time.Now()}}
		before := w.queryInt("SELECT count(*) FROM events") + w.queryInt("SELECT count(*) FROM topic_owners")
		lost, err := w.store.ReportTasks(ctx, c.worker, []flows.TaskReport{report})
		require.NoError(t, err, c.name)
		errEvent := w.store.RecordEvents(ctx, c.worker, c.key, []flows.Event{{Code: "X"}})
		_, errClaim := w.store.ClaimTopics(ctx, c.worker, c.key, "K", []string{"t"})
		errRelease := w.store.ReleaseTopics(ctx, c.worker, c.key, "K", []string{"none"})
		if c.ok {
			require.Empty(t, lost, c.name)
			require.NoError(t, errEvent, c.name)
			require.NoError(t, errClaim, c.name)
			require.NoError(t, errRelease, c.name)
			continue
		}
		require.Equal(t, []flows.LeaseKey{c.key}, lost, c.name)
		requireCode(t, flows.CodeLeaseLost, errEvent)
		requireCode(t, flows.CodeLeaseLost, errClaim)
		requireCode(t, flows.CodeLeaseLost, errRelease)
		require.Equal(t, before, w.queryInt("SELECT count(*) FROM events")+w.queryInt("SELECT count(*) FROM topic_owners"), c.name)
	}
	require.EqualValues(t, 2, w.queryInt("SELECT status_epoch FROM tasks"))
}

func TestABatchOfReportsStoresWhatIsHeldAndNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	p.flow("x")
	p.flow("y")
	held := w.acquire("w1", 1)[0].LeaseKey
	foreign := w.acquire("w2", 1)[0].LeaseKey
	status := flows.TaskStatus{
		State: flows.StateDegraded, Since: time.Now(), ObservedAt: time.Now(),
		Groups:     []flows.GroupStatus{{Group: "odd \x00 name \\u0000 \xff", Topics: []flows.GroupTopicStatus{}}},
		Conditions: []flows.Condition{{Code: "X", Message: "broker said \x00"}},
	}
	lost, err := w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: held, Status: status}, {LeaseKey: foreign, Status: status}})
	require.NoError(t, err)
	require.Equal(t, []flows.LeaseKey{foreign}, lost)
	s, err := w.manager.FlowStatus(t.Context(), w.project, held.FlowID)
	require.NoError(t, err)
	require.Equal(t, flows.StateDegraded, s.State)
	require.Equal(t, "odd \uFFFD name \\u0000 \uFFFD", s.Groups[0].Group)
	require.Equal(t, []flows.TaskAssignment{{Task: 0, Worker: "w1", Epoch: 1}}, s.Tasks)

	bad := status
	bad.Conditions = []flows.Condition{{Code: "X", Evidence: map[string]any{"f": func() {}}}}
	lost, err = w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: foreign, Status: bad}, {LeaseKey: held, Status: flows.TaskStatus{State: flows.StateRunning}}})
	requireCode(t, flows.CodeInternal, err)
	require.Empty(t, lost)
	s, err = w.manager.FlowStatus(t.Context(), w.project, held.FlowID)
	require.NoError(t, err)
	require.Equal(t, flows.StateRunning, s.State, "one bad status keeps no other from being stored")
}

func TestTasksFollowTasksMaxAndHeldOnesGoWhenTheyAreReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	in := p.input("x")
	in.TasksMax = 3
	f, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	leases := w.acquire("w1", 2)
	require.Len(t, leases, 2)
	f.TasksMax = 1
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, 2, w.queryInt("SELECT count(*) FROM tasks"), "the free one above the limit is gone, the held one is not")
	r, err := w.store.RenewTasks(t.Context(), "w1", ttl, []flows.LeaseKey{leases[0].LeaseKey, leases[1].LeaseKey})
	require.NoError(t, err)
	for _, l := range r {
		require.Equal(t, l.Task == 0, l.Enabled, "the task above the limit is to be drained")
		if l.Task > 0 {
			require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{l.LeaseKey}))
		}
	}
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM tasks"))
	f.TasksMax = 4
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Empty(t, w.acquire("w1", 10), "one is still held that is of the first number")
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{leases[0].LeaseKey}))
	require.Len(t, w.acquire("w1", 10), 4)
}

// Renewals race against reaping around the end of a lease: whoever is told that a lease was renewed must be its only
// holder until the end that the renewal set.
func TestARenewalAndATakeoverNeverBothSucceed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	a, b := w.open(), w.open()
	for round := range 30 {
		name := fmt.Sprint("w", round)
		l, err := a.AcquireTasks(t.Context(), name, 20*time.Millisecond, 1)
		require.NoError(t, err)
		require.Len(t, l, 1)
		key := l[0].LeaseKey
		var renewed []flows.RenewedLease
		var taken []flows.TaskLease
		var errRenew, errTake error
		var wg sync.WaitGroup
		wg.Go(func() {
			deadline := time.Now().Add(40 * time.Millisecond)
			for time.Now().Before(deadline) { // polls until around the end of the term
				if taken, errTake = b.AcquireTasks(t.Context(), "taker", ttl, 1); len(taken) > 0 || errTake != nil {
					return
				}
			}
		})
		wg.Go(func() {
			<-time.After(time.Duration(16+round%8) * time.Millisecond)
			renewed, errRenew = a.RenewTasks(t.Context(), name, ttl, []flows.LeaseKey{key})
		})
		wg.Wait()
		require.NoError(t, errRenew)
		require.NoError(t, errTake)
		require.False(t, len(renewed) > 0 && len(taken) > 0, "round %d: renewed and taken", round)
		w.exec("UPDATE tasks SET owner = '', unconfirmed_at = NULL")
		w.exec("DELETE FROM workers")
	}
}

func TestTopicsBelongToTheFirstFlowThatClaimsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	one, two := p.flow("x"), p.flow("y")
	keys := map[uuid.UUID]flows.LeaseKey{}
	for _, l := range w.acquire("w1", 10) {
		keys[l.FlowID] = l.LeaseKey
	}
	claim := func(f flows.Flow, cluster string, topics ...string) map[string]uuid.UUID {
		m, err := w.store.ClaimTopics(t.Context(), "w1", keys[f.ID], cluster, topics)
		require.NoError(t, err)
		return m
	}
	require.Empty(t, claim(one, "K", "a", "b", "b"))
	require.Empty(t, claim(one, "K", "b", "a"))
	require.Equal(t, map[string]uuid.UUID{"b": one.ID}, claim(two, "K", "b", "c"))
	require.Empty(t, claim(two, "other cluster", "b"))
	require.NoError(t, w.store.ReleaseTopics(t.Context(), "w1", keys[two.ID], "K", []string{"a"}))
	require.Equal(t, map[string]uuid.UUID{"a": one.ID}, claim(two, "K", "a"), "nobody releases what is not his")
	require.NoError(t, w.store.ReleaseTopics(t.Context(), "w1", keys[one.ID], "K", []string{"a"}))
	require.Empty(t, claim(two, "K", "a"))
	require.NoError(t, w.manager.DeleteFlow(t.Context(), w.project, one.ID, false, flows.AnyRevision))
	require.Empty(t, claim(two, "K", "b"))
}

func TestAnOwnerOfAnotherProjectIsNotNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := w.pair().flow("x")
	other, err := w.store.CreateProject(t.Context(), "other")
	require.NoError(t, err)
	elsewhere := *w
	elsewhere.project = other.ID
	theirs := elsewhere.pair().flow("x")
	keys := map[uuid.UUID]flows.LeaseKey{}
	for _, l := range w.acquire("w1", 10) {
		keys[l.FlowID] = l.LeaseKey
	}
	denied, err := w.store.ClaimTopics(t.Context(), "w1", keys[theirs.ID], "K", []string{"a"})
	require.NoError(t, err)
	require.Empty(t, denied)
	denied, err = w.store.ClaimTopics(t.Context(), "w1", keys[mine.ID], "K", []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, map[string]uuid.UUID{"a": uuid.Nil}, denied)
}

func TestParallelClaimsGiveEveryTopicOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for n := range 4 {
		p.flow(fmt.Sprint("f", n))
	}
	leases := w.acquire("w1", 10)
	topics := make([]string, 200)
	for i := range topics {
		topics[i] = fmt.Sprint("t", i)
	}
	refused := make([]map[string]uuid.UUID, len(leases))
	var wg sync.WaitGroup
	for i, l := range leases {
		wg.Go(func() {
			own := append([]string{}, topics...)
			if i%2 == 1 {
				for a, b := 0, len(own)-1; a < b; a, b = a+1, b-1 {
					own[a], own[b] = own[b], own[a]
				}
			}
			var err error
			refused[i], err = w.store.ClaimTopics(context.Background(), "w1", l.LeaseKey, "K", own)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, topic := range topics {
		owners := 0
		for i := range leases {
			if _, ok := refused[i][topic]; !ok {
				owners++
			}
		}
		require.Equal(t, 1, owners, topic)
	}
}

func TestEventsAreKeptNewestFirstAndBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	key := w.acquire("w1", 1)[0].LeaseKey
	at := time.Date(2025, 1, 2, 3, 4, 5, 6000, time.UTC)
	part := int32(3)
	require.NoError(t, w.store.RecordEvents(t.Context(), "w1", key, []flows.Event{
		{At: at, Code: "OFFSETS_LOST", Subject: flows.Subject{Topic: "x", Partition: &part}, Message: "lost\x00", Evidence: []byte(`{"from":1}`)},
		{Code: "SECOND"},
	}))
	l, err := w.manager.ListFlowEvents(t.Context(), w.project, f.ID, flows.Page{})
	require.NoError(t, err)
	require.Len(t, l.Items, 2)
	require.Equal(t, "SECOND", l.Items[0].Code)
	require.WithinDuration(t, w.dbNow(), l.Items[0].At, time.Minute)
	require.Equal(t, flows.Event{
		ID: 1, FlowID: f.ID, At: at, Code: "OFFSETS_LOST", Subject: flows.Subject{Topic: "x", Partition: &part},
		Message: "lost\uFFFD", Evidence: []byte(`{"from": 1}`), Worker: "w1", TaskEpoch: 1,
	}, l.Items[1])

	many := make([]flows.Event, 4000)
	for i := range many {
		many[i] = flows.Event{At: at, Code: "MANY", Message: strings.Repeat("m", 20)}
	}
	for range 3 {
		require.NoError(t, w.store.RecordEvents(t.Context(), "w1", key, many))
	}
	require.Equal(t, 10000, w.queryInt("SELECT count(*) FROM events"))
	require.Equal(t, 2003, w.queryInt("SELECT min(id) FROM events"))
	seen, page := 0, flows.Page{Limit: 1000}
	last := int64(12003)
	for {
		l, err := w.manager.ListFlowEvents(t.Context(), w.project, f.ID, page)
		require.NoError(t, err)
		for _, e := range l.Items {
			require.Equal(t, last-1, e.ID)
			last = e.ID
		}
		seen += len(l.Items)
		if page.Cursor = l.Next; page.Cursor == "" {
			break
		}
	}
	require.Equal(t, 10000, seen)
	require.ErrorContains(t, w.store.RecordEvents(t.Context(), "w1", key, []flows.Event{{Code: "X", Evidence: []byte("{")}}), "no JSON")
}

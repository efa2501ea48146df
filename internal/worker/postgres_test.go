package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// Tests against real Postgres: several supervisors, the domain's Manager on the
// other side, engines that only watch when they are told to run and to stop.

// realTTL is short, so that a takeover can be waited for.
const realTTL = 1500 * time.Millisecond

// fleet is one database with a Manager and any number of workers.
type fleet struct {
	t       *testing.T
	url     string
	manager *flows.Manager
	project uuid.UUID
	opener  secrets.Opener
	mu      sync.Mutex
	runs    []*watchedRun
}

// watchedRun is one engine's run.
type watchedRun struct {
	worker string
	cfg    engine.Config
	began  time.Time

	drained chan struct{}
	rate    atomic.Int64 // set while it ran; 0: not set
	mu      sync.Mutex
	ended   time.Time
	cause   error
}

func (r *watchedRun) Run(ctx context.Context) error {
	defer func() {
		r.mu.Lock()
		r.ended = time.Now()
		r.mu.Unlock()
	}()
	r.cfg.Sink.Status(report.Status{State: report.Running, Since: r.began, ObservedAt: time.Now()})
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		r.cause = context.Cause(ctx)
		r.mu.Unlock()
		return context.Cause(ctx)
	}
}

func (r *watchedRun) Drain(context.Context) error {
	close(r.drained)
	return nil
}

func (r *watchedRun) SetMaxBytesPerSecond(n int64) { r.rate.Store(n) }

func (r *watchedRun) end() (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended, r.cause
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, url: pgtest.NewDB(t)}
	db := f.open()
	p, err := db.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	sealer, opener := keyPair(t, "k1")
	f.opener, f.project = opener, p.ID
	f.manager = flows.NewManager(flows.ManagerConfig{Store: db, Sealer: sealer})
	return f
}

func (f *fleet) open() *store.Store {
	f.t.Helper()
	db, err := store.Open(f.t.Context(), f.url, store.Options{})
	require.NoError(f.t, err)
	f.t.Cleanup(db.Close)
	return db
}

// member is one worker.
type member struct {
	*Supervisor
	stop func()
	gate *gate
}

// gate is a store that can be cut off: calls hang until their contexts end.
type gate struct {
	flows.WorkerStore
	mu  sync.Mutex
	cut bool
}

func (g *gate) set(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = cut
}

func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	cut := g.cut
	g.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (g *gate) Beat(ctx context.Context, w string, ttl time.Duration) (int, error) {
	if err := g.pass(ctx); err != nil {
		return 0, err
	}
	return g.WorkerStore.Beat(ctx, w, ttl)
}

func (g *gate) AcquireTasks(ctx context.Context, w string, ttl time.Duration, limit int) ([]flows.TaskLease, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.WorkerStore.AcquireTasks(ctx, w, ttl, limit)
}

func (g *gate) RenewTasks(ctx context.Context, w string, ttl time.Duration, keys []flows.LeaseKey) ([]flows.RenewedLease, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.WorkerStore.RenewTasks(ctx, w, ttl, keys)
}

func (g *gate) MoveTask(ctx context.Context, w string, several bool) (*flows.LeaseKey, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.WorkerStore.MoveTask(ctx, w, several)
}

func (g *gate) Leave(ctx context.Context, w string) error {
	if err := g.pass(ctx); err != nil {
		return err
	}
	return g.WorkerStore.Leave(ctx, w)
}

func (g *gate) ReportTasks(ctx context.Context, w string, reports []flows.TaskReport) ([]flows.LeaseKey, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.WorkerStore.ReportTasks(ctx, w, reports)
}

func (g *gate) ReleaseTasks(ctx context.Context, w string, keys []flows.LeaseKey) error {
	if err := g.pass(ctx); err != nil {
		return err
	}
	return g.WorkerStore.ReleaseTasks(ctx, w, keys)
}

func (g *gate) GetFlowSpec(ctx context.Context, flow uuid.UUID) (flows.FlowSpec, error) {
	if err := g.pass(ctx); err != nil {
		return flows.FlowSpec{}, err
	}
	return g.WorkerStore.GetFlowSpec(ctx, flow)
}

// join starts a worker.
func (f *fleet) join(id string) *member {
	f.t.Helper()
	g := &gate{WorkerStore: f.open()}
	s, err := New(Config{
		ID: id, TTL: realTTL, DrainTimeout: time.Second, Store: g, Opener: f.opener,
		NewRunner: func(cfg engine.Config) (Runner, error) {
			r := &watchedRun{worker: id, cfg: cfg, began: time.Now(), drained: make(chan struct{})}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.runs = append(f.runs, r)
			return r, nil
		},
		Check: func(_ context.Context, c kafka.Cluster) (kafka.Info, *kafka.Problem) {
			return kafka.Info{ClusterID: "cluster of " + c.BootstrapServers[0], Version: "4.3"}, nil
		},
	})
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	m := &member{Supervisor: s, gate: g, stop: func() {
		once.Do(func() {
			g.set(false)
			cancel(ErrShutdown)
			require.NoError(f.t, <-done)
		})
	}}
	f.t.Cleanup(m.stop)
	wait.For(f.t, 10*time.Second, "worker "+id, func() error { return s.Ready(f.t.Context()) })
	return m
}

// pair makes two clusters and their integrations. A worker must be there to check them.
func (f *fleet) pair() (source, target flows.Service, in flows.FlowInput) {
	f.t.Helper()
	mm, err := f.manager.CreateService(f.t.Context(), f.project, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, false)
	require.NoError(f.t, err)
	integrate := func(address string) (flows.Service, uuid.UUID) {
		s, err := f.manager.CreateService(f.t.Context(), f.project, secured(address, "first"), false)
		require.NoError(f.t, err)
		require.Equal(f.t, flows.StatusReady, s.Status)
		require.Equal(f.t, "cluster of "+address, s.KafkaClusterID)
		i, err := f.manager.CreateIntegration(f.t.Context(), f.project, flows.IntegrationInput{SourceServiceID: s.ID, DestinationServiceID: mm.ID})
		require.NoError(f.t, err)
		return s, i.ID
	}
	source, in.SourceIntegration = integrate("source.example:9092")
	target, in.TargetIntegration = integrate("target.example:9092")
	in.Options = flows.DefaultOptions()
	in.Enabled = true
	return source, target, in
}

func secured(address, password string) flows.ServiceInput {
	return flows.ServiceInput{
		Engine: flows.EngineKafka, BootstrapServers: []string{address},
		Security: flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}},
		Secrets:  flows.SecretChange{flows.SecretSASLPassword: &password},
	}
}

func (f *fleet) create(in flows.FlowInput, topics ...string) flows.Flow {
	f.t.Helper()
	in.Topics = topics
	flow, err := f.manager.CreateFlow(f.t.Context(), f.project, in)
	require.NoError(f.t, err)
	return flow
}

// run waits for the n-th run of a flow, from 0.
func (f *fleet) run(flow uuid.UUID, n int) *watchedRun {
	f.t.Helper()
	var r *watchedRun
	wait.For(f.t, 20*time.Second, fmt.Sprintf("run %d", n), func() error {
		runs := f.runsOf(flow)
		if len(runs) <= n {
			return fmt.Errorf("%d runs", len(runs))
		}
		r = runs[n]
		return nil
	})
	return r
}

func (f *fleet) runsOf(flow uuid.UUID) []*watchedRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*watchedRun
	for _, r := range f.runs {
		if r.cfg.Identity.FlowID == flow.String() {
			out = append(out, r)
		}
	}
	return out
}

func (f *fleet) waitState(flow uuid.UUID, state flows.FlowState) flows.FlowStatus {
	f.t.Helper()
	var st flows.FlowStatus
	wait.For(f.t, 10*time.Second, string(state), func() (err error) {
		if st, err = f.manager.FlowStatus(f.t.Context(), f.project, flow); err == nil && st.State != state {
			err = fmt.Errorf("state is %s", st.State)
		}
		return err
	})
	return st
}

func TestATaskOfAWorkerWithoutDatabaseRunsElsewhereAndNeverTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join("a")
	_, _, in := f.pair()
	flow := f.create(in, "orders")
	first := f.run(flow.ID, 0)
	f.waitState(flow.ID, flows.StateRunning)
	f.join("b")

	cut := time.Now()
	a.gate.set(true)
	second := f.run(flow.ID, 1)
	require.Equal(t, "b", second.worker)
	require.LessOrEqual(t, second.began.Sub(cut), realTTL+2*time.Second)
	require.Greater(t, second.cfg.Identity.LeaseEpoch, first.cfg.Identity.LeaseEpoch)
	ended, cause := first.end()
	require.ErrorIs(t, cause, engine.ErrLeaseLost)
	require.True(t, ended.Before(second.began), "two engines ran at a time")
	t.Logf("cut off, the first engine stopped after %v, the second began after %v (TTL %v)", ended.Sub(cut), second.began.Sub(cut), realTTL)

	// The one that was cut off comes back: it changes nothing, and the flow stays where it is.
	a.gate.set(false)
	err := first.cfg.Sink.Event(t.Context(), report.Event{At: time.Now(), Code: "LATE", Subject: report.Flow})
	require.ErrorIs(t, err, ErrLeaseLost)
	wait.For(t, 10*time.Second, "worker a to be back", func() error { return a.Ready(t.Context()) })
	st := f.waitState(flow.ID, flows.StateRunning)
	require.Equal(t, []flows.TaskAssignment{{Task: 0, Worker: "b", Epoch: second.cfg.Identity.LeaseEpoch}}, st.Tasks)
	events, err := f.manager.ListFlowEvents(t.Context(), f.project, flow.ID, flows.Page{})
	require.NoError(t, err)
	require.Empty(t, events.Items)
}

func TestAWorkerThatStopsHandsOverAtOnceAndCleanly(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join("a")
	_, _, in := f.pair()
	flow := f.create(in, "orders")
	first := f.run(flow.ID, 0)
	f.join("b")
	began := time.Now()
	a.stop()
	second := f.run(flow.ID, 1)
	require.Equal(t, "b", second.worker)
	require.Less(t, second.began.Sub(began), realTTL, "nobody waited for the lease to run out")
	ended, cause := first.end()
	require.NoError(t, cause, "drained, not cut off")
	require.False(t, second.began.Before(ended))
}

func TestWhatTheAPIChangesTakesEffectWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	source, _, in := f.pair()
	flow := f.create(in, "orders")
	first := f.run(flow.ID, 0)
	require.Equal(t, "first", first.cfg.Source.Credentials.Get().SASL.Password)

	// Other credentials: the same run goes on with them.
	_, err := f.manager.UpdateService(t.Context(), f.project, source.ID, secured("source.example:9092", "second"), flows.AnyRevision, false)
	require.NoError(t, err)
	wait.For(t, 2*time.Second, "the new password", func() error {
		if p := first.cfg.Source.Credentials.Get().SASL.Password; p != "second" {
			return errors.New("still the old one")
		}
		return nil
	})
	require.Len(t, f.runsOf(flow.ID), 1)

	// Other options: another run under the same lease.
	changed := time.Now()
	o := flow.Options
	o.Topics = []string{"orders", "stock"}
	_, err = f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	second := f.run(flow.ID, 1)
	require.LessOrEqual(t, second.began.Sub(changed), 2*time.Second)
	require.Equal(t, o.Topics, second.cfg.Topics)
	require.Equal(t, "second", second.cfg.Source.Credentials.Get().SASL.Password)
	require.Equal(t, first.cfg.Identity.LeaseEpoch, second.cfg.Identity.LeaseEpoch)

	// Disabled: stopped, and the status says so.
	changed = time.Now()
	o.Enabled = false
	_, err = f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	f.waitState(flow.ID, flows.StateStopped)
	ended, cause := second.end()
	require.NoError(t, cause)
	require.LessOrEqual(t, ended.Sub(changed), 2*time.Second)

	// Enabled again, then deleted.
	o.Enabled = true
	_, err = f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	third := f.run(flow.ID, 2)
	changed = time.Now()
	require.NoError(t, f.manager.DeleteFlow(t.Context(), f.project, flow.ID, false, flows.AnyRevision))
	wait.For(t, 5*time.Second, "the end", func() error {
		if ended, cause = third.end(); ended.IsZero() {
			return errors.New("it runs")
		}
		return nil
	})
	require.NoError(t, cause, "drained: nobody comes after it")
	require.LessOrEqual(t, ended.Sub(changed), 2*time.Second)
}

func TestTasksSpreadOverWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	_, _, in := f.pair()
	f.join("b")
	in.TasksMax = 8
	flow := f.create(in, "orders")
	wait.For(t, 10*time.Second, "eight tasks on two workers", func() error {
		st, err := f.manager.FlowStatus(t.Context(), f.project, flow.ID)
		if err != nil {
			return err
		}
		by := map[string]int{}
		for _, task := range st.Tasks {
			by[task.Worker]++
		}
		if by["a"] != 4 || by["b"] != 4 {
			return fmt.Errorf("shares %v", by)
		}
		return nil
	})
	for _, r := range f.runsOf(flow.ID) {
		require.Equal(t, 8, r.cfg.Identity.Tasks)
	}
}

func TestAnEventOfATaskIsShownWithItsWorkerAndTerm(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	_, _, in := f.pair()
	flow := f.create(in, "orders")
	r := f.run(flow.ID, 0)
	at := time.Now().UTC().Truncate(time.Microsecond)
	require.NoError(t, r.cfg.Sink.Event(t.Context(), report.Event{
		At: at, Code: "OFFSETS_LOST", Subject: report.Subject{Topic: "orders", Partition: 0}, Message: "m", Evidence: map[string]any{"first": 1},
	}))
	events, err := f.manager.ListFlowEvents(t.Context(), f.project, flow.ID, flows.Page{})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	require.Equal(t, "a", events.Items[0].Worker)
	require.Equal(t, r.cfg.Identity.LeaseEpoch, events.Items[0].TaskEpoch)
	require.JSONEq(t, `{"first":1}`, string(events.Items[0].Evidence))

	// Another flow to the same cluster cannot have the topic that this one owns.
	denied, err := r.cfg.Owners.Claim(t.Context(), "cluster of target.example:9092", []string{"x.orders"})
	require.NoError(t, err)
	require.Empty(t, denied)
	other := f.run(f.create(in, "stock").ID, 0)
	denied, err = other.cfg.Owners.Claim(t.Context(), "cluster of target.example:9092", []string{"x.orders", "x.stock"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x.orders": flow.ID.String()}, denied)
}

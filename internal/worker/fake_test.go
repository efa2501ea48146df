package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
)

// script is a store whose answers the test decides. It remembers every call
// with its time. Without hooks it behaves like the real one for one worker.
type script struct {
	mu    sync.Mutex
	specs map[uuid.UUID]flows.FlowSpec
	free  []flows.TaskLease
	mine  map[flows.LeaseKey]bool
	jobs  []flows.Job
	calls []call
	notes chan flows.Notification
	// others is how many workers there are beside this one; move is what MoveTask answers.
	others int
	move   *flows.LeaseKey

	// before, when set, runs before each call; its error is the call's answer.
	before func(ctx context.Context, name string) error

	reports [][]flows.TaskReport
	events  []flows.Event
	results map[uuid.UUID]json.RawMessage
}

type call struct {
	name string
	at   time.Time
	keys []flows.LeaseKey
}

var errDown = errors.New("database down")

func newScript() *script {
	return &script{
		specs: map[uuid.UUID]flows.FlowSpec{}, mine: map[flows.LeaseKey]bool{}, notes: make(chan flows.Notification),
		results: map[uuid.UUID]json.RawMessage{},
	}
}

func (s *script) enter(ctx context.Context, name string, keys ...flows.LeaseKey) error {
	s.mu.Lock()
	s.calls = append(s.calls, call{name, time.Now(), keys})
	before := s.before
	s.mu.Unlock()
	if before != nil {
		return before(ctx, name)
	}
	return nil
}

func (s *script) setBefore(f func(context.Context, string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// count answers how often a call was made since a time.
func (s *script) count(name string, since time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c.name == name && !c.at.Before(since) {
			n++
		}
	}
	return n
}

func (s *script) index(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.IndexFunc(s.calls, func(c call) bool { return c.name == name })
}

func (s *script) lastReport(key flows.LeaseKey) flows.TaskStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st flows.TaskStatus
	for _, batch := range s.reports {
		for _, r := range batch {
			if r.LeaseKey == key {
				st = r.Status
			}
		}
	}
	return st
}

// change edits a flow's specification as the API would.
func (s *script) change(flow uuid.UUID, edit func(*flows.FlowSpec)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec := s.specs[flow]
	edit(&spec)
	s.specs[flow] = spec
}

func (s *script) take(key flows.LeaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, key)
}

func (s *script) drop(key flows.LeaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, key)
	delete(s.specs, key.FlowID)
}

func (s *script) holds(key flows.LeaseKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine[key]
}

func (s *script) Beat(ctx context.Context, _ string, _ time.Duration) (int, error) {
	if err := s.enter(ctx, "beat"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return 1 + s.others, nil
}

func (s *script) AcquireTasks(ctx context.Context, _ string, _ time.Duration, limit int) ([]flows.TaskLease, error) {
	if err := s.enter(ctx, "acquire"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(limit, len(s.free))
	out := s.free[:n]
	s.free = s.free[n:]
	for _, l := range out {
		s.mine[l.LeaseKey] = true
	}
	return out, nil
}

func (s *script) Leave(ctx context.Context, _ string) error { return s.enter(ctx, "leave") }

func (s *script) MoveTask(ctx context.Context, _ string, several bool) (*flows.LeaseKey, error) {
	name := "move"
	if several {
		name = "move several"
	}
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.move != nil && !s.mine[*s.move] {
		s.move = nil
	}
	return s.move, nil
}

func (s *script) RenewTasks(ctx context.Context, _ string, _ time.Duration, keys []flows.LeaseKey) ([]flows.RenewedLease, error) {
	if err := s.enter(ctx, "renew", keys...); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []flows.RenewedLease
	for _, k := range keys {
		spec, ok := s.specs[k.FlowID]
		if !s.mine[k] || !ok {
			continue
		}
		out = append(out, flows.RenewedLease{
			LeaseKey: k, FlowRevision: spec.Flow.Revision, TasksMax: spec.Flow.TasksMax, Enabled: spec.Flow.Enabled && k.Task < spec.Flow.TasksMax,
			SourceCredentialsRevision: spec.Source.CredentialsRevision, TargetCredentialsRevision: spec.Target.CredentialsRevision,
		})
	}
	return out, nil
}

func (s *script) ReleaseTasks(ctx context.Context, _ string, keys []flows.LeaseKey) error {
	name := "release"
	if len(keys) == 0 {
		name = "resign"
	}
	if err := s.enter(ctx, name, keys...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		delete(s.mine, k)
	}
	return nil
}

func (s *script) GetFlowSpec(ctx context.Context, flow uuid.UUID) (flows.FlowSpec, error) {
	if err := s.enter(ctx, "spec"); err != nil {
		return flows.FlowSpec{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, ok := s.specs[flow]
	if !ok {
		return flows.FlowSpec{}, &flows.Error{Code: flows.CodeNotFound, Message: "no such flow"}
	}
	return spec, nil
}

func (s *script) ReportTasks(ctx context.Context, _ string, reports []flows.TaskReport) ([]flows.LeaseKey, error) {
	if err := s.enter(ctx, "report"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, slices.Clone(reports))
	var lost []flows.LeaseKey
	for _, r := range reports {
		if !s.mine[r.LeaseKey] {
			lost = append(lost, r.LeaseKey)
		}
	}
	return lost, nil
}

func (s *script) RecordEvents(ctx context.Context, _ string, key flows.LeaseKey, events []flows.Event) error {
	if err := s.enter(ctx, "events", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mine[key] {
		return &flows.Error{Code: flows.CodeLeaseLost}
	}
	s.events = append(s.events, events...)
	return nil
}

func (s *script) ClaimTopics(ctx context.Context, _ string, key flows.LeaseKey, _ string, remote []string) (map[string]uuid.UUID, error) {
	if err := s.enter(ctx, "claim", key); err != nil {
		return nil, err
	}
	owned := map[string]uuid.UUID{remote[0]: otherFlow}
	if len(remote) > 2 {
		owned[remote[2]] = uuid.Nil
	}
	return owned, nil
}

func (s *script) ReleaseTopics(ctx context.Context, _ string, key flows.LeaseKey, _ string, _ []string) error {
	return s.enter(ctx, "unclaim", key)
}

func (s *script) ClaimJob(ctx context.Context, _ string, _ time.Duration) (*flows.Job, error) {
	if err := s.enter(ctx, "claim job"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		return nil, nil
	}
	j := s.jobs[0]
	s.jobs = s.jobs[1:]
	return &j, nil
}

func (s *script) CompleteJob(ctx context.Context, _ string, job uuid.UUID, result json.RawMessage) error {
	if err := s.enter(ctx, "complete job"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[job] = result
	return nil
}

func (s *script) Notifications(ctx context.Context) <-chan flows.Notification {
	out := make(chan flows.Notification)
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case n := <-s.notes:
				select {
				case out <- n:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}

// fakeEngine is a run of an engine that the test commands.
type fakeEngine struct {
	cfg      engine.Config
	began    time.Time
	fail     chan error    // Run returns it
	drained  chan struct{} // closed by Drain
	drainCtx context.Context
	// ends tells Run to return on a drain; false: it goes on until it is cut off.
	obeys bool
	mu    sync.Mutex
	ended time.Time
	cause error
	onRun func()
	rates []int64
}

func (e *fakeEngine) SetMaxBytesPerSecond(n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rates = append(e.rates, n)
}

// rate is the limit in force.
func (e *fakeEngine) rate() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.rates); n > 0 {
		return e.rates[n-1]
	}
	return e.cfg.MaxBytesPerSecond
}

func (e *fakeEngine) Run(ctx context.Context) error {
	if e.onRun != nil {
		e.onRun()
	}
	defer func() {
		e.mu.Lock()
		e.ended = time.Now()
		e.mu.Unlock()
	}()
	drained := e.drained
	if !e.obeys {
		drained = nil
	}
	select {
	case err := <-e.fail:
		return err
	case <-drained:
		return nil
	case <-ctx.Done():
		e.mu.Lock()
		e.cause = context.Cause(ctx)
		e.mu.Unlock()
		return context.Cause(ctx)
	}
}

func (e *fakeEngine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.drainCtx = ctx
	e.mu.Unlock()
	close(e.drained)
	return nil
}

func (e *fakeEngine) wasDrained() bool {
	select {
	case <-e.drained:
		return true
	default:
		return false
	}
}

func (e *fakeEngine) end() (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended, e.cause
}

// bench is a supervisor in a bubble with its script and engines.
type bench struct {
	t       *testing.T
	s       *Supervisor
	store   *script
	stop    context.CancelCauseFunc
	stopped chan struct{}

	mu      sync.Mutex
	engines []*fakeEngine
	// make, when set, edits each engine before it runs; its error is New's.
	make func(*fakeEngine) error
}

const ttl = 10 * time.Second

var otherFlow = uuid.MustParse("00000000-0000-0000-0000-0000000000ff")

func newBench(t *testing.T, opener Opener) *bench {
	t.Helper()
	b := &bench{t: t, store: newScript(), stopped: make(chan struct{})}
	var err error
	b.s, err = New(Config{
		ID: "w1", TTL: ttl, DrainTimeout: 5 * time.Second, Store: b.store, Opener: opener,
		NewRunner: func(cfg engine.Config) (Runner, error) {
			e := &fakeEngine{cfg: cfg, began: time.Now(), fail: make(chan error, 1), drained: make(chan struct{}), obeys: true}
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.make != nil {
				if err := b.make(e); err != nil {
					return nil, err
				}
			}
			b.engines = append(b.engines, e)
			return e, nil
		},
		Check: func(context.Context, kafka.Cluster) (kafka.Info, *kafka.Problem) {
			return kafka.Info{ClusterID: "c", Version: "3.9"}, nil
		},
		Forget: func(context.Context, engine.Config) error { return nil },
	})
	require.NoError(t, err)
	return b
}

func (b *bench) start() {
	ctx, cancel := context.WithCancelCause(context.Background())
	b.stop = cancel
	go func() {
		defer close(b.stopped)
		_ = b.s.Run(ctx)
	}()
	b.t.Cleanup(b.shutdown)
}

// shutdown stops the supervisor and waits for it; a second call does nothing.
func (b *bench) shutdown() {
	b.store.setBefore(nil)
	b.stop(ErrShutdown)
	<-b.stopped
}

// lease makes a flow with one task that is free to be taken.
func (b *bench) lease(edit func(*flows.FlowSpec)) flows.LeaseKey {
	spec := testSpec()
	if edit != nil {
		edit(&spec)
	}
	key := flows.LeaseKey{FlowID: spec.Flow.ID, Epoch: 1}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.specs[key.FlowID] = spec
	b.store.free = append(b.store.free, flows.TaskLease{LeaseKey: key, Spec: spec})
	return key
}

func testSpec() flows.FlowSpec {
	o := flows.DefaultOptions()
	o.Enabled = true
	return flows.FlowSpec{
		Flow: flows.Flow{
			ID: uuid.Must(uuid.NewV7()), ReplicationPolicyClass: flows.DefaultPolicyClass, ReplicationPolicySeparator: ".",
			Options: o, Revision: 1,
		},
		Source: flows.Service{
			Alias: "src", BootstrapServers: []string{"127.0.0.1:1"}, Security: flows.Security{Protocol: "PLAINTEXT"}, CredentialsRevision: 1,
		},
		Target: flows.Service{
			Alias: "dst", BootstrapServers: []string{"127.0.0.1:2"}, Security: flows.Security{Protocol: "PLAINTEXT"}, CredentialsRevision: 1,
		},
		KnownAliases: []string{"src", "dst"},
	}
}

// engine answers the n-th engine made, from 0.
func (b *bench) engine(n int) *fakeEngine {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Greater(b.t, len(b.engines), n, "engines made")
	return b.engines[n]
}

func (b *bench) made() int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.engines)
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func keyPair(t *testing.T, id string) (secrets.Sealer, secrets.Opener) {
	t.Helper()
	public, private, err := secrets.NewKeyPair(id)
	require.NoError(t, err)
	sealer, err := secrets.NewSealer([]secrets.Key{public})
	require.NoError(t, err)
	opener, err := secrets.NewOpener([]secrets.Key{private})
	require.NoError(t, err)
	return sealer, opener
}

func seal(t *testing.T, s secrets.Sealer, text string) map[flows.SecretField]flows.SealedSecret {
	t.Helper()
	b, err := s.Seal(text)
	require.NoError(t, err)
	return map[flows.SecretField]flows.SealedSecret{flows.SecretSASLPassword: b}
}

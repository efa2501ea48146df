package store_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
)

// ttl is a lease that does not run out during a test; short is one that tests wait for.
const (
	ttl   = time.Minute
	short = 300 * time.Millisecond
)

// boxSealer seals for tests: what it returns does not contain the secret, and tells which one it was.
type boxSealer struct{}

func (boxSealer) Seal(plain string) (flows.SealedSecret, error) {
	h := flows.HashToken(plain)
	return flows.SealedSecret{KeyID: "k1", Box: h[:]}, nil
}

// world is a database with a project, and a Manager on it.
type world struct {
	t       *testing.T
	url     string
	store   *store.Store
	manager *flows.Manager
	project uuid.UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.NewDB(t)}
	w.store = w.open()
	w.manager = w.managerWith(30 * time.Second)
	p, err := w.store.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	w.project = p.ID
	return w
}

func (w *world) managerWith(checkTimeout time.Duration) *flows.Manager {
	return flows.NewManager(flows.ManagerConfig{Store: w.store, Sealer: boxSealer{}, CheckTimeout: checkTimeout})
}

func (w *world) open() *store.Store {
	s, err := store.Open(context.Background(), w.url, store.Options{})
	require.NoError(w.t, err)
	w.t.Cleanup(s.Close)
	return s
}

// exec changes the database behind the store's back.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	require.NoError(w.t, err)
	_, err = conn.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
	require.NoError(w.t, conn.Close(w.t.Context()))
}

func (w *world) queryInt(sql string, args ...any) int {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	require.NoError(w.t, err)
	var n int
	require.NoError(w.t, conn.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	require.NoError(w.t, conn.Close(w.t.Context()))
	return n
}

// answerChecks plays a worker that checks clusters until the returned function is called.
func (w *world) answerChecks(answer func(flows.CheckServicePayload) flows.CheckServiceResult) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	// A claim whose answer is lost, since the worker stops at that moment, is another's after this.
	const claim = 2 * time.Second
	one := func() (done bool, err error) {
		job, err := w.store.ClaimJob(ctx, "checker", claim)
		if err != nil || job == nil {
			return false, err
		}
		var p flows.CheckServicePayload
		if err := json.Unmarshal(job.Payload, &p); err != nil {
			return false, err
		}
		raw, err := json.Marshal(answer(p))
		if err != nil {
			return false, err
		}
		return true, w.store.CompleteJob(ctx, "checker", job.ID, raw)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		hints := w.store.Notifications(ctx)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			done, err := one()
			if err != nil && ctx.Err() == nil && flows.CodeOf(err) != flows.CodeLeaseLost {
				w.t.Errorf("the worker that checks: %v", err)
				return
			}
			if done {
				continue
			}
			select {
			case <-ctx.Done():
			case <-hints:
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// fine answers every check with the cluster id that the first bootstrap server stands for.
func fine(p flows.CheckServicePayload) flows.CheckServiceResult {
	return flows.CheckServiceResult{KafkaClusterID: "cluster-of-" + p.BootstrapServers[0], KafkaVersion: "3.9"}
}

// kafka stores a kafka service without a check.
func (w *world) kafka(alias, clusterID string) flows.Service {
	w.t.Helper()
	id, err := uuid.NewV7()
	require.NoError(w.t, err)
	s := flows.Service{
		ID: id, Engine: flows.EngineKafka, Alias: alias, BootstrapServers: []string{alias + ":9092"},
		Security: flows.Security{Protocol: "PLAINTEXT"}, KafkaClusterID: clusterID, Status: flows.StatusReady,
	}
	require.NoError(w.t, w.store.Change(w.t.Context(), w.project, func(ctx context.Context, tx flows.Tx) (err error) {
		s, err = tx.InsertService(ctx, s)
		return err
	}))
	return s
}

func (w *world) mirrorMaker() flows.Service {
	w.t.Helper()
	s, err := w.manager.CreateService(w.t.Context(), w.project, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker, Description: "mm"}, false)
	require.NoError(w.t, err)
	return s
}

func (w *world) integration(kafka, mm flows.Service) flows.Integration {
	w.t.Helper()
	i, err := w.manager.CreateIntegration(w.t.Context(), w.project, flows.IntegrationInput{SourceServiceID: kafka.ID, DestinationServiceID: mm.ID})
	require.NoError(w.t, err)
	return i
}

// pair is two clusters bound to one MirrorMaker service.
type pair struct {
	w              *world
	mm             flows.Service
	source, target flows.Service
	from, to       flows.Integration
}

func (w *world) pair() *pair {
	w.t.Helper()
	p := &pair{w: w, mm: w.mirrorMaker(), source: w.kafka("src.kafka-a", "A"), target: w.kafka("dst.kafka-b", "B")}
	p.from, p.to = w.integration(p.source, p.mm), w.integration(p.target, p.mm)
	return p
}

func (p *pair) input(topics ...string) flows.FlowInput {
	in := flows.FlowInput{SourceIntegration: p.from.ID, TargetIntegration: p.to.ID, Options: flows.DefaultOptions()}
	in.Enabled, in.Topics = true, topics
	return in
}

func (p *pair) flow(topics ...string) flows.Flow {
	p.w.t.Helper()
	f, err := p.w.manager.CreateFlow(p.w.t.Context(), p.w.project, p.input(topics...))
	require.NoError(p.w.t, err)
	return f
}

// acquire takes up to n tasks for a worker.
func (w *world) acquire(worker string, n int) []flows.TaskLease {
	w.t.Helper()
	leases, err := w.store.AcquireTasks(w.t.Context(), worker, ttl, n)
	require.NoError(w.t, err)
	return leases
}

// until waits for a condition that another process or the database's clock brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			require.FailNow(t, "did not happen in time", what)
		}
	}
}

func requireCode(t *testing.T, code flows.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, flows.CodeOf(err), "%v", err)
}

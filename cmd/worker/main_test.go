package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
	"github.com/mirrorflow/mirrorflow/internal/test/proctest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// withPostgres runs the tests with a database server.
type withPostgres struct{ m *testing.M }

func (w withPostgres) Run() int { return pgtest.Run(w.m, nil) }

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(withPostgres{m})) }

const leaseTTL = 3 * time.Second

// start starts a worker and answers the address of its health endpoints.
func start(t *testing.T, url, id, keys string) (*proctest.Process, string) {
	t.Helper()
	p := proctest.Start(t, proctest.Options{Pkg: "cmd/worker", Env: map[string]string{
		"MIRRORFLOW_DATABASE_URL": url, "MIRRORFLOW_WORKER_ID": id, "MIRRORFLOW_WORKER_LISTEN": "127.0.0.1:0",
		"MIRRORFLOW_LEASE_TTL": leaseTTL.String(), "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE": keys,
	}})
	return p, "http://" + p.WaitMatch(t, `"msg":"listening"[^\n]*"address":"([^"]+)"`, time.Minute)[1]
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func waitReady(t *testing.T, address string) {
	t.Helper()
	wait.For(t, 20*time.Second, "readiness", func() error {
		if code, _ := get(t, address+"/readyz"); code != http.StatusOK {
			return fmt.Errorf("status %d", code)
		}
		return nil
	})
}

// flow makes a flow between two clusters that do not answer.
func flow(t *testing.T, db *store.Store, sealer flows.Sealer) (m *flows.Manager, project, id uuid.UUID) {
	t.Helper()
	p, err := db.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	m = flows.NewManager(flows.ManagerConfig{Store: db, Sealer: sealer, CheckTimeout: 100 * time.Millisecond})
	mm, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, true)
	require.NoError(t, err)
	password := "hunter2"
	var ends []uuid.UUID
	for _, address := range []string{"127.0.0.1:1", "127.0.0.1:2"} {
		s, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{
			Engine: flows.EngineKafka, BootstrapServers: []string{address},
			Security: flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}},
			Secrets:  flows.SecretChange{flows.SecretSASLPassword: &password},
		}, true)
		require.NoError(t, err)
		i, err := m.CreateIntegration(t.Context(), p.ID, flows.IntegrationInput{SourceServiceID: s.ID, DestinationServiceID: mm.ID})
		require.NoError(t, err)
		ends = append(ends, i.ID)
	}
	in := flows.FlowInput{SourceIntegration: ends[0], TargetIntegration: ends[1], Options: flows.DefaultOptions()}
	in.Enabled = true
	f, err := m.CreateFlow(t.Context(), p.ID, in)
	require.NoError(t, err)
	return m, p.ID, f.ID
}

func database(t *testing.T) (string, *store.Store) {
	t.Helper()
	url := pgtest.NewDB(t)
	require.NoError(t, store.Migrate(t.Context(), url))
	db, err := store.Open(t.Context(), url, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return url, db
}

func keyFile(t *testing.T) (secrets.Sealer, string) {
	t.Helper()
	public, private, err := secrets.NewKeyPair("k1")
	require.NoError(t, err)
	sealer, err := secrets.NewSealer([]secrets.Key{public})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.WriteFile(path, []byte(private.Line()+"\n"), 0o600))
	return sealer, path
}

// A worker that stands still (a frozen machine, a paused container) loses its
// task to another one, and when it goes on it knows at once and changes nothing.
func TestAFrozenWorkersTaskRunsElsewhereAndStaysThere(t *testing.T) {
	t.Parallel()
	url, db := database(t)
	sealer, keys := keyFile(t)
	first, address := start(t, url, "first", keys)
	waitReady(t, address)
	m, project, id := flow(t, db, sealer)
	holder := func() (flows.TaskAssignment, error) {
		st, err := m.FlowStatus(t.Context(), project, id)
		if err != nil {
			return flows.TaskAssignment{}, err
		}
		if len(st.Tasks) != 1 {
			return flows.TaskAssignment{}, fmt.Errorf("%d tasks run", len(st.Tasks))
		}
		return st.Tasks[0], nil
	}
	wait.For(t, 10*time.Second, "the first worker", func() error { _, err := holder(); return err })
	second, address := start(t, url, "second", keys)
	waitReady(t, address)

	first.Signal(t, syscall.SIGSTOP)
	frozen := time.Now()
	var moved flows.TaskAssignment
	wait.For(t, leaseTTL+10*time.Second, "the second worker", func() (err error) {
		if moved, err = holder(); err == nil && moved.Worker != "second" {
			err = errors.New("held by " + moved.Worker)
		}
		return err
	})
	took := time.Since(frozen)
	t.Logf("the frozen worker's task runs elsewhere after %v (TTL %v)", took, leaseTTL)
	require.LessOrEqual(t, took, leaseTTL+2*time.Second)
	require.Equal(t, int64(2), moved.Epoch)

	first.Signal(t, syscall.SIGCONT)
	first.WaitMatch(t, `"msg":"lease lost, task stopped"`, 10*time.Second)
	wait.For(t, 10*time.Second, "a report of the second", func() error {
		st, err := m.FlowStatus(t.Context(), project, id)
		if err == nil && (st.State != flows.StateFailed || len(st.Conditions) == 0) {
			err = fmt.Errorf("state %s", st.State)
		}
		return err
	})
	still, err := holder()
	require.NoError(t, err)
	require.Equal(t, moved, still)
	first.Stop(t)
	second.Stop(t)
	require.NotContains(t, first.Output()+second.Output(), "hunter2")
}

func TestTheProcessWaitsForItsDatabaseAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t) // empty: the API has not been there yet
	sealer, keys := keyFile(t)
	p, address := start(t, url, "w1", keys)
	code, _ := get(t, address+"/healthz")
	require.Equal(t, http.StatusOK, code)
	code, _ = get(t, address+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)

	require.NoError(t, store.Migrate(t.Context(), url))
	waitReady(t, address)
	db, err := store.Open(t.Context(), url, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	m, project, id := flow(t, db, sealer)
	wait.For(t, 10*time.Second, "the conditions of both clusters", func() error {
		st, err := m.FlowStatus(t.Context(), project, id)
		if err != nil {
			return err
		}
		var codes []string
		for _, c := range st.Conditions {
			codes = append(codes, c.Code)
		}
		if got := strings.Join(codes, " "); !strings.Contains(got, "SOURCE_UNREACHABLE") || !strings.Contains(got, "TARGET_UNREACHABLE") {
			return fmt.Errorf("conditions %s", got)
		}
		return nil
	})
	_, metrics := get(t, address+"/metrics")
	for _, name := range []string{
		`mirrorflow_worker_leases{state="running"} 1`, `mirrorflow_worker_tasks{state="FAILED"} 1`, "mirrorflow_worker_renew_seconds_count",
		`mirrorflow_worker_leases_acquired_total 1`, "mirrorflow_worker_lease_trust_seconds", "mirrorflow_conditions{",
	} {
		require.Contains(t, metrics, name)
	}
	began := time.Now()
	p.Stop(t)
	require.Less(t, time.Since(began), 8*time.Second)
	st, err := m.FlowStatus(t.Context(), project, id)
	require.NoError(t, err)
	require.Equal(t, flows.StatePending, st.State)
	require.NotContains(t, p.Output(), "hunter2")
}

func TestAMissingKeyFileEndsTheProcess(t *testing.T) {
	t.Parallel()
	p := proctest.Start(t, proctest.Options{Pkg: "cmd/worker", Env: map[string]string{
		"MIRRORFLOW_DATABASE_URL": "postgres://127.0.0.1:1/none", "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE": filepath.Join(t.TempDir(), "absent"),
	}})
	require.ErrorContains(t, p.ExitErr(t, 20*time.Second), "exit status 1")
	require.Contains(t, p.Output(), "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE")
}

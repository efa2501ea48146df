package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/proctest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// makeRun starts what `make run` starts, with a folder of its own for data.
func makeRun(t *testing.T, listen, workerListen string) (run *proctest.Process, data string) {
	t.Helper()
	stage := t.TempDir()
	// The script uses the binaries two folders above its own.
	require.NoError(t, os.CopyFS(filepath.Join(stage, "deploy", "dev"), os.DirFS(filepath.Join(proctest.Root(t), "deploy", "dev"))))
	require.NoError(t, os.Mkdir(filepath.Join(stage, "bin"), 0o755))
	for name, pkg := range map[string]string{
		"mirrorflow-api": "cmd/api", "mirrorflow-worker": "cmd/worker", "mirrorctl": "cmd/mirrorctl", "mirrorflow-dev": "cmd/mirrorflow-dev",
	} {
		require.NoError(t, os.Symlink(proctest.Build(t, pkg), filepath.Join(stage, "bin", name)))
	}
	// A shell whose parent ignores SIGINT, as that of a job in the background may, cannot trap it; what a Go process handles
	// is at its default in its children.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT)
	defer signal.Stop(handled)
	data = filepath.Join(stage, "data")
	return proctest.Start(t, proctest.Options{Path: filepath.Join(stage, "deploy", "dev", "run.sh"), Env: map[string]string{
		"MIRRORFLOW_DATA": data, "MIRRORFLOW_LISTEN": listen, "MIRRORFLOW_WORKER_LISTEN": workerListen,
	}, Grace: 40 * time.Second}), data
}

func freeAddresses(t *testing.T) (first, second string) {
	t.Helper()
	ports, err := freeport.Take(2)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
}

// deadFlow makes a flow between two clusters that do not answer and returns a function that tells who holds its task.
func deadFlow(t *testing.T, database string) (holder func() error) {
	t.Helper()
	db, err := store.Open(t.Context(), database, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	p, err := db.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	m := flows.NewManager(flows.ManagerConfig{Store: db, CheckTimeout: 100 * time.Millisecond})
	mm, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, true)
	require.NoError(t, err)
	var ends []uuid.UUID
	for _, address := range []string{"127.0.0.1:1", "127.0.0.1:2"} {
		s, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{
			Engine: flows.EngineKafka, BootstrapServers: []string{address}, Security: flows.Security{Protocol: "PLAINTEXT"},
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
	return func() error {
		st, err := m.FlowStatus(t.Context(), p.ID, f.ID)
		if err == nil && len(st.Tasks) != 1 {
			err = errors.New("nobody holds the task")
		}
		return err
	}
}

// A Ctrl-C at the terminal is a signal to the whole foreground group: make, the script, and what the script started.
func TestCtrlCEndsMakeRunInOrder(t *testing.T) {
	api, worker := freeAddresses(t)
	run, data := makeRun(t, api, worker)
	run.WaitMatch(t, `mirrorflow listens on http://`+api, 90*time.Second)
	database := run.WaitMatch(t, `export MIRRORFLOW_DATABASE_URL='([^']+)'`, time.Second)[1]
	wait.For(t, 20*time.Second, "the worker's lease", deadFlow(t, database))

	require.NoError(t, syscall.Kill(-run.Pid(), syscall.SIGINT))
	var exit *exec.ExitError
	require.ErrorAs(t, run.ExitErr(t, 40*time.Second), &exit)
	require.Equal(t, 130, exit.ExitCode())
	run.WaitMatch(t, `"msg":"stopped","process":"mirrorflow-api"`, 5*time.Second)
	rest := run.Output()
	for _, next := range []string{
		`"msg":"worker stopping"`, `"msg":"lease released"`, `"msg":"stopped","process":"mirrorflow-worker"`, `"msg":"stopped","process":"mirrorflow-api"`,
	} {
		var found bool
		_, rest, found = strings.Cut(rest, next)
		require.Truef(t, found, "%s is missing or comes too early:\n%s", next, run.Output())
	}
	require.NotContains(t, run.Output(), `"level":"ERROR"`)
	for _, address := range []string{api, worker} {
		_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED, address)
	}
	postgres, err := os.ReadFile(filepath.Join(data, "postgres", "postgres.log"))
	require.NoError(t, err)
	require.Contains(t, string(postgres), "database system is shut down")
}

func TestMakeRunIsNotTakenInByAnotherInstanceAtItsPort(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(other.Close)
	taken := other.Listener.Addr().String()
	_, free := freeAddresses(t)
	for name, addresses := range map[string][2]string{"API": {taken, free}, "worker": {free, taken}} {
		t.Run(name, func(t *testing.T) {
			run, _ := makeRun(t, addresses[0], addresses[1])
			var exit *exec.ExitError
			require.ErrorAs(t, run.ExitErr(t, 90*time.Second), &exit)
			require.Equal(t, 1, exit.ExitCode())
			run.WaitMatch(t, "the "+name+` has ended; is `+taken+` \(MIRRORFLOW_\w+\) in use\?`, time.Second)
			require.NotContains(t, run.Output(), "mirrorflow listens on")
		})
	}
}

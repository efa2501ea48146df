package main

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/config"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
	"github.com/mirrorflow/mirrorflow/internal/test/proctest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, nil)) }

func TestTheBootstrapFileIsATokenOfTheDefaultProjectAndChangesWithIt(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t)
	db, err := store.Open(t.Context(), url, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	manager := flows.NewManager(flows.ManagerConfig{Store: db})
	file := filepath.Join(t.TempDir(), "token")
	cfg := config.API{Process: config.Process{DatabaseURL: url}, BootstrapTokenFile: file}
	log := slog.New(slog.DiscardHandler)
	use := func(text string) error {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return prepare(t.Context(), cfg, db, log)
	}

	require.NoError(t, use("first-bootstrap-token\n"))
	require.NoError(t, use("first-bootstrap-token"), "a restart changes nothing")
	p, err := manager.Authenticate(t.Context(), "first-bootstrap-token")
	require.NoError(t, err)
	require.Equal(t, flows.DefaultProject, p.Name)
	_, made, err := db.CreateToken(t.Context(), p.ID, "ci")
	require.NoError(t, err)

	require.NoError(t, use("second-bootstrap-token"))
	_, err = manager.Authenticate(t.Context(), "second-bootstrap-token")
	require.NoError(t, err)
	_, err = manager.Authenticate(t.Context(), "first-bootstrap-token")
	require.Equal(t, flows.CodeUnauthenticated, flows.CodeOf(err))
	_, err = manager.Authenticate(t.Context(), made)
	require.NoError(t, err, "other tokens stay")

	for _, text := range []string{"", "short", "two words of a token", strings.Repeat("x", 513), "caf\u00e9-and-long-enough"} {
		err := use(text)
		require.ErrorContains(t, err, "MIRRORFLOW_BOOTSTRAP_TOKEN_FILE")
		if text != "" {
			require.NotContains(t, err.Error(), text)
		}
	}

	other, err := db.EnsureProject(t.Context(), "other")
	require.NoError(t, err)
	_, err = db.AddToken(t.Context(), other.ID, "x", "token-of-another-project")
	require.NoError(t, err)
	require.ErrorContains(t, use("token-of-another-project"), "another project")

	require.NoError(t, os.Remove(file))
	require.ErrorIs(t, prepare(t.Context(), cfg, db, log), os.ErrNotExist)
}

func start(t *testing.T, env map[string]string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, proctest.Options{Pkg: "cmd/api", Env: env})
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

func TestTheProcessServesAnEmptyDatabaseAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{
		"MIRRORFLOW_DATABASE_URL": pgtest.NewDB(t), "MIRRORFLOW_LISTEN": "127.0.0.1:0", "MIRRORFLOW_AUTH": "none",
		"MIRRORFLOW_METRICS_LISTEN": "127.0.0.1:0", "MIRRORFLOW_LISTN": "typo",
	})
	api := "http://" + p.WaitMatch(t, `"msg":"listening"[^\n]*"server":"api","address":"([^"]+)"`, time.Minute)[1]
	metrics := "http://" + p.WaitMatch(t, `"msg":"listening"[^\n]*"server":"metrics","address":"([^"]+)"`, time.Minute)[1]
	for url, want := range map[string]int{
		api + "/healthz": 200, api + "/readyz": 200, api + "/replications": 200, api + "/openapi.yaml": 200, api + "/metrics": 404,
		metrics + "/healthz": 200, metrics + "/readyz": 200, metrics + "/metrics": 200,
	} {
		code, _ := get(t, url)
		require.Equal(t, want, code, url)
	}
	_, body := get(t, metrics+"/metrics")
	require.Contains(t, body, "mirrorflow_build_info{")
	require.Contains(t, body, "http_requests_total{")
	require.Contains(t, p.Output(), "did you mean MIRRORFLOW_LISTEN?")
	p.Stop(t)
}

func TestTokensAreRequiredByDefault(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"MIRRORFLOW_DATABASE_URL": pgtest.NewDB(t), "MIRRORFLOW_LISTEN": "127.0.0.1:0"})
	api := "http://" + p.WaitMatch(t, `"msg":"listening"[^\n]*"address":"([^"]+)"`, time.Minute)[1]
	code, _ := get(t, api+"/replications")
	require.Equal(t, 401, code)
	code, body := get(t, api+"/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, "mirrorflow_build_info{")
}

func TestAWrongConfigurationEndsTheProcessWithAllFaults(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{
		"MIRRORFLOW_DATABASE_URL": "mysql://u:hunter2@h/d", "MIRRORFLOW_LISTEN": "0.0.0.0:1", "MIRRORFLOW_AUTH": "none",
	})
	require.ErrorContains(t, p.ExitErr(t, 20*time.Second), "exit status 2")
	require.Contains(t, p.Output(), "MIRRORFLOW_DATABASE_URL")
	require.Contains(t, p.Output(), "MIRRORFLOW_AUTH")
	require.NotContains(t, p.Output(), "hunter2")
}

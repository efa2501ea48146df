package config_test

import (
	"log/slog"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/config"
)

const dsn = "MIRRORFLOW_DATABASE_URL=postgres://u:hunter2@localhost/mirrorflow"

func TestDefaultsNeedNothingButADatabase(t *testing.T) {
	t.Parallel()
	api, warnings, err := config.LoadAPI([]string{dsn, "PATH=/bin"})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, config.API{
		Process: config.Process{DatabaseURL: "postgres://u:hunter2@localhost/mirrorflow", LogLevel: slog.LevelInfo, DrainTimeout: 10 * time.Second},
		Listen:  "127.0.0.1:8080", Auth: config.AuthTokens,
	}, api)

	worker, warnings, err := config.LoadWorker([]string{dsn})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, "127.0.0.1:8081", worker.WorkerListen)
	require.Equal(t, 10*time.Second, worker.LeaseTTL)
	require.Equal(t, config.DataPathBatches, worker.DataPath)
	again, _, err := config.LoadWorker([]string{dsn})
	require.NoError(t, err)
	require.NotEmpty(t, worker.WorkerID)
	require.NotEqual(t, worker.WorkerID, again.WorkerID, "a restarted worker is another one")

	ctl, err := config.LoadCtl([]string{dsn})
	require.NoError(t, err)
	require.Equal(t, api.DatabaseURL, ctl.DatabaseURL)
}

func TestValuesAreTrimmedAndEmptyOnesCountAsUnset(t *testing.T) {
	t.Parallel()
	api, _, err := config.LoadAPI([]string{dsn, "MIRRORFLOW_LISTEN= [::1]:0 ", "MIRRORFLOW_LOG_LEVEL=debug", "MIRRORFLOW_AUTH=", "MIRRORFLOW_DRAIN_TIMEOUT=250ms"})
	require.NoError(t, err)
	require.Equal(t, "[::1]:0", api.Listen)
	require.Equal(t, slog.LevelDebug, api.LogLevel)
	require.Equal(t, config.AuthTokens, api.Auth)
	require.Equal(t, 250*time.Millisecond, api.DrainTimeout)
}

func TestFaultsNameTheVariableAndNeverASecret(t *testing.T) {
	t.Parallel()
	loadAPI := func(env ...string) error { _, _, err := config.LoadAPI(env); return err }
	loadWorker := func(env ...string) error { _, _, err := config.LoadWorker(env); return err }
	loadCtl := func(env ...string) error { _, err := config.LoadCtl(env); return err }
	for name, tc := range map[string]struct {
		load func(...string) error
		env  []string
		says []string
	}{
		"no database":              {loadAPI, nil, []string{"MIRRORFLOW_DATABASE_URL is not set"}},
		"no database for ctl":      {loadCtl, nil, []string{"MIRRORFLOW_DATABASE_URL is not set"}},
		"database of another kind": {loadAPI, []string{"MIRRORFLOW_DATABASE_URL=mysql://u:hunter2@h/d"}, []string{"MIRRORFLOW_DATABASE_URL", "postgres://"}},
		"database URL malformed":   {loadWorker, []string{"MIRRORFLOW_DATABASE_URL=postgres://u:hunter2%@h/d"}, []string{"MIRRORFLOW_DATABASE_URL", "percent-encoded"}},
		"listen without port":      {loadAPI, []string{dsn, "MIRRORFLOW_LISTEN=127.0.0.1"}, []string{"MIRRORFLOW_LISTEN", `"127.0.0.1"`}},
		"listen with a bad port":   {loadAPI, []string{dsn, "MIRRORFLOW_LISTEN=127.0.0.1:70000"}, []string{"MIRRORFLOW_LISTEN", "65535"}},
		"metrics listen":           {loadAPI, []string{dsn, "MIRRORFLOW_METRICS_LISTEN=x"}, []string{"MIRRORFLOW_METRICS_LISTEN"}},
		"auth unknown":             {loadAPI, []string{dsn, "MIRRORFLOW_AUTH=off"}, []string{"MIRRORFLOW_AUTH", `"off"`}},
		"level unknown":            {loadAPI, []string{dsn, "MIRRORFLOW_LOG_LEVEL=loud"}, []string{"MIRRORFLOW_LOG_LEVEL", `"loud"`, "DEBUG"}},
		"duration without unit":    {loadWorker, []string{dsn, "MIRRORFLOW_LEASE_TTL=10"}, []string{"MIRRORFLOW_LEASE_TTL", `"10"`, "10s"}},
		"unknown data path":        {loadWorker, []string{dsn, "MIRRORFLOW_DATA_PATH=bytes"}, []string{"MIRRORFLOW_DATA_PATH", `"bytes"`, "records or batches"}},
		"ttl too short":            {loadWorker, []string{dsn, "MIRRORFLOW_LEASE_TTL=1s"}, []string{"MIRRORFLOW_LEASE_TTL", "3s"}},
		"drain negative":           {loadWorker, []string{dsn, "MIRRORFLOW_DRAIN_TIMEOUT=-1s"}, []string{"MIRRORFLOW_DRAIN_TIMEOUT"}},
		"worker id with spaces":    {loadWorker, []string{dsn, "MIRRORFLOW_WORKER_ID=a b"}, []string{"MIRRORFLOW_WORKER_ID", `"a b"`}},
		"all faults at once": {
			loadWorker,
			[]string{"MIRRORFLOW_LEASE_TTL=1s", "MIRRORFLOW_WORKER_LISTEN=x"},
			[]string{"MIRRORFLOW_DATABASE_URL", "MIRRORFLOW_LEASE_TTL", "MIRRORFLOW_WORKER_LISTEN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.load(tc.env...)
			for _, s := range tc.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestAuthNoneIsAcceptedOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for listen, ok := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:0": true, "[::1]:8080": true, "localhost:8080": true, "[::ffff:127.0.0.1]:80": true,
		"0.0.0.0:8080": false, ":8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "example.com:80": false, "localhost.example.com:80": false,
	} {
		_, _, err := config.LoadAPI([]string{dsn, "MIRRORFLOW_AUTH=none", "MIRRORFLOW_LISTEN=" + listen})
		if ok {
			require.NoError(t, err, listen)
		} else {
			require.ErrorContains(t, err, "MIRRORFLOW_AUTH", listen)
		}
	}
}

func TestUnknownVariablesAreWarnedAboutWithTheLikelyName(t *testing.T) {
	t.Parallel()
	_, warnings, err := config.LoadWorker([]string{
		dsn, "MIRRORFLOW_LEASE_TLL=10s", "MIRRORFLOW_COLOUR=green", "MIRRORFLOW_LISTEN=127.0.0.1:1", "MIRRORFLOW_TEST_X=1", "OTHER=1",
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"MIRRORFLOW_COLOUR is not a setting and has no effect",
		"MIRRORFLOW_LEASE_TLL is not a setting and has no effect; did you mean MIRRORFLOW_LEASE_TTL?",
	}, warnings)
}

func TestTheDocumentListsExactlyTheVariablesWithTheirDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/config.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(MIRRORFLOW_[A-Z_]+)` \\| [^|]* \\| (?:`([^`]*)`)?[^|]* \\|").FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, documented, m[1], "listed twice")
		documented[m[1]] = m[2]
	}
	known := map[string]string{}
	for _, v := range config.Variables() {
		known[v.Name] = v.Default
	}
	require.Equal(t, known, documented)
}

package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, nil)) }

// ctl runs a command line on the database at url.
func ctl(t *testing.T, url string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	var env []string
	if url != "" {
		env = []string{"MIRRORFLOW_DATABASE_URL=" + url}
	}
	code = run(t.Context(), args, env, &o, &e)
	return code, o.String(), e.String()
}

func ok(t *testing.T, url string, args ...string) string {
	t.Helper()
	code, out, errOut := ctl(t, url, args...)
	require.Zero(t, code, errOut)
	return out
}

func TestTokensBelongToAProjectAndCanBeTakenBack(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t)
	ok(t, url, "migrate")
	ok(t, url, "migrate")
	db, err := store.Open(t.Context(), url, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	manager := flows.NewManager(flows.ManagerConfig{Store: db})

	text := strings.TrimSpace(ok(t, url, "token", "create", "--project", "team-a", "--name", "ci"))
	p, err := manager.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, "team-a", p.Name)
	require.Contains(t, ok(t, url, "project", "list"), "team-a")

	list := ok(t, url, "token", "list", "--project", "team-a")
	require.Contains(t, list, "ci")
	require.NotContains(t, list, text)
	id := strings.Fields(strings.Split(list, "\n")[1])[1]
	ok(t, url, "token", "delete", "--project", "team-a", "--id", id)
	_, err = manager.Authenticate(t.Context(), text)
	require.Equal(t, flows.CodeUnauthenticated, flows.CodeOf(err))

	other := ok(t, url, "project", "create", "team-b")
	require.NotEmpty(t, strings.TrimSpace(other))
	code, _, errOut := ctl(t, url, "project", "create", "team-b")
	require.Equal(t, 1, code)
	require.Equal(t, "mirrorctl: there is a project with this name already\n", errOut)
}

func TestStatusListsFlowsOfAllProjects(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t)
	ok(t, url, "migrate")
	db, err := store.Open(t.Context(), url, store.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	p, err := db.EnsureProject(t.Context(), "team-a")
	require.NoError(t, err)
	m := flows.NewManager(flows.ManagerConfig{Store: db, CheckTimeout: 1})
	mm, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, false)
	require.NoError(t, err)
	in := flows.FlowInput{Options: flows.DefaultOptions()}
	in.Enabled = true
	for i, side := range []string{"a.example:1", "b.example:1"} {
		s, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{
			Engine: flows.EngineKafka, BootstrapServers: []string{side}, Security: flows.Security{Protocol: "PLAINTEXT"},
		}, true)
		require.NoError(t, err)
		integration, err := m.CreateIntegration(t.Context(), p.ID, flows.IntegrationInput{SourceServiceID: s.ID, DestinationServiceID: mm.ID})
		require.NoError(t, err)
		if i == 0 {
			in.SourceIntegration = integration.ID
		} else {
			in.TargetIntegration = integration.ID
		}
	}
	f, err := m.CreateFlow(t.Context(), p.ID, in)
	require.NoError(t, err)

	out := ok(t, url, "status")
	require.Regexp(t, `team-a +`+f.ID.String()+` +PENDING +\S+ +\? +- +NO_WORKER`, out)
	require.Equal(t, out, ok(t, url, "status", "--project", "team-a"))
	code, _, errOut := ctl(t, url, "status", "--project", "team-x")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "team-x")
}

func TestKeysAreMadeOnceAndRotatedOnDemand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, private := filepath.Join(dir, "new", "public"), filepath.Join(dir, "new", "private")
	out := ok(t, "", "keys", "new", "--id", "k1", "--public", public, "--private", private)
	require.Contains(t, out, "k1")
	for path, mode := range map[string]os.FileMode{public: 0o644, private: 0o600} {
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, fi.Mode().Perm(), path)
	}
	sealer, err := secrets.LoadSealer(public)
	require.NoError(t, err)
	before, err := sealer.Seal("first")
	require.NoError(t, err)

	code, _, errOut := ctl(t, "", "keys", "new", "--public", public, "--private", private)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "--add")
	code, _, errOut = ctl(t, "", "keys", "new", "--add", "--id", "k1", "--public", public, "--private", private)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "k1 already")
	ok(t, "", "keys", "new", "--add", "--id", "k2", "--public", public, "--private", private)

	sealer, err = secrets.LoadSealer(public)
	require.NoError(t, err)
	require.Equal(t, "k2", sealer.KeyID())
	after, err := sealer.Seal("second")
	require.NoError(t, err)
	opener, err := secrets.LoadOpener(private, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for want, sealed := range map[string]flows.SealedSecret{"first": before, "second": after} {
		plain, err := opener.Open(sealed)
		require.NoError(t, err)
		require.Equal(t, want, plain)
	}
	left, err := os.ReadDir(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.Len(t, left, 2, "nothing half written is left")
}

func TestWrongCommandLinesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unknown command":  {[]string{"frobnicate"}, 2, "frobnicate"},
		"missing name":     {[]string{"token", "create"}, 2, "--name"},
		"no database":      {[]string{"migrate"}, 1, "MIRRORFLOW_DATABASE_URL"},
		"bad project name": {[]string{"token", "create", "--name", "x", "--project", "a/b"}, 1, `"a/b"`},
		"bad token id":     {[]string{"token", "delete", "--id", "7"}, 2, "--id"},
		"bad id of a key":  {[]string{"keys", "new", "--id", "a b", "--public", "p", "--private", "q"}, 1, "key id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errOut := ctl(t, "", tc.args...)
			require.Equal(t, tc.code, code)
			require.Contains(t, errOut, tc.says)
		})
	}
	code, out, _ := ctl(t, "", "--help")
	require.Zero(t, code)
	require.Contains(t, out, "token create")
}

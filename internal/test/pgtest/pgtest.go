// Package pgtest gives tests a real Postgres: one private server per test process, and a database of its own per test,
// cloned from a template that was migrated once.
//
// It must be imported by tests only, and it never skips: without Postgres the test fails with what to install. Start with
// Run (in TestMain) and NewDB; Start is for tests of outages, which need a server of their own.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/pgproc"
)

// Migrate brings an empty database to the state that tests start from. It must close its connections.
type Migrate func(ctx context.Context, dsn string) error

// The template's name; databases cloned from it are numbered.
const template = "mirrorflow_template"

var shared struct {
	mu      sync.Mutex
	running bool // between start and end of Run
	migrate Migrate
	server  *pgproc.Server
	dir     string
	err     error
	next    atomic.Int64
}

// Run runs m's tests with NewDB available and returns the exit code for os.Exit. The server starts with the first NewDB
// and ends with Run. migrate may be nil. m is a *testing.M, or what wraps one.
func Run(m interface{ Run() int }, migrate Migrate) int {
	shared.mu.Lock()
	shared.running, shared.migrate = true, migrate
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.running = false
	if shared.server != nil {
		if err := shared.server.Kill(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: end the server:", err)
			code = max(code, 1)
		}
		shared.server = nil
	}
	if shared.dir != "" {
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: remove the server's folder:", err)
			code = max(code, 1)
		}
	}
	return code
}

// NewDB returns the connection URL of a fresh database, migrated as Run was told, which is dropped when the test ends.
func NewDB(tb testing.TB) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := sharedServer(ctx)
	require.NoError(tb, err, "start Postgres for the tests")
	name := fmt.Sprintf("test_%d", shared.next.Add(1))
	require.NoError(tb, execute(ctx, server.DSN("postgres"), "CREATE DATABASE "+name+" TEMPLATE "+template))
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		// FORCE ends what sessions the test has left open.
		if err := execute(ctx, server.DSN("postgres"), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return server.DSN(name)
}

// sharedServer starts the process's server once; a failure is remembered, so that the other tests fail at once.
func sharedServer(ctx context.Context) (*pgproc.Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.running {
		return nil, errors.New("pgtest.NewDB works within pgtest.Run only: call it in TestMain")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startShared(ctx)
	}
	return shared.server, shared.err
}

func startShared(ctx context.Context) (*pgproc.Server, error) {
	dir, err := os.MkdirTemp("", "mirrorflow-pgtest-")
	if err != nil {
		return nil, err
	}
	shared.dir = dir
	server, err := pgproc.Start(ctx, pgproc.Config{Dir: dir, Settings: map[string]string{"max_connections": "500"}})
	if err != nil {
		return nil, err
	}
	err = execute(ctx, server.DSN("postgres"), "CREATE DATABASE "+template)
	if err == nil && shared.migrate != nil {
		if err = shared.migrate(ctx, server.DSN(template)); err != nil {
			err = fmt.Errorf("migrate the template database: %w", err)
		}
	}
	if err == nil {
		// A template in use cannot be cloned. Sessions that the migration closed may take a moment to go.
		err = execute(ctx, server.DSN("postgres"), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '`+template+`'`)
	}
	if err != nil {
		return nil, errors.Join(err, server.Kill(ctx))
	}
	return server, nil
}

func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Start gives the test a server of its own, which it may Stop, Kill and Restart; it ends with the test. settings are
// added to the server's configuration and may be nil.
func Start(tb testing.TB, settings map[string]string) *pgproc.Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "mirrorflow-pgtest-")
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the server's folder: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := pgproc.Start(ctx, pgproc.Config{Dir: dir, Settings: settings})
	require.NoError(tb, err, "start Postgres for the test")
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the log of Postgres:\n%s", server.LogTail(50))
		}
		if err := server.Kill(context.Background()); err != nil {
			tb.Errorf("end Postgres: %v", err)
		}
	})
	return server
}

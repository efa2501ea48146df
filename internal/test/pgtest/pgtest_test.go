package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

type runFunc func() int

func (f runFunc) Run() int { return f() }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(runFunc(func() int {
		return Run(m, func(ctx context.Context, dsn string) error {
			return execute(ctx, dsn, "CREATE TABLE migrated (n int); INSERT INTO migrated VALUES (7)")
		})
	}))
}

func count(t *testing.T, dsn string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM migrated").Scan(&n))
	return n
}

func TestEveryTestGetsAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for range 3 {
		t.Run("clone", func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			dsn := NewDB(t)
			t.Logf("cloned in %s", time.Since(start))
			require.Equal(t, 1, count(t, dsn))
			require.NoError(t, execute(t.Context(), dsn, "INSERT INTO migrated VALUES (8)"))
			require.Equal(t, 2, count(t, dsn))
		})
	}
}

func TestAServerComesBackWithItsDataAfterStopAndKill(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := Start(t, map[string]string{"max_connections": "20"})
	dsn := server.DSN("postgres")
	require.NoError(t, execute(ctx, dsn, "CREATE TABLE migrated (n int); INSERT INTO migrated VALUES (1)"))
	port := server.Port()

	require.NoError(t, server.Stop(ctx))
	require.Error(t, execute(ctx, dsn, "SELECT 1"))
	require.NoError(t, server.Restart(ctx))
	require.Equal(t, 1, count(t, dsn))

	// A session that holds on makes the kill a hard one.
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	require.NoError(t, server.Kill(ctx))
	require.Error(t, conn.Ping(ctx))
	require.NoError(t, conn.Close(ctx))
	require.NoError(t, server.Restart(ctx))
	require.Equal(t, 1, count(t, dsn))
	require.Equal(t, port, server.Port())
	require.FileExists(t, server.LogFile())
}

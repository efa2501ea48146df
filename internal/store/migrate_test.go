package store_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
)

const objects = `SELECT (SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_versions')
	+ (SELECT count(*) FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'schema_versions')`

func TestMigrationsGoUpDownAndUpAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair().flow("x")
	require.NoError(t, w.manager.Ready(t.Context()))
	before := w.queryInt(objects)
	require.Positive(t, before)
	require.NoError(t, store.MigrateTo(t.Context(), w.url, 0))
	require.Zero(t, w.queryInt(objects))
	err := w.manager.Ready(t.Context())
	requireCode(t, flows.CodeUnavailable, err)
	require.ErrorContains(t, err, "mirrorctl migrate")

	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = store.Migrate(context.Background(), w.url) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err, "any number of processes may migrate at once")
	}
	require.Equal(t, before, w.queryInt(objects))
	require.NoError(t, w.manager.Ready(t.Context()))
	_, err = w.store.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
}

func TestADatabaseWithoutSchemaIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	u.Path = "/postgres"
	s, err := store.Open(t.Context(), u.String(), store.Options{})
	require.NoError(t, err)
	defer s.Close()
	err = s.Ready(t.Context())
	requireCode(t, flows.CodeUnavailable, err)
	require.ErrorContains(t, err, "mirrorctl migrate")
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"postgres://u:hunter2@host:port/db", "postgres://u:hunter2@%zz/"} {
		_, err := store.Open(t.Context(), bad, store.Options{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		err = store.Migrate(t.Context(), bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestAnOutageIsUnavailableAndEndsByItself(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	dsn := server.DSN("postgres")
	require.NoError(t, store.Migrate(t.Context(), dsn))
	s, err := store.Open(t.Context(), dsn, store.Options{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	hints := s.Notifications(t.Context())
	require.Equal(t, flows.Notification{Kind: "resync"}, receive(t, hints))

	require.NoError(t, server.Stop(t.Context()))
	_, err = s.ProjectByName(t.Context(), flows.DefaultProject)
	requireCode(t, flows.CodeUnavailable, err)
	_, err = s.Beat(t.Context(), "w1", ttl)
	requireCode(t, flows.CodeUnavailable, err)
	requireCode(t, flows.CodeUnavailable, s.Ready(t.Context()))

	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, flows.Notification{Kind: "resync"}, receive(t, hints), "a new connection says that anything may have been missed")
	_, err = s.ProjectByName(t.Context(), flows.DefaultProject)
	require.NoError(t, err)
}

func TestAStuckStatementEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := store.Open(t.Context(), w.url, store.Options{StatementTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer s.Close()
	held, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := w.store.Change(context.Background(), w.project, func(context.Context, flows.Tx) error {
			close(held)
			<-release
			return nil
		})
		if err != nil && !strings.Contains(err.Error(), "idle") {
			t.Error(err)
		}
	})
	<-held
	err = s.Change(t.Context(), w.project, func(context.Context, flows.Tx) error { return nil })
	requireCode(t, flows.CodeUnavailable, err)
	close(release)
	wg.Wait()
}

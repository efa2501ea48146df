package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func receive(t *testing.T, c <-chan flows.Notification) flows.Notification {
	t.Helper()
	select {
	case n, ok := <-c:
		require.True(t, ok, "the channel is closed")
		return n
	case <-time.After(20 * time.Second):
		require.FailNow(t, "no notification came")
		return flows.Notification{}
	}
}

func TestChangesWakeWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	hints := w.open().Notifications(t.Context())
	require.Equal(t, flows.Notification{Kind: "resync"}, receive(t, hints))

	f := p.flow("x")
	flowHint := flows.Notification{Kind: "flow", ID: f.ID}
	require.Equal(t, flowHint, receive(t, hints))
	o := f.Options
	o.Topics = []string{"x", "y"}
	_, err := w.manager.UpdateFlow(t.Context(), w.project, f.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, flowHint, receive(t, hints))

	key := w.acquire("w1", 1)[0].LeaseKey
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{key}))
	require.Equal(t, flows.Notification{Kind: "task", ID: f.ID}, receive(t, hints))

	in := inputOf(p.target)
	in.Description = "words"
	_, err = w.manager.UpdateService(t.Context(), w.project, p.target.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	require.Equal(t, flowHint, receive(t, hints))

	job, err := w.store.AddJob(t.Context(), flows.JobCheckService, []byte(`{}`), time.Minute)
	require.NoError(t, err)
	require.Equal(t, flows.Notification{Kind: "job", ID: job}, receive(t, hints))
	claimed, err := w.store.ClaimJob(t.Context(), "w1", ttl)
	require.NoError(t, err)
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", claimed.ID, []byte(`{}`)))

	require.NoError(t, w.manager.DeleteFlow(t.Context(), w.project, f.ID, false, flows.AnyRevision))
	require.Equal(t, flowHint, receive(t, hints), "what only a waiting request needs does not wake workers")
}

func TestALostConnectionIsReplacedAndEverybodyLooksAtEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.store.Notifications(t.Context()), w.store.Notifications(t.Context())
	resync := flows.Notification{Kind: "resync"}
	require.Equal(t, resync, receive(t, one))
	require.Equal(t, resync, receive(t, two))
	for range 2 {
		require.Equal(t, 1, w.queryInt("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"))
		require.Equal(t, resync, receive(t, one))
		require.Equal(t, resync, receive(t, two))
	}
	w.exec("NOTIFY mirrorflow, 'gibberish'")
	require.Equal(t, resync, receive(t, one))
}

func TestManyHintsBecomeOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hints := w.store.Notifications(t.Context())
	require.Equal(t, flows.Notification{Kind: "resync"}, receive(t, hints))
	w.exec("SELECT pg_notify('mirrorflow', 'flow:' || gen_random_uuid()) FROM generate_series(1, 1000)")
	last := uuid.New()
	w.exec("SELECT pg_notify('mirrorflow', 'flow:" + last.String() + "')")
	n, resync := 0, false
	for seen := false; !seen; n++ {
		h := receive(t, hints)
		resync = resync || h.Kind == "resync"
		seen = h.ID == last || h.Kind == "resync"
	}
	require.LessOrEqual(t, n, 1001)
	require.True(t, resync || n == 1001, "either everything came or a resync in its place")
}

func TestAReceiverThatLeavesGetsAClosedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	mine, other := w.store.Notifications(ctx), w.store.Notifications(t.Context())
	receive(t, other)
	cancel()
	until(t, "the channel is closed", func() bool {
		select {
		case _, ok := <-mine:
			return !ok
		default:
			return false
		}
	})
	w.store.Close()
	_, ok := <-other
	require.False(t, ok)
	_, ok = <-w.store.Notifications(t.Context())
	require.False(t, ok)
}

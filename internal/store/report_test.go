package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestAnUnchangedStatusCostsOnlyItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	p.flow("x")
	k := w.acquire("w1", 1)[0].LeaseKey
	began := time.Now().UTC().Truncate(time.Millisecond)
	status := flows.TaskStatus{State: flows.StateDegraded, Since: began, ObservedAt: began}

	// Nothing is stored under this lease yet that could be unchanged.
	lost, err := w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: k, Status: status, Unchanged: true}})
	require.NoError(t, err)
	require.Equal(t, []flows.LeaseKey{k}, lost)

	lost, err = w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: k, Status: status}})
	require.NoError(t, err)
	require.Empty(t, lost)
	later := began.Add(time.Minute)
	lost, err = w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: k, Status: flows.TaskStatus{ObservedAt: later}, Unchanged: true}})
	require.NoError(t, err)
	require.Empty(t, lost)
	s, err := w.manager.FlowStatus(t.Context(), w.project, k.FlowID)
	require.NoError(t, err)
	require.Equal(t, flows.StateDegraded, s.State)
	require.Equal(t, later, s.ObservedAt)
}

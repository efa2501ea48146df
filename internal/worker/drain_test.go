package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// overdue makes a flow whose engine does not finish its drain in time, changes the flow and waits for the drain's end.
func overdue(t *testing.T, b *bench) (*fakeEngine, flows.LeaseKey) {
	t.Helper()
	b.make = func(e *fakeEngine) error { e.obeys = false; return nil }
	key := b.lease(nil)
	b.start()
	e := b.engine(0)
	b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.Topics = []string{"new"}; s.Flow.Revision++ })
	b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
	synctest.Wait()
	require.True(t, e.wasDrained())
	require.NoError(t, e.drainCtx.Err())
	pass(drainOnHint)
	return e, key
}

func TestAnOverdueDrainIsNoLostLeaseSoThatWhatWasAcknowledgedIsStored(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		e, key := overdue(t, b)
		require.ErrorIs(t, context.Cause(e.drainCtx), engine.ErrDrainOverdue)
		require.NotErrorIs(t, context.Cause(e.drainCtx), engine.ErrLeaseLost)
		pass(500 * time.Millisecond) // the engine's time to store
		ended, _ := e.end()
		require.True(t, ended.IsZero(), "it may store what was acknowledged")
		e.fail <- engine.ErrDrainOverdue // stored, as a Run ends whose drain was overdue
		pass(0)
		_, cause := e.end()
		require.NoError(t, cause, "nobody cut it off")
		require.Equal(t, 2, b.made(), "the changed flow runs")
		require.True(t, b.store.holds(key))
		require.Empty(t, b.store.lastReport(key).Conditions, "an overdue drain is no fault")
	})
}

func TestAnEngineThatDoesNotReturnFromAnOverdueDrainIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		e, _ := overdue(t, b)
		at := time.Now()
		pass(drainGrace)
		ended, cause := e.end()
		require.ErrorIs(t, cause, engine.ErrLeaseLost)
		require.Equal(t, drainGrace, ended.Sub(at))
	})
}

func TestALeaseLostWhileAnOverdueDrainIsStoredStopsTheEngineAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		e, key := overdue(t, b)
		b.store.take(key)
		signal(b.s.renewNow)
		pass(0)
		_, cause := e.end()
		require.ErrorIs(t, cause, ErrLeaseLost)
		require.Equal(t, 1, b.made())
	})
}

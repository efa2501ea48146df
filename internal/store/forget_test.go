package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// forgetting deletes a flow together with its positions, aside.
func (w *world) forgetting(m *flows.Manager, id uuid.UUID, ifRevision int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.DeleteFlow(context.WithoutCancel(w.t.Context()), w.project, id, true, ifRevision) }()
	return done
}

func (w *world) untilDisabled(id uuid.UUID) {
	w.t.Helper()
	until(w.t, "the flow is disabled", func() bool {
		f, err := w.manager.GetFlow(w.t.Context(), w.project, id)
		require.NoError(w.t, err)
		return !f.Enabled
	})
}

// forgetJob claims the job as a worker; nil while there is none.
func (w *world) forgetJob(worker string) *flows.Job {
	w.t.Helper()
	job, err := w.store.ClaimJob(w.t.Context(), worker, ttl)
	require.NoError(w.t, err)
	if job != nil {
		require.Equal(w.t, flows.JobForgetPositions, job.Kind)
	}
	return job
}

func (w *world) awaitForgetJob(worker string) (job flows.Job, p flows.ForgetPayload) {
	w.t.Helper()
	until(w.t, "the job comes", func() bool {
		j := w.forgetJob(worker)
		if j != nil {
			job = *j
		}
		return j != nil
	})
	require.NoError(w.t, json.Unmarshal(job.Payload, &p))
	return job, p
}

func TestPositionsAreForgottenOnlyWhenTheFlowIsDisabledAndNobodyHoldsATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	in := p.input("x")
	in.TasksMax = 2
	f, err := w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
	held := w.acquire("w1", 2)
	require.Len(t, held, 2)

	err = w.managerWith(200*time.Millisecond).DeleteFlow(t.Context(), w.project, f.ID, true, flows.AnyRevision)
	requireCode(t, flows.CodeUnavailable, err)
	require.ErrorContains(t, err, "no worker gave the flow up in time")
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	f, err = w.manager.GetFlow(t.Context(), w.project, f.ID)
	require.NoError(t, err, "it is still there")

	done := w.forgetting(w.manager, f.ID, f.Revision)
	w.untilDisabled(f.ID)
	renewed, err := w.store.RenewTasks(t.Context(), "w1", ttl, keysOf(held))
	require.NoError(t, err)
	require.Len(t, renewed, 2)
	for n, r := range renewed {
		require.False(t, r.Enabled, "the holder is told to stop")
		require.Empty(t, w.acquire("w2", 10), "nobody starts it again")
		require.Nil(t, w.forgetJob("w1"), "%d tasks are held", 2-n)
		select {
		case err := <-done:
			require.FailNow(t, "it did not wait", "%v", err)
		default:
		}
		require.NoError(t, w.store.ReleaseTasks(t.Context(), "w1", []flows.LeaseKey{r.LeaseKey}))
	}
	job, payload := w.awaitForgetJob("w1")
	require.False(t, payload.Spec.Flow.Enabled)
	require.Equal(t, f.ID, payload.Spec.Flow.ID)
	require.Equal(t, p.target.ID, payload.Spec.Target.ID)
	_, err = w.manager.GetFlow(t.Context(), w.project, f.ID)
	require.NoError(t, err, "it goes after its positions")
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{}`)))
	require.NoError(t, <-done)
	_, err = w.manager.GetFlow(t.Context(), w.project, f.ID)
	requireCode(t, flows.CodeNotFound, err)
	require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))
}

func TestADeadHolderKeepsForgettingWaitingNoLongerThanItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	dead, err := w.store.AcquireTasks(t.Context(), "dead", time.Second, 1)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	done := w.forgetting(w.manager, f.ID, flows.AnyRevision)
	job, _ := w.awaitForgetJob("w1")
	renewed, err := w.store.RenewTasks(t.Context(), "dead", ttl, keysOf(dead))
	require.NoError(t, err)
	require.Empty(t, renewed, "its lease was over when the job came")
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{}`)))
	require.NoError(t, <-done)
}

func TestAnAnswerThatComesTooLateDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	done := w.forgetting(w.managerWith(time.Second), f.ID, flows.AnyRevision)
	job, _ := w.awaitForgetJob("w1")
	err := <-done
	requireCode(t, flows.CodeUnavailable, err)
	require.ErrorContains(t, err, "disabled and not deleted")
	requireCode(t, flows.CodeLeaseLost, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{}`)))
	got, err := w.manager.GetFlow(t.Context(), w.project, f.ID)
	require.NoError(t, err)
	require.False(t, got.Enabled)
	require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))

	// Asked again it goes on from there.
	done = w.forgetting(w.manager, f.ID, got.Revision)
	job, _ = w.awaitForgetJob("w1")
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{}`)))
	require.NoError(t, <-done)
}

func TestAFlowWhosePositionsCannotBeRemovedStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	done := w.forgetting(w.manager, f.ID, flows.AnyRevision)
	job, _ := w.awaitForgetJob("w1")
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{"message":"the target does not answer"}`)))
	err := <-done
	requireCode(t, flows.CodeCheckFailed, err)
	require.ErrorContains(t, err, "the target does not answer")
	got, err := w.manager.GetFlow(t.Context(), w.project, f.ID)
	require.NoError(t, err)
	require.False(t, got.Enabled)
	require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))
	got.Enabled = true
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, got.Options, got.Revision)
	require.NoError(t, err)
	require.Len(t, w.acquire("w1", 1), 1, "enabled again it runs")
}

func TestAFlowThatIsEnabledWhileItsPositionsAreRemovedIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, holds := range map[string]bool{"while the holder is waited for": true, "while the worker removes them": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := w.pair().flow("x")
			if holds {
				require.Len(t, w.acquire("w1", 1), 1)
			}
			done := w.forgetting(w.manager, f.ID, flows.AnyRevision)
			w.untilDisabled(f.ID)
			var job flows.Job
			if !holds {
				job, _ = w.awaitForgetJob("w1")
			}
			_, err := w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
			require.NoError(t, err)
			if !holds {
				require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, json.RawMessage(`{}`)))
			}
			requireCode(t, flows.CodeConflict, <-done)
			got, err := w.manager.GetFlow(t.Context(), w.project, f.ID)
			require.NoError(t, err)
			require.True(t, got.Enabled)
		})
	}
}

func TestDeletingAnOldRevisionChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	for _, forget := range []bool{false, true} {
		requireCode(t, flows.CodePreconditionFailed, w.manager.DeleteFlow(t.Context(), w.project, f.ID, forget, f.Revision+1))
		got, err := w.manager.GetFlow(t.Context(), w.project, f.ID)
		require.NoError(t, err)
		require.Equal(t, f, got, "not even disabled")
	}
	require.NoError(t, w.manager.DeleteFlow(t.Context(), w.project, f.ID, false, f.Revision))
	requireCode(t, flows.CodePreconditionFailed, w.manager.DeleteService(t.Context(), w.project, p.mm.ID, p.mm.Revision+1))
	free := w.kafka("free", "")
	require.NoError(t, w.manager.DeleteService(t.Context(), w.project, free.ID, free.Revision))
}

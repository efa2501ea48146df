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

func kafkaInput(server string) flows.ServiceInput {
	return flows.ServiceInput{Engine: flows.EngineKafka, BootstrapServers: []string{server}}
}

func refused(flows.CheckServicePayload) flows.CheckServiceResult {
	return flows.CheckServiceResult{Step: "connect", Code: "UNREACHABLE", Address: "a:1", Message: "connection refused", Remedy: "Start the broker."}
}

func TestAFailedCheckRefusesAServiceUnlessForced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.answerChecks(refused)
	_, err := w.manager.CreateService(t.Context(), w.project, kafkaInput("a:1"), false)
	requireCode(t, flows.CodeCheckFailed, err)
	require.ErrorContains(t, err, "step connect failed at a:1 (UNREACHABLE): connection refused. Start the broker.")
	require.Zero(t, w.queryInt("SELECT count(*) FROM services"))
	require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))

	s, err := w.manager.CreateService(t.Context(), w.project, kafkaInput("a:1"), true)
	require.NoError(t, err)
	require.Equal(t, flows.StatusError, s.Status)
	require.Contains(t, s.StatusDetail, "connection refused")
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM jobs WHERE service_id = $1 AND run_at > now()", s.ID), "it is tried again later")
	stop()

	w.exec("UPDATE jobs SET run_at = now()")
	job, err := w.store.ClaimJob(t.Context(), "w1", ttl)
	require.NoError(t, err)
	raw, err := json.Marshal(refused(flows.CheckServicePayload{}))
	require.NoError(t, err)
	require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, raw))
	got, err := w.manager.GetService(t.Context(), w.project, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got, "the same finding is no change")
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM jobs WHERE run_at > now() AND owner = ''"))

	w.exec("UPDATE jobs SET run_at = now()")
	defer w.answerChecks(fine)()
	until(t, "the service becomes ready", func() bool {
		got, err = w.manager.GetService(t.Context(), w.project, s.ID)
		require.NoError(t, err)
		return got.Status == flows.StatusReady
	})
	require.Equal(t, "cluster-of-a:1", got.KafkaClusterID)
	require.Equal(t, s.Revision+1, got.Revision)
	until(t, "the job goes", func() bool { return w.queryInt("SELECT count(*) FROM jobs") == 0 })
}

func TestWithoutAWorkerAServiceIsPendingUntilOneHasChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := w.managerWith(50*time.Millisecond).CreateService(t.Context(), w.project, kafkaInput("a:1"), false)
	require.NoError(t, err)
	require.Equal(t, flows.StatusPending, s.Status)
	require.NotEmpty(t, s.StatusDetail)
	defer w.answerChecks(fine)()
	until(t, "the service becomes ready", func() bool {
		got, err := w.manager.GetService(t.Context(), w.project, s.ID)
		require.NoError(t, err)
		return got.Status == flows.StatusReady && got.KafkaClusterID == "cluster-of-a:1" && got.StatusDetail == ""
	})
}

func TestAnAnswerAtTheLastMomentIsNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(flows.CheckServicePayload) flows.CheckServiceResult
		status flows.ResourceStatus
		code   flows.Code
		force  bool
	}{
		"success":        {fine, flows.StatusReady, "", false},
		"failure":        {refused, "", flows.CodeCheckFailed, false},
		"forced failure": {refused, flows.StatusError, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			late := lateStore{Store: w.store, before: func() {
				job, err := w.store.ClaimJob(t.Context(), "w1", ttl)
				require.NoError(t, err)
				var p flows.CheckServicePayload
				require.NoError(t, json.Unmarshal(job.Payload, &p))
				raw, err := json.Marshal(c.answer(p))
				require.NoError(t, err)
				require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, raw))
			}}
			m := flows.NewManager(flows.ManagerConfig{Store: late, CheckTimeout: time.Millisecond})
			s, err := m.CreateService(t.Context(), w.project, kafkaInput("a:1"), c.force)
			if c.code != "" {
				requireCode(t, c.code, err)
				require.Zero(t, w.queryInt("SELECT count(*) FROM services"))
				require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.status, s.Status)
			got, err := m.GetService(t.Context(), w.project, s.ID)
			require.NoError(t, err)
			require.Equal(t, s, got)
		})
	}
}

// lateStore has a worker answer between the end of the wait and the transaction.
type lateStore struct {
	flows.Store
	before func()
}

func (l lateStore) Change(ctx context.Context, project uuid.UUID, fn func(context.Context, flows.Tx) error) error {
	l.before()
	return l.Store.Change(ctx, project, fn)
}

func TestARequestThatIsGivenUpLeavesNoJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := w.manager.CreateService(ctx, w.project, kafkaInput("a:1"), false)
		done <- err
	}()
	until(t, "the job is there", func() bool { return w.queryInt("SELECT count(*) FROM jobs") == 1 })
	cancel()
	requireCode(t, flows.CodeUnavailable, <-done)
	require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"))
	require.Zero(t, w.queryInt("SELECT count(*) FROM services"))
}

func TestAJobIsClaimedOnceAndAgainAfterItsWorkerDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	id, err := w.store.AddJob(ctx, flows.JobCheckService, json.RawMessage(`{"bootstrapServers":["a:1"]}`), time.Minute)
	require.NoError(t, err)
	job, err := w.store.ClaimJob(ctx, "w1", short)
	require.NoError(t, err)
	require.Equal(t, id, job.ID)
	require.Equal(t, flows.JobCheckService, job.Kind)
	until(t, "the job is waiting again", func() bool {
		again, err := w.store.ClaimJob(ctx, "w2", ttl)
		require.NoError(t, err)
		return again != nil
	})
	requireCode(t, flows.CodeLeaseLost, w.store.CompleteJob(ctx, "w1", id, json.RawMessage(`{}`)))
	require.NoError(t, w.store.CompleteJob(ctx, "w2", id, json.RawMessage(`{"step":"x"}`)))
	requireCode(t, flows.CodeLeaseLost, w.store.CompleteJob(ctx, "w2", id, json.RawMessage(`{}`)))
	requireCode(t, flows.CodeLeaseLost, w.store.CompleteJob(ctx, "w2", uuid.New(), json.RawMessage(`{}`)))
	raw, err := w.store.WaitJob(ctx, id, time.Second)
	require.NoError(t, err)
	require.JSONEq(t, `{"step":"x"}`, string(raw))
	none, err := w.store.ClaimJob(ctx, "w1", ttl)
	require.NoError(t, err)
	require.Nil(t, none)
	require.NoError(t, w.store.DropJob(ctx, id))
	_, err = w.store.WaitJob(ctx, id, time.Second)
	requireCode(t, flows.CodeNotFound, err)
}

func TestAJobThatNobodyWaitsForIsNotRunAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.store.AddJob(t.Context(), flows.JobCheckService, json.RawMessage(`{}`), 0)
	require.NoError(t, err)
	job, err := w.store.ClaimJob(t.Context(), "w1", ttl)
	require.NoError(t, err)
	require.Nil(t, job)
	w.exec("UPDATE jobs SET abandon_at = now() - interval '2 minutes'")
	_, err = w.store.AddJob(t.Context(), flows.JobCheckService, json.RawMessage(`{}`), time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, w.queryInt("SELECT count(*) FROM jobs"))
}

func TestALaterCheckStoresWhatItFoundOfTheClusterThoughItFailsAsBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.answerChecks(refused)
	s, err := w.manager.CreateService(t.Context(), w.project, kafkaInput("a:1"), true)
	require.NoError(t, err)
	stop()
	check := func(r flows.CheckServiceResult) flows.Service {
		t.Helper()
		w.exec("UPDATE jobs SET run_at = now()")
		job, err := w.store.ClaimJob(t.Context(), "w1", ttl)
		require.NoError(t, err)
		raw, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, w.store.CompleteJob(t.Context(), "w1", job.ID, raw))
		got, err := w.manager.GetService(t.Context(), w.project, s.ID)
		require.NoError(t, err)
		return got
	}
	r := refused(flows.CheckServicePayload{})
	r.KafkaClusterID, r.KafkaVersion = "C", "3.9"
	got := check(r)
	require.Equal(t, "C", got.KafkaClusterID)
	require.Equal(t, "3.9", got.KafkaVersion)
	require.Equal(t, s.Revision+1, got.Revision)
	require.Equal(t, s.StatusDetail, got.StatusDetail)
	require.Equal(t, got, check(r), "the same finding is no change")
	require.Equal(t, got, check(refused(flows.CheckServicePayload{})), "what was not found is kept")
	r.KafkaVersion = "4.3"
	require.Equal(t, "4.3", check(r).KafkaVersion)
}

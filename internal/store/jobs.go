package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// AddJob implements flows.Store.
func (s *Store) AddJob(ctx context.Context, kind flows.JobKind, payload json.RawMessage, keepFor time.Duration) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, translate("add a job", err)
	}
	return id, s.inTx(ctx, "add a job", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		// Left behind by processes that died while they waited.
		if err := q.PurgeJobs(ctx); err != nil {
			return err
		}
		if err := q.InsertJob(ctx, dbsqlc.InsertJobParams{ID: id, Kind: string(kind), Payload: payload, KeepFor: keepFor}); err != nil {
			return err
		}
		return notify(ctx, q, []flows.Notification{{Kind: "job", ID: id}})
	})
}

// jobPoll is how often a waiting request looks for itself; the notification is only a hint.
const jobPoll = 500 * time.Millisecond

// WaitJob implements flows.Store.
func (s *Store) WaitJob(ctx context.Context, job uuid.UUID, timeout time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := s.listener.subscribe(ctx, func(n flows.Notification) bool {
		return n.Kind == resyncKind || (n.Kind == doneKind && n.ID == job)
	})
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	poll := time.NewTicker(jobPoll)
	defer poll.Stop()
	for last := false; ; {
		result, err := one(ctx, s, "wait for a job", func(ctx context.Context) ([]byte, error) {
			r, err := s.q.JobResult(ctx, job)
			return r, missing(err, "job", job.String())
		}, func(r []byte) (json.RawMessage, error) { return r, nil })
		if err != nil || result != nil || last {
			return result, err
		}
		select {
		case <-ctx.Done():
			return nil, translate("wait for a job", ctx.Err())
		case <-limit.C:
			last = true
		case <-wake:
		case <-poll.C:
		}
	}
}

// DropJob implements flows.Store. A job bound to a service stays, since nobody waits for it.
func (s *Store) DropJob(ctx context.Context, job uuid.UUID) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return translate("drop a job", s.q.DeleteUnboundJob(ctx, job))
}

// ClaimJob implements flows.WorkerStore. It takes a transaction, since a statement on its own takes effect also when
// its caller has gone before it began, and the job would wait for nothing.
func (s *Store) ClaimJob(ctx context.Context, worker string, ttl time.Duration) (*flows.Job, error) {
	var job *flows.Job
	err := s.inTx(ctx, "claim a job", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		job = nil
		r, err := q.ClaimJob(ctx, dbsqlc.ClaimJobParams{Worker: s.owner(worker), Ttl: ttl})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil {
			job = &flows.Job{ID: r.ID, Kind: flows.JobKind(r.Kind), Payload: r.Payload}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}

// CompleteJob implements flows.WorkerStore.
func (s *Store) CompleteJob(ctx context.Context, worker string, job uuid.UUID, result json.RawMessage) error {
	if !json.Valid(result) {
		return translate("complete a job", errors.New("the result is no JSON"))
	}
	result = storable(result)
	return s.inTx(ctx, "complete a job", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.LockServiceOfJob(ctx, job); err != nil {
			return err
		}
		r, err := q.CompleteJob(ctx, dbsqlc.CompleteJobParams{ID: job, Worker: s.owner(worker), Result: result})
		if errors.Is(err, pgx.ErrNoRows) {
			return &flows.Error{Code: flows.CodeLeaseLost, Message: "the job is gone or another worker's"}
		}
		if err != nil {
			return err
		}
		if r.ServiceID == nil {
			return notify(ctx, q, []flows.Notification{{Kind: doneKind, ID: job}})
		}
		return completeCheck(ctx, q, job, *r.ServiceID, result)
	})
}

// completeCheck stores what a bound check found. A failed one runs again later.
func completeCheck(ctx context.Context, q *dbsqlc.Queries, job, service uuid.UUID, raw json.RawMessage) error {
	var result flows.CheckServiceResult
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("read a check's result: %w", err)
	}
	status, detail := flows.ServiceStatusOf(result)
	known, err := q.ClusterInUse(ctx, service)
	if err != nil {
		return err
	}
	moved := known != "" && result.KafkaClusterID != "" && result.KafkaClusterID != known
	if moved {
		status, detail = flows.StatusError, flows.AnotherCluster(known, result.KafkaClusterID)
		result.KafkaClusterID, result.KafkaVersion = "", ""
	}
	changed, err := q.SetServiceChecked(ctx, dbsqlc.SetServiceCheckedParams{
		ID: service, Status: string(status), StatusDetail: plain(detail),
		KafkaClusterID: result.KafkaClusterID, KafkaVersion: result.KafkaVersion,
	})
	if err != nil {
		return err
	}
	if changed > 0 {
		users, err := q.FlowsOfService(ctx, service)
		if err != nil {
			return err
		}
		hints := make([]flows.Notification, 0, len(users))
		for _, id := range users {
			hints = append(hints, flows.Notification{Kind: "flow", ID: id})
		}
		if err := notify(ctx, q, hints); err != nil {
			return err
		}
	}
	if result.Step != "" || moved {
		return q.RetryJob(ctx, job)
	}
	return q.DeleteJob(ctx, job)
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// eventsKept is how many events of a flow stay; the oldest go first.
const eventsKept = 10000

// RecordEvents implements flows.WorkerStore.
func (s *Store) RecordEvents(ctx context.Context, worker string, key flows.LeaseKey, events []flows.Event) error {
	if len(events) == 0 {
		return nil
	}
	p := dbsqlc.InsertEventsParams{FlowID: key.FlowID, Worker: worker, TaskEpoch: key.Epoch}
	for _, e := range events {
		subject, err := json.Marshal(e.Subject)
		if err != nil {
			return translate("record events", fmt.Errorf("encode the subject of %s: %w", e.Code, err))
		}
		if e.Evidence != nil && !json.Valid(e.Evidence) {
			return translate("record events", fmt.Errorf("the evidence of %s is no JSON", e.Code))
		}
		at := e.At
		if at.IsZero() {
			at = time.Unix(0, 0) // the query puts the database's time in its place
		}
		p.Ats = append(p.Ats, at)
		p.Codes = append(p.Codes, e.Code)
		p.Subjects = append(p.Subjects, string(storable(subject)))
		p.Messages = append(p.Messages, plain(e.Message))
		p.Evidences = append(p.Evidences, string(storable(e.Evidence)))
	}
	return s.inTx(ctx, "record events", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		// The flow's row before the task's, as changing a flow locks them.
		last, err := q.ReserveEvents(ctx, dbsqlc.ReserveEventsParams{FlowID: key.FlowID, Events: int64(len(events))})
		if err != nil {
			return leaseLost(err)
		}
		if err := s.hold(ctx, q, worker, key); err != nil {
			return err
		}
		p.BeforeFirst = last - int64(len(events))
		if err := q.InsertEvents(ctx, p); err != nil {
			return err
		}
		return q.TrimEvents(ctx, dbsqlc.TrimEventsParams{FlowID: key.FlowID, LastGone: last - eventsKept})
	})
}

// plain makes any text storable.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ClaimTopics implements flows.WorkerStore.
func (s *Store) ClaimTopics(ctx context.Context, worker string, key flows.LeaseKey, kafkaClusterID string, remoteTopics []string) (map[string]uuid.UUID, error) {
	foreign := map[string]uuid.UUID{}
	err := s.withHeld(ctx, "claim topics", worker, key, func(ctx context.Context, q *dbsqlc.Queries) error {
		clear(foreign)
		won, err := q.ClaimTopics(ctx, dbsqlc.ClaimTopicsParams{KafkaClusterID: plain(kafkaClusterID), FlowID: key.FlowID, Topics: remoteTopics})
		if err != nil || len(won) == len(remoteTopics) {
			return err
		}
		rows, err := q.ForeignTopics(ctx, dbsqlc.ForeignTopicsParams{KafkaClusterID: plain(kafkaClusterID), FlowID: key.FlowID, Topics: remoteTopics})
		for _, r := range rows {
			foreign[r.Topic] = r.FlowID
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return foreign, nil
}

// ReleaseTopics implements flows.WorkerStore.
func (s *Store) ReleaseTopics(ctx context.Context, worker string, key flows.LeaseKey, kafkaClusterID string, remoteTopics []string) error {
	return s.withHeld(ctx, "release topics", worker, key, func(ctx context.Context, q *dbsqlc.Queries) error {
		return q.ReleaseTopics(ctx, dbsqlc.ReleaseTopicsParams{KafkaClusterID: plain(kafkaClusterID), FlowID: key.FlowID, Topics: remoteTopics})
	})
}

// withHeld runs fn in a transaction in which nobody can take the task from the worker.
func (s *Store) withHeld(ctx context.Context, op, worker string, key flows.LeaseKey, fn func(ctx context.Context, q *dbsqlc.Queries) error) error {
	return s.inTx(ctx, op, pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.LockFlowKey(ctx, key.FlowID); err != nil {
			return leaseLost(err)
		}
		if err := s.hold(ctx, q, worker, key); err != nil {
			return err
		}
		return fn(ctx, q)
	})
}

package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// GetService implements flows.Store.
func (s *Store) GetService(ctx context.Context, project, id uuid.UUID) (flows.Service, error) {
	return one(ctx, s, "get a service", func(ctx context.Context) (dbsqlc.Service, error) {
		r, err := s.q.GetService(ctx, dbsqlc.GetServiceParams{ProjectID: project, ID: id})
		return r, missing(err, "service", id.String())
	}, fromDBService)
}

// ListServices implements flows.Store.
func (s *Store) ListServices(ctx context.Context, project uuid.UUID, f flows.ServiceFilter, after uuid.UUID, limit int) ([]flows.Service, error) {
	return many(ctx, s, "list services", func(ctx context.Context) ([]dbsqlc.Service, error) {
		return s.q.ListServices(ctx, dbsqlc.ListServicesParams{ProjectID: project, After: after, Engine: string(f.Engine), MaxRows: int32(limit)})
	}, fromDBService)
}

// GetIntegration implements flows.Store.
func (s *Store) GetIntegration(ctx context.Context, project, id uuid.UUID) (flows.Integration, error) {
	return one(ctx, s, "get an integration", func(ctx context.Context) (dbsqlc.Integration, error) {
		r, err := s.q.GetIntegration(ctx, dbsqlc.GetIntegrationParams{ProjectID: project, ID: id})
		return r, missing(err, "integration", id.String())
	}, fromDBIntegration)
}

// ListIntegrations implements flows.Store.
func (s *Store) ListIntegrations(ctx context.Context, project uuid.UUID, f flows.IntegrationFilter, after uuid.UUID, limit int) ([]flows.Integration, error) {
	return many(ctx, s, "list integrations", func(ctx context.Context) ([]dbsqlc.Integration, error) {
		return s.q.ListIntegrations(ctx, dbsqlc.ListIntegrationsParams{
			ProjectID: project, After: after, ServiceID: unlessNil(f.ServiceID), MaxRows: int32(limit),
		})
	}, fromDBIntegration)
}

// GetFlow implements flows.Store.
func (s *Store) GetFlow(ctx context.Context, project, id uuid.UUID) (flows.Flow, error) {
	return one(ctx, s, "get a flow", func(ctx context.Context) (dbsqlc.Flow, error) {
		r, err := s.q.GetFlow(ctx, dbsqlc.GetFlowParams{ProjectID: project, ID: id})
		return r, missing(err, "replication", id.String())
	}, fromDBFlow)
}

// ListFlows implements flows.Store.
func (s *Store) ListFlows(ctx context.Context, project uuid.UUID, f flows.FlowFilter, after uuid.UUID, limit int) ([]flows.Flow, error) {
	return many(ctx, s, "list flows", func(ctx context.Context) ([]dbsqlc.Flow, error) {
		return s.q.ListFlows(ctx, dbsqlc.ListFlowsParams{
			ProjectID: project, After: after, MirrorMakerID: unlessNil(f.MirrorMakerID), MaxRows: int32(limit),
		})
	}, fromDBFlow)
}

func unlessNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// snapshot is a transaction that sees one instant.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// GetFlowTasks implements flows.Store.
func (s *Store) GetFlowTasks(ctx context.Context, project, id uuid.UUID) (flows.FlowTasks, error) {
	var out flows.FlowTasks
	err := s.inTx(ctx, "get a flow's tasks", snapshot, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.GetFlow(ctx, dbsqlc.GetFlowParams{ProjectID: project, ID: id})
		if err != nil {
			return missing(err, "replication", id.String())
		}
		out = flows.FlowTasks{}
		if out.Flow, err = fromDBFlow(row); err != nil {
			return err
		}
		tasks, err := q.FlowTasks(ctx, id)
		if err != nil {
			return err
		}
		for _, r := range tasks {
			out.AliveWorkers, out.Now = int(r.Alive), r.ObservedAt.UTC()
		}
		out.Tasks, err = convert("read tasks", tasks, fromDBTask)
		return err
	})
	return out, err
}

// ListFlowEvents implements flows.Store.
func (s *Store) ListFlowEvents(ctx context.Context, flow uuid.UUID, before int64, limit int) ([]flows.Event, error) {
	return many(ctx, s, "list events", func(ctx context.Context) ([]dbsqlc.Event, error) {
		return s.q.ListEvents(ctx, dbsqlc.ListEventsParams{FlowID: flow, Before: before, MaxRows: int32(limit)})
	}, fromDBEvent)
}

package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// GetFlowSpec implements flows.WorkerStore.
func (s *Store) GetFlowSpec(ctx context.Context, flow uuid.UUID) (flows.FlowSpec, error) {
	var spec flows.FlowSpec
	err := s.inTx(ctx, "read a flow's specification", snapshot, func(ctx context.Context, q *dbsqlc.Queries) error {
		specs, err := readSpecs(ctx, q, []uuid.UUID{flow})
		if err != nil {
			return err
		}
		var ok bool
		if spec, ok = specs[flow]; !ok {
			return missing(pgx.ErrNoRows, "replication", flow.String())
		}
		return nil
	})
	return spec, err
}

// readSpecs reads what the flows need to run, in three queries whatever their number. Flows that do not
// exist are left out.
func readSpecs(ctx context.Context, q *dbsqlc.Queries, ids []uuid.UUID) (map[uuid.UUID]flows.FlowSpec, error) {
	rows, err := q.FlowsForWorker(ctx, ids)
	if err != nil {
		return nil, err
	}
	var services, projects []uuid.UUID
	seen := map[uuid.UUID]bool{}
	note := func(list *[]uuid.UUID, id uuid.UUID) {
		if !seen[id] {
			seen[id] = true
			*list = append(*list, id)
		}
	}
	for _, r := range rows {
		note(&services, r.SourceServiceID)
		note(&services, r.TargetServiceID)
		note(&projects, r.ProjectID)
	}
	serviceRows, err := q.ServicesForWorker(ctx, services)
	if err != nil {
		return nil, err
	}
	byID := make(map[uuid.UUID]flows.Service, len(serviceRows))
	for _, r := range serviceRows {
		if byID[r.ID], err = fromDBService(r); err != nil {
			return nil, err
		}
	}
	aliasRows, err := q.AliasesOfProjects(ctx, projects)
	if err != nil {
		return nil, err
	}
	aliases := map[uuid.UUID][]string{}
	for _, r := range aliasRows {
		aliases[r.ProjectID] = append(aliases[r.ProjectID], r.Alias)
	}
	specs := make(map[uuid.UUID]flows.FlowSpec, len(rows))
	for _, r := range rows {
		f, err := fromDBFlow(r)
		if err != nil {
			return nil, err
		}
		source, okSource := byID[r.SourceServiceID]
		target, okTarget := byID[r.TargetServiceID]
		if !okSource || !okTarget {
			return nil, fmt.Errorf("flow %s refers to a service that is not there", r.ID)
		}
		specs[r.ID] = flows.FlowSpec{Flow: f, Source: source, Target: target, KnownAliases: aliases[r.ProjectID]}
	}
	return specs, nil
}

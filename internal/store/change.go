package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// Change implements flows.Store.
func (s *Store) Change(ctx context.Context, project uuid.UUID, fn func(ctx context.Context, tx flows.Tx) error) error {
	return s.inTx(ctx, "change a project", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.LockProject(ctx, project); err != nil {
			return missing(err, "project", project.String())
		}
		t := &tx{q: q, project: project}
		if err := fn(ctx, t); err != nil {
			return err
		}
		return notify(ctx, q, t.hints)
	})
}

// tx is flows.Tx. Its methods answer untranslated errors, except for what the rules decide on; Change
// translates what fn returns.
type tx struct {
	q       *dbsqlc.Queries
	project uuid.UUID
	hints   []flows.Notification
}

func (t *tx) hint(kind string, ids ...uuid.UUID) {
	for _, id := range ids {
		t.hints = append(t.hints, flows.Notification{Kind: kind, ID: id})
	}
}

// read converts what a query answered.
func read[R, T any](row R, err error, op, noun string, id uuid.UUID, from func(R) (T, error)) (T, error) {
	if err != nil {
		var zero T
		return zero, translate(op, missing(err, noun, id.String()))
	}
	v, err := from(row)
	return v, translate(op, err)
}

// gone turns "no row" of a deletion into CodeNotFound.
func gone(n int64, err error, op, noun string, id uuid.UUID) error {
	if err == nil && n == 0 {
		err = pgx.ErrNoRows
	}
	return translate(op, missing(err, noun, id.String()))
}

func (t *tx) GetService(ctx context.Context, id uuid.UUID) (flows.Service, error) {
	r, err := t.q.LockService(ctx, dbsqlc.LockServiceParams{ProjectID: t.project, ID: id})
	return read(r, err, "get a service", "service", id, fromDBService)
}

func (t *tx) InsertService(ctx context.Context, s flows.Service) (flows.Service, error) {
	c, err := toDBService(s)
	if err != nil {
		return flows.Service{}, translate("insert a service", err)
	}
	r, err := t.q.InsertService(ctx, dbsqlc.InsertServiceParams{
		ID: s.ID, ProjectID: t.project, Engine: string(s.Engine), Description: s.Description, Alias: c.alias,
		BootstrapServers: s.BootstrapServers, Security: c.security, Sealed: c.sealed, KafkaClusterID: s.KafkaClusterID,
		KafkaVersion: s.KafkaVersion, Plan: s.Plan, Version: s.Version, NodesPattern: s.NodesPattern,
		Status: string(s.Status), StatusDetail: s.StatusDetail,
	})
	return read(r, err, "insert a service", "service", s.ID, fromDBService)
}

func (t *tx) UpdateService(ctx context.Context, s flows.Service) (flows.Service, error) {
	c, err := toDBService(s)
	if err != nil {
		return flows.Service{}, translate("update a service", err)
	}
	r, err := t.q.UpdateService(ctx, dbsqlc.UpdateServiceParams{
		ProjectID: t.project, ID: s.ID, Description: s.Description, Alias: c.alias, BootstrapServers: s.BootstrapServers,
		Security: c.security, Sealed: c.sealed, KafkaClusterID: s.KafkaClusterID, KafkaVersion: s.KafkaVersion,
		Plan: s.Plan, Version: s.Version, NodesPattern: s.NodesPattern, Status: string(s.Status),
		StatusDetail: s.StatusDetail, CredentialsRevision: s.CredentialsRevision,
	})
	if err != nil {
		return flows.Service{}, translate("update a service", missing(err, "service", s.ID.String()))
	}
	// Workers that use the service look for new credentials.
	users, err := t.q.FlowsOfService(ctx, s.ID)
	if err != nil {
		return flows.Service{}, translate("list a service's flows", err)
	}
	t.hint("flow", users...)
	return read(r, nil, "update a service", "service", s.ID, fromDBService)
}

func (t *tx) DeleteService(ctx context.Context, id uuid.UUID) error {
	n, err := t.q.DeleteService(ctx, dbsqlc.DeleteServiceParams{ProjectID: t.project, ID: id})
	return gone(n, err, "delete a service", "service", id)
}

func (t *tx) UsesOfService(ctx context.Context, id uuid.UUID) (integrations, users []uuid.UUID, err error) {
	if integrations, err = t.q.IntegrationsOfService(ctx, id); err == nil {
		users, err = t.q.FlowsOfService(ctx, id)
	}
	return integrations, users, translate("list a service's uses", err)
}

func (t *tx) TouchFlows(ctx context.Context, service uuid.UUID) error {
	ids, err := t.q.TouchFlowsOfService(ctx, service)
	t.hint("flow", ids...)
	return translate("touch a service's flows", err)
}

func (t *tx) FlowsAt(ctx context.Context, service uuid.UUID) ([]flows.FlowRoute, error) {
	rows, err := t.q.FlowEnds(ctx, service)
	if err != nil {
		return nil, translate("list a service's flows", err)
	}
	return convert("list a service's flows", rows, fromDBFlowEnds)
}

func (t *tx) BindCheck(ctx context.Context, job, service uuid.UUID) (json.RawMessage, error) {
	result, err := t.q.LockJob(ctx, job)
	switch {
	case err != nil:
		return nil, translate("bind a check", missing(err, "job", job.String()))
	case result != nil:
		return result, translate("remove a job", t.q.DeleteJob(ctx, job))
	}
	return nil, translate("bind a check", t.q.BindJob(ctx, dbsqlc.BindJobParams{ID: job, ServiceID: &service}))
}

func (t *tx) AddCheck(ctx context.Context, service uuid.UUID, payload json.RawMessage, delay time.Duration) error {
	id, err := uuid.NewV7()
	if err == nil {
		err = t.q.InsertJob(ctx, dbsqlc.InsertJobParams{
			ID: id, Kind: string(flows.JobCheckService), Payload: payload, ServiceID: &service, Delay: delay,
		})
	}
	t.hint("job", id)
	return translate("add a check", err)
}

func (t *tx) DropChecks(ctx context.Context, service uuid.UUID) error {
	return translate("drop a service's checks", t.q.DeleteJobsOfService(ctx, &service))
}

func (t *tx) GetIntegration(ctx context.Context, id uuid.UUID) (flows.Integration, error) {
	r, err := t.q.GetIntegration(ctx, dbsqlc.GetIntegrationParams{ProjectID: t.project, ID: id})
	return read(r, err, "get an integration", "integration", id, fromDBIntegration)
}

func (t *tx) IntegrationBetween(ctx context.Context, source, destination uuid.UUID) (uuid.UUID, error) {
	id, err := t.q.IntegrationBetween(ctx, dbsqlc.IntegrationBetweenParams{SourceServiceID: source, DestinationServiceID: destination})
	err = translate("find an integration", err)
	if flows.CodeOf(err) == flows.CodeNotFound {
		return uuid.Nil, nil
	}
	return id, err
}

func (t *tx) InsertIntegration(ctx context.Context, i flows.Integration) (flows.Integration, error) {
	var parameters []byte
	if i.Parameters != nil {
		var err error
		if parameters, err = json.Marshal(i.Parameters); err != nil {
			return flows.Integration{}, translate("insert an integration", err)
		}
	}
	r, err := t.q.InsertIntegration(ctx, dbsqlc.InsertIntegrationParams{
		ID: i.ID, ProjectID: t.project, Type: i.Type, SourceServiceID: i.SourceServiceID,
		DestinationServiceID: i.DestinationServiceID, Parameters: parameters,
	})
	return read(r, err, "insert an integration", "integration", i.ID, fromDBIntegration)
}

func (t *tx) DeleteIntegration(ctx context.Context, id uuid.UUID) error {
	n, err := t.q.DeleteIntegration(ctx, dbsqlc.DeleteIntegrationParams{ProjectID: t.project, ID: id})
	return gone(n, err, "delete an integration", "integration", id)
}

func (t *tx) FlowsOfIntegration(ctx context.Context, id uuid.UUID) ([]uuid.UUID, error) {
	ids, err := t.q.FlowsOfIntegration(ctx, id)
	return ids, translate("list an integration's flows", err)
}

func (t *tx) GetFlow(ctx context.Context, id uuid.UUID) (flows.Flow, error) {
	r, err := t.q.LockFlow(ctx, dbsqlc.LockFlowParams{ProjectID: t.project, ID: id})
	return read(r, err, "get a flow", "replication", id, fromDBFlow)
}

func (t *tx) FlowRoutes(ctx context.Context, target flows.Service, withIdentity bool) ([]flows.FlowRoute, error) {
	p := dbsqlc.FlowRoutesParams{ProjectID: t.project, TargetServiceID: target.ID, TargetCluster: target.KafkaClusterID}
	if withIdentity {
		p.IdentityClass = flows.IdentityPolicyClass
	}
	rows, err := t.q.FlowRoutes(ctx, p)
	if err != nil {
		return nil, translate("list flow routes", err)
	}
	return convert("list flow routes", rows, fromDBFlowRoute)
}

func (t *tx) InsertFlow(ctx context.Context, f flows.Flow) (flows.Flow, error) {
	p := toDBFlow(f)
	p.ProjectID = t.project
	r, err := t.q.InsertFlow(ctx, p)
	if err == nil {
		err = t.q.SpreadTasks(ctx, f.ID)
	}
	var taught []uuid.UUID
	if err == nil {
		taught, err = t.q.TeachAliases(ctx, dbsqlc.TeachAliasesParams{ProjectID: t.project, ID: f.ID})
	}
	t.hint("flow", append(taught, f.ID)...)
	return read(r, err, "insert a flow", "replication", f.ID, fromDBFlow)
}

func (t *tx) UpdateFlow(ctx context.Context, f flows.Flow) (flows.Flow, error) {
	p := toDBFlowUpdate(f)
	p.ProjectID = t.project
	r, err := t.q.UpdateFlow(ctx, p)
	if err == nil {
		err = t.q.SpreadTasks(ctx, f.ID)
	}
	if err == nil {
		err = t.q.LockTasks(ctx, f.ID)
	}
	if err == nil {
		err = t.q.SetTasksRunnable(ctx, f.ID)
	}
	if err == nil {
		err = t.q.TrimTasks(ctx, []uuid.UUID{f.ID})
	}
	t.hint("flow", f.ID)
	return read(r, err, "update a flow", "replication", f.ID, fromDBFlow)
}

func (t *tx) DeleteFlow(ctx context.Context, id uuid.UUID) error {
	n, err := t.q.DeleteFlow(ctx, dbsqlc.DeleteFlowParams{ProjectID: t.project, ID: id})
	t.hint("flow", id)
	return gone(n, err, "delete a flow", "replication", id)
}

func (t *tx) FlowSpec(ctx context.Context, id uuid.UUID) (flows.FlowSpec, error) {
	specs, err := readSpecs(ctx, t.q, []uuid.UUID{id})
	if err != nil {
		return flows.FlowSpec{}, translate("read a flow's specification", err)
	}
	spec, ok := specs[id]
	if !ok || spec.Flow.ProjectID != t.project {
		return flows.FlowSpec{}, missing(pgx.ErrNoRows, "replication", id.String())
	}
	return spec, nil
}

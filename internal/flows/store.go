package flows

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Store is what Manager needs of the database. All errors are *Error. Objects
// of another project do not exist (CodeNotFound). Lists are ordered by id and
// begin after the given id (uuid.Nil: at the beginning).
type Store interface {
	GetService(ctx context.Context, project, id uuid.UUID) (Service, error)
	ListServices(ctx context.Context, project uuid.UUID, f ServiceFilter, after uuid.UUID, limit int) ([]Service, error)
	GetIntegration(ctx context.Context, project, id uuid.UUID) (Integration, error)
	ListIntegrations(ctx context.Context, project uuid.UUID, f IntegrationFilter, after uuid.UUID, limit int) ([]Integration, error)
	GetFlow(ctx context.Context, project, id uuid.UUID) (Flow, error)
	ListFlows(ctx context.Context, project uuid.UUID, f FlowFilter, after uuid.UUID, limit int) ([]Flow, error)
	// GetFlowTasks reads a flow and the state of its tasks at one instant of the database.
	GetFlowTasks(ctx context.Context, project, id uuid.UUID) (FlowTasks, error)
	// ListFlowEvents answers the newest events first, those with an id below before; the caller
	// has made sure that the flow is the project's.
	ListFlowEvents(ctx context.Context, flow uuid.UUID, before int64, limit int) ([]Event, error)

	// Change runs fn in one transaction that holds the project's lock, so that changes of one
	// project happen one after the other and fn's reads stay true until it ends. fn may run more
	// than once (after a deadlock or a serialization failure) and must not touch anything but tx.
	// An error of fn rolls everything back and is returned as it is.
	Change(ctx context.Context, project uuid.UUID, fn func(ctx context.Context, tx Tx) error) error

	// AddJob leaves a job that the caller will wait for; nobody runs it later than keepFor from now.
	AddJob(ctx context.Context, kind JobKind, payload json.RawMessage, keepFor time.Duration) (uuid.UUID, error)
	// WaitJob waits until the job has a result or the timeout has passed; nil: no result in time.
	WaitJob(ctx context.Context, job uuid.UUID, timeout time.Duration) (json.RawMessage, error)
	// DropJob removes a job that its caller waits for no longer, whatever its state. One that was bound
	// to a service (BindCheck) is the service's and stays; one that is gone is no error.
	DropJob(ctx context.Context, job uuid.UUID) error

	// ProjectByToken finds the project of a token's SHA-256; CodeUnauthenticated when there is none.
	ProjectByToken(ctx context.Context, hash [32]byte) (Project, error)
	ProjectByName(ctx context.Context, name string) (Project, error)
	// Ready answers nil when Postgres answers and its schema is the one this program needs.
	Ready(ctx context.Context) error
}

// Tx is a transaction of Store.Change: everything in it is about one project.
// What it writes comes back as stored.
type Tx interface {
	// GetService locks the service against workers that store what a check found.
	GetService(ctx context.Context, id uuid.UUID) (Service, error)
	// InsertService answers CodeConflict when the alias is taken.
	InsertService(ctx context.Context, s Service) (Service, error)
	// UpdateService writes everything but id, project and engine, counts Revision up and takes
	// CredentialsRevision from s.
	UpdateService(ctx context.Context, s Service) (Service, error)
	DeleteService(ctx context.Context, id uuid.UUID) error
	// UsesOfService lists what refers to the service, directly or through integrations.
	UsesOfService(ctx context.Context, id uuid.UUID) (integrations, flows []uuid.UUID, err error)
	// TouchFlows counts up the revision of all flows with an end at the service, so that their
	// tasks start again.
	TouchFlows(ctx context.Context, service uuid.UUID) error
	// FlowsAt lists the flows with an end at the service; without lists.
	FlowsAt(ctx context.Context, service uuid.UUID) ([]FlowRoute, error)

	// BindCheck hands a check that nobody waits for any longer to the service, so that its result
	// goes there. A result that came meanwhile is answered instead and the job is removed.
	BindCheck(ctx context.Context, job, service uuid.UUID) (json.RawMessage, error)
	// AddCheck leaves a check bound to the service, to be run after delay.
	AddCheck(ctx context.Context, service uuid.UUID, payload json.RawMessage, delay time.Duration) error
	// DropChecks removes the service's bound checks: their results would be about the past.
	DropChecks(ctx context.Context, service uuid.UUID) error

	GetIntegration(ctx context.Context, id uuid.UUID) (Integration, error)
	// IntegrationBetween answers uuid.Nil when there is none.
	IntegrationBetween(ctx context.Context, source, destination uuid.UUID) (uuid.UUID, error)
	InsertIntegration(ctx context.Context, i Integration) (Integration, error)
	DeleteIntegration(ctx context.Context, id uuid.UUID) error
	FlowsOfIntegration(ctx context.Context, id uuid.UUID) ([]uuid.UUID, error)

	GetFlow(ctx context.Context, id uuid.UUID) (Flow, error)
	// FlowRoutes lists the flows that write to target's cluster (the same service or the same
	// known cluster id), and all flows with the identity policy if withIdentity.
	FlowRoutes(ctx context.Context, target Service, withIdentity bool) ([]FlowRoute, error)
	// InsertFlow stores the flow and its tasks. Flows to which it brings topics, directly or over
	// others, under an alias that they do not know yet start again (their Revision grows): without
	// the alias they would not recognise a loop.
	InsertFlow(ctx context.Context, f Flow) (Flow, error)
	// UpdateFlow writes the options, counts Revision up and brings the tasks in line.
	UpdateFlow(ctx context.Context, f Flow) (Flow, error)
	DeleteFlow(ctx context.Context, id uuid.UUID) error
	// FlowSpec reads what a worker would get.
	FlowSpec(ctx context.Context, id uuid.UUID) (FlowSpec, error)
}

// FlowRoute is what the rules between flows look at.
type FlowRoute struct {
	FlowID        uuid.UUID
	SourceService uuid.UUID
	TargetService uuid.UUID
	SourceCluster string // Kafka cluster id, "" while unknown
	TargetCluster string
	SourceAlias   string
	PolicyClass   string
	Separator     string
	Topics        []string
	Excludes      []string
}

// FlowTasks is a flow with what the database knows of its tasks.
type FlowTasks struct {
	Flow  Flow
	Tasks []TaskState
	// AliveWorkers counts workers whose lease has not run out.
	AliveWorkers int
	// Now is the database's clock, which all times here come from.
	Now time.Time
}

// TaskState is one task as the database knows it.
type TaskState struct {
	Task  int
	Owner string // "" when free
	Epoch int64
	// Held is true while the owner's lease lasts.
	Held bool
	// Since is when the task was last acquired, freed or made runnable, or when its dead
	// owner's lease ran out.
	Since time.Time
	// Report is the last report, of whatever term; nil when there was none.
	Report *TaskStatus
	// ReportEpoch is the term of Report. A report of an earlier term says where things
	// stood, not what runs.
	ReportEpoch int64
}

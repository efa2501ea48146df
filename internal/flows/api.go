package flows

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// ServiceInput is a whole service as a caller wants it. Secrets follow SecretChange's rule.
type ServiceInput struct {
	Engine           Engine
	Description      string
	Alias            *string // nil: generated on create, kept on update
	BootstrapServers []string
	Security         Security
	Secrets          SecretChange
	Plan             string
	Version          string
	NodesPattern     json.RawMessage
}

// IntegrationInput is the body of an integration.
type IntegrationInput struct {
	Type                 string // "" means kafkaMirrorMaker
	SourceServiceID      uuid.UUID
	DestinationServiceID uuid.UUID
	Parameters           map[string]string
}

// FlowInput is the body of a new flow. Options are complete: adapters start
// from DefaultOptions and overlay what the caller sent.
type FlowInput struct {
	SourceIntegration          uuid.UUID
	TargetIntegration          uuid.UUID
	ReplicationPolicyClass     string // "" means DefaultPolicyClass
	ReplicationPolicySeparator string // "" means "."
	Options
}

// Page asks for a part of a list, ordered by id (events: newest first). Cursor is opaque; "" is the beginning.
type Page struct {
	Limit  int // 1..1000; 0 means 100
	Cursor string
}

// List is one page and the cursor of the next, "" at the end.
type List[T any] struct {
	Items []T
	Next  string
}

// ServiceFilter narrows ListServices; zero members do not filter.
type ServiceFilter struct{ Engine Engine }

// IntegrationFilter narrows ListIntegrations. ServiceID matches either end.
type IntegrationFilter struct{ ServiceID uuid.UUID }

// FlowFilter narrows ListFlows.
type FlowFilter struct{ MirrorMakerID uuid.UUID }

// AnyRevision as ifRevision means: change whatever is there.
const AnyRevision int64 = 0

// API is what callers may ask of the domain. Every method acts inside one
// project; objects of other projects do not exist (CodeNotFound for the object
// the path names, CodeInvalid with a pointer for one the body names).
// All errors are *Error.
type API interface {
	// CreateService validates, seals secrets, and for kafka services has a worker check the
	// connection (10 s at most). A failed check is CodeCheckFailed unless force. Without a worker
	// in time the service is stored with StatusPending.
	CreateService(ctx context.Context, project uuid.UUID, in ServiceInput, force bool) (Service, error)
	GetService(ctx context.Context, project, id uuid.UUID) (Service, error)
	ListServices(ctx context.Context, project uuid.UUID, f ServiceFilter, p Page) (List[Service], error)
	// UpdateService replaces a service. The engine never changes; the alias not once a flow uses
	// it. A changed connection is checked like on create. Secrets that in does not name are kept,
	// and refused (CodeInvalid with their pointers) when addresses, protocol, mechanism, token
	// endpoint, roots or server name change: a stored secret is never sent to another place.
	UpdateService(ctx context.Context, project, id uuid.UUID, in ServiceInput, ifRevision int64, force bool) (Service, error)
	// DeleteService refuses with CodeConflict, naming the integrations and flows, while it is used.
	DeleteService(ctx context.Context, project, id uuid.UUID, ifRevision int64) error

	CreateIntegration(ctx context.Context, project uuid.UUID, in IntegrationInput) (Integration, error)
	GetIntegration(ctx context.Context, project, id uuid.UUID) (Integration, error)
	ListIntegrations(ctx context.Context, project uuid.UUID, f IntegrationFilter, p Page) (List[Integration], error)
	// DeleteIntegration refuses with CodeConflict naming the flows that use it.
	DeleteIntegration(ctx context.Context, project, id uuid.UUID) error

	CreateFlow(ctx context.Context, project uuid.UUID, in FlowInput) (Flow, error)
	GetFlow(ctx context.Context, project, id uuid.UUID) (Flow, error)
	ListFlows(ctx context.Context, project uuid.UUID, f FlowFilter, p Page) (List[Flow], error)
	// UpdateFlow replaces the options. Integrations, policy class and separator never change.
	UpdateFlow(ctx context.Context, project, id uuid.UUID, o Options, ifRevision int64) (Flow, error)
	// DeleteFlow stops and removes a flow; copies stay on the target, and so do positions unless
	// forget is true, in which case the flow is disabled and a worker removes them first (a job, 10 s
	// at most). When that fails the flow stays, disabled.
	DeleteFlow(ctx context.Context, project, id uuid.UUID, forget bool, ifRevision int64) error
	FlowStatus(ctx context.Context, project, id uuid.UUID) (FlowStatus, error)
	// ListFlowEvents lists the newest first. The newest 10,000 events of a flow are kept.
	ListFlowEvents(ctx context.Context, project, id uuid.UUID, p Page) (List[Event], error)

	// Authenticate finds the project of a token's text; CodeUnauthenticated when there is none.
	Authenticate(ctx context.Context, token string) (Project, error)
	// ProjectByName finds a project; CodeNotFound when there is none.
	ProjectByName(ctx context.Context, name string) (Project, error)
	// Ready answers nil when requests can be served (Postgres answers, schema current).
	Ready(ctx context.Context) error
}

// DefaultOptions returns the options of a flow whose creator named none (Enabled is false).
func DefaultOptions() Options {
	return Options{
		Topics:                   []string{".*"},
		TopicExcludeList:         []string{},
		SyncInterval:             60 * time.Second,
		EmitHeartbeats:           true,
		Groups:                   []string{".*"},
		GroupExcludeList:         []string{"console-consumer-.*", "connect-.*", "__.*"},
		TasksMax:                 1,
		ReplicationFactor:        -1,
		OffsetSyncsTopicLocation: "target",
		OffsetLagMax:             100,
		IsolationLevel:           "read_committed",
		StartPosition:            StartEarliest,
		SyncTopicConfigs:         true,
		TopicConfigSyncMode:      "incremental",
		ConfigPropertiesExclude: []string{
			"follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
			"message.timestamp.difference.max.ms", "message.timestamp.before.max.ms",
			"message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms",
			"log.message.timestamp.after.max.ms", "message.timestamp.type",
			"unclean.leader.election.enable", "min.insync.replicas",
		},
		EmitHeartbeatsInterval:  time.Second,
		EmitBackwardHeartbeats:  false,
		EmitCheckpointsInterval: 5 * time.Second,
		RefreshTopicsInterval:   5 * time.Second,
		RefreshGroupsInterval:   5 * time.Second,
	}
}

package flows

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Sealer encrypts a secret so that only workers can read it.
type Sealer interface {
	// Seal needs nothing from outside, so trying again does not help: an error means that no public
	// key is configured. Its text, which the caller gets to see, says which setting is missing.
	Seal(plaintext string) (SealedSecret, error)
}

// LeaseKey identifies a term of a lease: no two terms share (FlowID, Task, Epoch).
type LeaseKey struct {
	FlowID uuid.UUID
	Task   int
	Epoch  int64
}

// TaskLease is a lease just acquired, with all that is needed to run the task.
type TaskLease struct {
	LeaseKey
	Spec FlowSpec
}

// FlowSpec is everything a worker needs to run a flow.
type FlowSpec struct {
	Flow   Flow
	Source Service
	Target Service
	// KnownAliases are all aliases of the project's kafka services (cycle detection, D11).
	KnownAliases []string
}

// RenewedLease tells a holder what changed meanwhile.
type RenewedLease struct {
	LeaseKey
	FlowRevision              int64
	SourceCredentialsRevision int64
	TargetCredentialsRevision int64
	// TasksMax is how many tasks the flow has now. Another number than in the lease's Spec: drain
	// and release, since other partitions are the task's now. Nothing of the flow is given out
	// before all that was acquired under the old number is released.
	TasksMax int
	Enabled  bool // false: drain and release
}

// TaskReport is one task's status to be stored under its lease.
type TaskReport struct {
	LeaseKey
	Status TaskStatus
	// Unchanged: but for ObservedAt, Status is what was stored last under this lease.
	Unchanged bool
}

// JobKind tells what a job does.
type JobKind string

// The kinds.
const (
	// JobCheckService connects to a cluster. Payload CheckServicePayload, result CheckServiceResult.
	JobCheckService JobKind = "check_service"
	// JobForgetPositions removes a flow's positions from the target before the flow is deleted.
	// Payload ForgetPayload, result ForgetResult.
	JobForgetPositions JobKind = "forget_positions"
)

// CheckServicePayload is what a worker needs to try a cluster.
type CheckServicePayload struct {
	BootstrapServers []string                     `json:"bootstrapServers"`
	Security         Security                     `json:"security"`
	Sealed           map[SecretField]SealedSecret `json:"sealed"`
}

// CheckServiceResult is what the worker found. Step is "" on success.
type CheckServiceResult struct {
	Step           string `json:"step,omitempty"` // resolve, connect, tls, authenticate, api_versions, metadata, advertised, secrets
	Code           string `json:"code,omitempty"` // UNREACHABLE, NOT_KAFKA, TLS_FAILED, AUTH_FAILED, FORBIDDEN
	Address        string `json:"address,omitempty"`
	Message        string `json:"message,omitempty"`
	Remedy         string `json:"remedy,omitempty"`
	KafkaClusterID string `json:"kafkaClusterId,omitempty"`
	KafkaVersion   string `json:"kafkaVersion,omitempty"`
}

// ForgetResult is how a worker answers JobForgetPositions.
type ForgetResult struct {
	// Message is "" on success, else one sentence for the person who asked.
	Message string `json:"message,omitempty"`
}

// ForgetPayload names the flow whose positions go. It is disabled and held by nobody; it is deleted
// when the worker has answered.
type ForgetPayload struct {
	Spec FlowSpec `json:"spec"`
}

// Job is a short piece of work that the API leaves in Postgres for a worker.
type Job struct {
	ID      uuid.UUID
	Kind    JobKind
	Payload json.RawMessage
}

// WorkerStore is what workers need of the store. Every write matches (flow, task, owner, epoch);
// a write under a lost lease answers CodeLeaseLost (for batches: the keys that were lost).
// All times of leases are the database's.
//
// A worker is a name in one process: started again under the same name it is another worker, and the old one's
// leases end when they end. One lease, the worker's, carries all its tasks. It is extended by Beat, AcquireTasks and
// RenewTasks; when it runs out all its tasks are lost at once, also those that nobody else has taken yet. A task that
// RenewTasks leaves out for a ttl becomes free.
type WorkerStore interface {
	// Beat registers the worker or refreshes its last-seen time, and answers how many workers
	// are alive (seen within ttl).
	Beat(ctx context.Context, worker string, ttl time.Duration) (alive int, err error)
	// Leave says that the worker takes no more tasks (it is stopping): the others' fair shares count it no longer, and
	// none is moved to it. It goes on renewing what it holds; Beat and AcquireTasks undo it.
	Leave(ctx context.Context, worker string) error
	// AcquireTasks takes up to limit free or expired tasks of enabled flows (SKIP LOCKED, epoch+1),
	// never exceeding the worker's fair share (ceil(all tasks/workers that take tasks)) while others do, except for
	// tasks that others moved to it (MoveTask). Of each flow it takes its fair share at first, the rest when it has been
	// free for 2 s.
	// All tasks of a flow that are held at a time were acquired with one Spec.Flow.TasksMax: after a
	// change nothing of the flow is given out until the last lease of before is released or over.
	AcquireTasks(ctx context.Context, worker string, ttl time.Duration, limit int) ([]TaskLease, error)
	// RenewTasks extends everything the worker holds in one statement; keys missing in the answer are lost.
	RenewTasks(ctx context.Context, worker string, ttl time.Duration, keys []LeaseKey) ([]RenewedLease, error)
	// MoveTask answers a lease that the worker should give up after a clean drain since another worker has at least two
	// fewer tasks, or, if several is true (the worker runs more than one task of some flow), at least two fewer of that
	// flow. The task is kept for that worker for 3 s after its release. Until then it answers the same lease again. nil:
	// there is none, or it is not certain.
	MoveTask(ctx context.Context, worker string, several bool) (*LeaseKey, error)
	// ReleaseTasks gives leases back at once and wakes other workers.
	ReleaseTasks(ctx context.Context, worker string, keys []LeaseKey) error
	// GetFlowSpec reads a flow's current specification; CodeNotFound when the flow is deleted.
	GetFlowSpec(ctx context.Context, flow uuid.UUID) (FlowSpec, error)
	// ReportTasks stores statuses; it answers the keys whose lease is lost.
	ReportTasks(ctx context.Context, worker string, reports []TaskReport) (lost []LeaseKey, err error)
	// RecordEvents stores events of a held task.
	RecordEvents(ctx context.Context, worker string, key LeaseKey, events []Event) error
	// ClaimTopics makes the flow the owner of remote topics on a Kafka cluster; the answer maps
	// each topic that another existing flow owns to that flow's id, uuid.Nil for a flow of another project. Ownership ends when a flow is deleted
	// or the topic leaves the claim set of its owner (ReleaseTopics).
	ClaimTopics(ctx context.Context, worker string, key LeaseKey, kafkaClusterID string, remoteTopics []string) (map[string]uuid.UUID, error)
	ReleaseTopics(ctx context.Context, worker string, key LeaseKey, kafkaClusterID string, remoteTopics []string) error
	// ClaimJob takes one waiting job (SKIP LOCKED; a job whose worker died is waiting again after ttl); nil: none.
	ClaimJob(ctx context.Context, worker string, ttl time.Duration) (*Job, error)
	// CompleteJob stores the result; for a check bound to a stored service it updates that service too,
	// and a failed one runs again later. CodeLeaseLost: the job is gone or another worker's.
	CompleteJob(ctx context.Context, worker string, job uuid.UUID, result json.RawMessage) error
	// Notifications delivers wake-ups until ctx ends: hints only, coalesced, possibly lost; after a
	// reconnect one is always sent so that the receiver looks at everything again.
	Notifications(ctx context.Context) <-chan Notification
}

// Notification is a hint that something of this kind changed.
type Notification struct {
	Kind string    // "flow", "task", "job", "resync"
	ID   uuid.UUID // zero for resync
}

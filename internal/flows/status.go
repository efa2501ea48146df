package flows

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// FlowState is what the engine observed, never what was asked for.
type FlowState string

// The states.
const (
	StatePending  FlowState = "PENDING"  // enabled, no worker yet
	StateStarting FlowState = "STARTING" // a worker holds it, nothing observed yet
	StateRunning  FlowState = "RUNNING"
	StateDegraded FlowState = "DEGRADED" // something stopped, the rest goes on
	StateFailed   FlowState = "FAILED"   // nothing moves
	StateStopped  FlowState = "STOPPED"  // disabled
)

// Severity of a condition.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// Subject says what a condition or event is about; empty members: the whole flow.
type Subject struct {
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Group     string `json:"group,omitempty"`
}

// Condition is a fault or notice while it lasts. Codes: docs/conditions.md.
type Condition struct {
	Code     string         `json:"code"`
	Severity Severity       `json:"severity"`
	Since    time.Time      `json:"since"`
	Subject  Subject        `json:"subject"`
	Message  string         `json:"message"`
	Evidence map[string]any `json:"evidence,omitempty"`
	Remedy   string         `json:"remedy"`
}

// PartitionStatus is one mirrored partition. Offsets are next offsets; -1: unknown.
type PartitionStatus struct {
	Partition          int32  `json:"partition"`
	LogStartOffset     int64  `json:"logStartOffset"`
	LogEndOffset       int64  `json:"logEndOffset"`
	Position           int64  `json:"position"` // next source offset to be mirrored and acknowledged
	TargetLogEndOffset int64  `json:"targetLogEndOffset"`
	RecordLag          int64  `json:"recordLag"`
	State              string `json:"state"` // RUNNING, FAILED, WAITING
}

// TopicStatus is one mirrored topic.
type TopicStatus struct {
	Name       string            `json:"name"`
	RemoteName string            `json:"remoteName"`
	Partitions []PartitionStatus `json:"partitions"`
}

// ExcludedTopic is a topic that exists on the source and is not mirrored, and why.
type ExcludedTopic struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// GroupTopicStatus is one committed offset of a group and its translation.
type GroupTopicStatus struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	SourceOffset int64  `json:"sourceOffset"`
	TargetOffset *int64 `json:"targetOffset"` // nil: not translated, Reason says why
	Exact        bool   `json:"exact"`
	// Bound is how many records may at most be read again; 0 when exact.
	Bound  int64  `json:"bound,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// GroupStatus is one consumer group the flow looks after.
type GroupStatus struct {
	Group  string             `json:"group"`
	State  string             `json:"state"` // the group's state on the source
	Topics []GroupTopicStatus `json:"topics"`
}

// TaskStatus is what one task of a flow reports; stored as JSON.
type TaskStatus struct {
	State          FlowState       `json:"state"`
	Since          time.Time       `json:"since"`
	ObservedAt     time.Time       `json:"observedAt"`
	Conditions     []Condition     `json:"conditions,omitempty"`
	Topics         []TopicStatus   `json:"topics,omitempty"`
	ExcludedTopics []ExcludedTopic `json:"excludedTopics,omitempty"`
	Groups         []GroupStatus   `json:"groups,omitempty"`
}

// TaskAssignment says who runs a task.
type TaskAssignment struct {
	Task   int    `json:"task"`
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
}

// FlowStatus is the merged view of a flow's tasks.
type FlowStatus struct {
	TaskStatus
	// RecordLag is nil while it is not known: a task has no holder, or its holder has not looked at any partition yet.
	RecordLag *int64
	Tasks     []TaskAssignment
}

// Event is something that happened, kept with its evidence (D9).
type Event struct {
	ID        int64
	FlowID    uuid.UUID
	At        time.Time
	Code      string
	Subject   Subject
	Message   string
	Evidence  json.RawMessage
	Worker    string
	TaskEpoch int64
}

// Package report holds what the engine's rooms tell the outside: states,
// conditions, events, positions, group translations, and panics as errors. It
// owns shapes and their merging only, imports nothing of ours but kafka's problem codes, and does no I/O.
package report

import "time"

// State of a task.
type State string

// The states; MM2 has none of them.
const (
	Starting State = "STARTING"
	Running  State = "RUNNING"
	Degraded State = "DEGRADED" // something stopped, the rest goes on
	Failed   State = "FAILED"   // nothing moves
	Stopped  State = "STOPPED"
)

// Severity of a condition.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Subject of a condition or event. Partition is -1 when not about one.
type Subject struct {
	Topic     string // name on the source
	Partition int32
	Group     string
}

// Flow is the subject of what concerns the whole flow.
var Flow = Subject{Partition: -1}

// Condition codes (docs/conditions.md); connection problems are SOURCE_ or TARGET_ and kafka's code.
const (
	NoTopicsMatched       = "NO_TOPICS_MATCHED"
	TopicCreateFailed     = "TOPIC_CREATE_FAILED"
	TopicNameInvalid      = "TOPIC_NAME_INVALID"
	TopicUndecided        = "TOPIC_UNDECIDED"
	TopicOwnedByOther     = "TOPIC_OWNED_BY_OTHER_FLOW"
	TopicRecreated        = "TOPIC_RECREATED"
	TopicConfigSyncFailed = "TOPIC_CONFIG_SYNC_FAILED"
	TargetTopicMissing    = "TARGET_TOPIC_MISSING"
	TargetPartitions      = "TARGET_PARTITIONS_MISSING"
	OffsetsLost           = "OFFSETS_LOST"
	SourceTruncated       = "SOURCE_TRUNCATED"
	SourceTopicGone       = "SOURCE_TOPIC_GONE"
	SourceCorrupt         = "SOURCE_CORRUPT"
	TargetDataLost        = "TARGET_DATA_LOST"
	RecordTooLarge        = "RECORD_TOO_LARGE"
	RecordRefused         = "RECORD_REFUSED"
	OpenTransaction       = "OPEN_TRANSACTION"
	ForeignWrites         = "FOREIGN_WRITES"
	GroupActiveOnTarget   = "GROUP_ACTIVE_ON_TARGET"
	GroupSyncFailed       = "GROUP_SYNC_FAILED"
	HeartbeatFailed       = "HEARTBEAT_FAILED"
	StateFailed           = "STATE_FAILED"
	OffsetSyncsFailed     = "OFFSET_SYNCS_FAILED"
	IdempotenceDenied     = "IDEMPOTENT_WRITES_DENIED"
	RateLimited           = "RATE_LIMITED"
)

// Condition is a fault or notice while it lasts. Identity is (Code, Subject).
type Condition struct {
	Code     string
	Severity Severity
	Since    time.Time // set by Board at first sight, kept while the condition lasts
	Subject  Subject
	Message  string // one sentence: what is wrong, with names and numbers
	Evidence map[string]any
	Remedy   string // one sentence: what to do
}

// Event is something that happened: a gap, a reset, a recreation. Kept for ever by the sink.
type Event struct {
	At       time.Time
	Code     string
	Subject  Subject
	Message  string
	Evidence map[string]any // offsets and counts
}

// Partition is one mirrored partition. Offsets are next offsets; -1: unknown.
type Partition struct {
	Partition                             int32
	LogStart, LogEnd, Position, TargetEnd int64
	Lag                                   int64  // records: max(0, end - max(position, log start))
	State                                 string // RUNNING, FAILED, WAITING
}

// Topic is one mirrored topic; Partitions are those of this task.
type Topic struct {
	Name, RemoteName string
	Partitions       []Partition
}

// Excluded is a topic on the source that is not mirrored, and why.
type Excluded struct{ Name, Reason string }

// GroupOffset is one committed offset and its translation.
type GroupOffset struct {
	Topic        string // name on the source
	Partition    int32
	SourceOffset int64
	TargetOffset int64 // -1: none, Reason says why
	Exact        bool
	Bound        int64 // records that may be read again; 0 when exact
	Reason       string
}

// Group is one consumer group on the source.
type Group struct {
	Group, State string
	Offsets      []GroupOffset
}

// Status is all that a task knows of itself.
type Status struct {
	State      State
	Since      time.Time
	ObservedAt time.Time
	Conditions []Condition
	Topics     []Topic
	Excluded   []Excluded
	Groups     []Group
}

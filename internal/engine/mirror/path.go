package mirror

import "context"

// TP is a topic-partition.
type TP struct {
	Topic     string
	Partition int32
}

// Assignment gives a partition to a path.
type Assignment struct {
	Source TP
	Target TP // same partition number
	// Start is the next source offset to read. It is never interpreted: an offset that the
	// source does not have stops the partition (StopOutOfRange).
	Start int64
	// SourceTopicID as it was when Start was decided; a partition whose topic has another id
	// stops with StopRecreated. Zero: not known (brokers without topic ids).
	SourceTopicID [16]byte
	// TargetTopicID as it was when Start was decided; another id stops the partition with
	// StopTargetMissing. Zero: the id found first is the one to keep to.
	TargetTopicID [16]byte
	// Point is how far an earlier run had come, with Start as its Source: what that run wrote behind the point is found on the
	// target and not written again. nil: not known, or not to be relied on.
	Point *Point
}

// Point is what a successor needs to go on exactly where a run of a partition ended.
type Point struct {
	// Source is the next source offset to mirror; Target the target offset behind the last record written before.
	Source, Target int64
	// ProducerID and Epoch are the identity under which the next record is written, Sequence its number. ProducerID -1: only
	// Target is known.
	ProducerID int64
	Epoch      int16
	Sequence   int32
}

// Span says that Count consecutive acknowledged records, at source offsets Source..Source+Count-1,
// lie at target offsets Target..Target+Count-1. Spans of a partition arrive in source order.
type Span struct {
	Source, Target, Count int64
	// Bytes of keys, values and headers; of a batch that passed through as they came, compressed or not.
	Bytes int64
	// FirstTimestamp and LastTimestamp are record timestamps in ms (replication latency): a batch's base and largest one.
	FirstTimestamp, LastTimestamp int64
}

// Reason tells why a partition stopped.
type Reason int

// The reasons. A stopped partition does not touch its neighbours.
const (
	StopOutOfRange        Reason = iota // the source does not have the offset; decide and assign again
	StopRecreated                       // the source topic has another id now
	StopSourceMissing                   // topic or partition unknown on the source
	StopSourceRefused                   // READ denied
	StopTooLarge                        // one record exceeds a limit of the target
	StopRefused                         // the target refuses a record for its content (timestamp, null key on compacted, ...)
	StopTargetMissing                   // topic or partition unknown on the target
	StopTargetDenied                    // WRITE denied
	StopForeign                         // an acknowledgement's base offset shows a foreign write (informational: copying goes on)
	StopCorrupt                         // a batch from the source fails its checksum or does not parse
	StopSourceUnavailable               // the source answers, but not for this partition (no leader, broker down)
	StopTargetUnavailable               // the target answers, but not for this partition (no leader, too few replicas)
)

var reasonNames = [...]string{
	"out_of_range", "recreated", "source_missing", "source_refused", "too_large", "refused", "target_missing",
	"target_denied", "foreign", "corrupt", "source_unavailable", "target_unavailable",
}

// String is the reason's name in logs and metrics.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonNames) {
		return "unknown"
	}
	return reasonNames[r]
}

// Stop describes a stopped partition.
type Stop struct {
	Reason   Reason
	Offset   int64  // source offset of the record concerned, or the offset asked for; -1: not about one
	Message  string // one sentence with names and numbers
	Evidence map[string]any
	Retry    bool // the path tries again by itself with growing back-off; false: it waits for a new Assign
	Err      error
}

// Ends are a partition's bounds on the source as last seen, offsets; -1 unknown.
type Ends struct{ LogStart, HighWatermark, LastStable int64 }

// Observer receives what a path sees. Calls come one at a time, those for one partition in
// order, and none for an older Assign once a newer one has returned. They must be quick, and must
// not call the path: Assign, Unassign and Drain wait for the call under way.
type Observer interface {
	// Mirrored tells of acknowledged records; next is the point behind them, which may be stored. Nothing but both together
	// is true: a position without its point is none to go on from exactly.
	Mirrored(source TP, spans []Span, next Point)
	// Passed says that everything below next has been read and acknowledged or is not to be
	// mirrored (control records, aborted data, compacted holes): the position may be stored.
	Passed(source TP, next int64)
	Seen(source TP, e Ends)
	Stopped(source TP, s Stop)
	// Resumed says that the last Stopped is over: the side that stopped the partition served it again.
	Resumed(source TP)
	// Connection reports a lasting failure to reach a side ("source", "target"), nil when it is over.
	Connection(side string, err error)
	// Idempotence says that the target denies idempotent writes, so that a lost answer may cost a duplicate; nil when
	// it grants them again. Copying goes on in either case.
	Idempotence(denied error)
}

// Path moves records. Assign, Unassign and Drain may be called while Run runs.
type Path interface {
	// Run works until ctx ends; it then abandons what is not acknowledged. Failures of clusters
	// are retried for ever with back-off and reported to the Observer; an error is a fault of ours.
	Run(ctx context.Context) error
	// Assign adds partitions or restarts stopped ones at a new Start.
	Assign(a []Assignment)
	// Unassign stops partitions and returns when their records in flight are acknowledged or ctx ends.
	Unassign(ctx context.Context, source []TP) error
	// Drain stops fetching everything and returns when all in flight is acknowledged, or ctx ends.
	Drain(ctx context.Context) error
}

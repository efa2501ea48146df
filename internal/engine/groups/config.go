package groups

import (
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Translator maps committed offsets. It is called often and must not block on I/O for long; it is safe for concurrent use.
type Translator interface {
	// Translate maps a committed offset (the next record to read) of a source partition to the target's partition of the
	// same number. ok is false when there is no mapping, and reason then says why in words for people.
	Translate(sourceTopic string, partition int32, offset int64) (tr Translation, ok bool, reason string)
}

// Translation is where a committed offset lies on the target.
type Translation struct {
	// Target never lies above what the target acknowledged.
	Target int64
	// Exact is false when Target lies below the true place, by at most Bound records.
	Exact bool
	Bound int64
	// TopicID is the id of the topic on the target that Target belongs to: it says nothing of a topic made anew under the
	// same name. Zero where it is not known, as on brokers before 2.8.
	TopicID [16]byte
}

// Config describes the group work of one flow. All members are required unless it says otherwise.
type Config struct {
	// Source and Target are clients of the two clusters; the caller closes them. Target must have been made with
	// kgo.RecordPartitioner(kgo.ManualPartitioner()): checkpoints go to partition 0.
	Source, Target *kgo.Client

	Policy                   mm2.ReplicationPolicy
	SourceAlias, TargetAlias string
	GroupFilter              *mm2.GroupFilter
	// TopicFilter tells whether the flow's lists accept a source topic; offsets on others are ignored.
	TopicFilter func(sourceTopic string) bool
	Translator  Translator

	// MayWrite is asked right before group offsets or checkpoints are sent; false: not now. Default: always.
	MayWrite func() bool

	// SyncGroupOffsets: commit on the target (sync.group.offsets.enabled). Checkpoints are written all the same.
	SyncGroupOffsets bool
	// SyncInterval between commits (sync.group.offsets.interval.seconds). A partition's first commit does not wait for it.
	SyncInterval time.Duration
	// CheckpointInterval between checkpoints (emit.checkpoints.interval.seconds); 0 writes none.
	CheckpointInterval time.Duration
	// RefreshInterval between looks for new and deleted groups (refresh.groups.interval.seconds).
	RefreshInterval time.Duration
	// ReplicationFactor of the checkpoints topic when it is made here; -1 leaves it to the cluster.
	ReplicationFactor int16

	Board  *report.Board
	Logger *slog.Logger
	Now    func() time.Time // default time.Now
}

func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("groups: "+what))
		}
	}
	need(c.Source != nil && c.Target != nil, "Source and Target are required")
	need(c.Policy != nil && c.GroupFilter != nil && c.TopicFilter != nil && c.Translator != nil, "Policy, GroupFilter, TopicFilter and Translator are required")
	need(c.SourceAlias != "" && c.TargetAlias != "", "SourceAlias and TargetAlias are required")
	need(!c.SyncGroupOffsets || c.SyncInterval > 0, "SyncInterval must be positive")
	need(c.CheckpointInterval >= 0, "CheckpointInterval must not be negative")
	need(c.RefreshInterval > 0, "RefreshInterval must be positive")
	need(c.Board != nil && c.Logger != nil, "Board and Logger are required")
	need(c.Target == nil || kafka.PartitionsManually(c.Target), "Target must have the manual partitioner")
	if c.MayWrite == nil {
		c.MayWrite = func() bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return errors.Join(errs...)
}

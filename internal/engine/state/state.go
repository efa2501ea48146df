package state

import (
	"context"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// Key identifies a partition's state: by remote name, so that two flows with different
// policies from one alias do not share it. The topic name carries the source alias.
type Key struct {
	RemoteTopic string
	Partition   int32
}

// Entry is a partition's state. Position and Map are stored in one record, so they never disagree.
type Entry struct {
	SourceTopic   string
	SourceTopicID [16]byte // zero: not known
	TargetTopicID [16]byte
	// Position is the next source offset to mirror: everything below it is acknowledged, filtered or listed in events.
	Position int64
	// TargetNext is the target offset after the last acknowledged record; -1: none yet.
	TargetNext int64
	// Producer is under which identity the next record is written; nil: not known.
	Producer   *Producer
	Map        *mm2.OffsetMap // nil: none, as in what was adopted from MM2
	LeaseEpoch int64          // of the writer, as read; Save puts its own
}

// Producer is the identity of an idempotent producer at a position: the next record has the number Sequence, and lies at the
// target offset Target unless somebody else writes there.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
	Target   int64
}

// Store is opened for one (source alias, target cluster).
type Store interface {
	// Load reads the topics to their end (creating ours, compacted, when missing) and returns all entries.
	Load(ctx context.Context) (map[Key]Entry, error)
	// Save writes entries and returns when the target acknowledged them all (acks=all). On error
	// nothing may be assumed about which were stored.
	Save(ctx context.Context, entries map[Key]Entry) error
	// Forget removes entries (tombstones in our topic and in MM2's).
	Forget(ctx context.Context, keys []Key) error
	Close()
}

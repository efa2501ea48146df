package mm2

import "fmt"

// Heartbeat says that the flow from SourceAlias to TargetAlias was alive at Timestamp (epoch milliseconds). It is
// written to the heartbeats topic of the target cluster, partition 0, with Timestamp as the record's timestamp too.
type Heartbeat struct {
	SourceAlias string
	TargetAlias string
	Timestamp   int64
}

// Key encodes the record key. The error is ErrStringTooLong.
func (h Heartbeat) Key() ([]byte, error) {
	var w writer
	w.string(h.SourceAlias)
	w.string(h.TargetAlias)
	return w.bytes()
}

// Value encodes the record value, version 0.
func (h Heartbeat) Value() []byte {
	var w writer
	w.int16(recordVersion)
	w.int64(h.Timestamp)
	return w.buf
}

// String renders the heartbeat as MM2's HeartbeatFormatter does.
func (h Heartbeat) String() string {
	return fmt.Sprintf("Heartbeat{sourceClusterAlias=%s, targetClusterAlias=%s, timestamp=%d}", h.SourceAlias, h.TargetAlias, h.Timestamp)
}

// DecodeHeartbeat decodes a record of a heartbeats topic. Trailing bytes are ignored. Errors: ErrTombstone,
// ErrTruncated, ErrVersion.
func DecodeHeartbeat(key, value []byte) (Heartbeat, error) {
	var h Heartbeat
	if value == nil {
		return h, ErrTombstone
	}
	k, v := reader{buf: key}, reader{buf: value}
	v.version()
	h.Timestamp = v.int64("timestamp")
	h.SourceAlias = k.string("sourceClusterAlias")
	h.TargetAlias = k.string("targetClusterAlias")
	if err := firstError(v.err, k.err); err != nil {
		return Heartbeat{}, fmt.Errorf("decode heartbeat: %w", err)
	}
	return h, nil
}

// Checkpoint relates a group's committed offset on the source to the one on the target. Topic is the name on the
// target; both offsets are committed offsets, that is the next record to read. Metadata is the group's commit metadata,
// copied verbatim.
type Checkpoint struct {
	Group      string
	Topic      string
	Partition  int32
	Upstream   int64
	Downstream int64
	Metadata   string
}

// TopicPartition is the partition on the target that the checkpoint is about.
func (c Checkpoint) TopicPartition() TopicPartition { return TopicPartition{c.Topic, c.Partition} }

// Key encodes the record key. The error is ErrStringTooLong.
func (c Checkpoint) Key() ([]byte, error) {
	var w writer
	w.string(c.Group)
	w.string(c.Topic)
	w.int32(c.Partition)
	return w.bytes()
}

// Value encodes the record value, version 0. The error is ErrStringTooLong.
func (c Checkpoint) Value() ([]byte, error) {
	var w writer
	w.int16(recordVersion)
	w.int64(c.Upstream)
	w.int64(c.Downstream)
	w.string(c.Metadata)
	return w.bytes()
}

// String renders the checkpoint as MM2's CheckpointFormatter does.
func (c Checkpoint) String() string {
	return fmt.Sprintf("Checkpoint{consumerGroupId=%s, topicPartition=%s, upstreamOffset=%d, downstreamOffset=%d, metadata=%s}",
		c.Group, c.TopicPartition(), c.Upstream, c.Downstream, c.Metadata)
}

// DecodeCheckpoint decodes a record of a checkpoints topic. Trailing bytes are ignored. Errors: ErrTombstone,
// ErrTruncated, ErrVersion.
func DecodeCheckpoint(key, value []byte) (Checkpoint, error) {
	var c Checkpoint
	if value == nil {
		return c, ErrTombstone
	}
	k, v := reader{buf: key}, reader{buf: value}
	v.version()
	c.Upstream = v.int64("upstreamOffset")
	c.Downstream = v.int64("offset")
	c.Metadata = v.string("metadata")
	c.Group = k.string("group")
	c.Topic = k.string("topic")
	c.Partition = k.int32("partition")
	if err := firstError(v.err, k.err); err != nil {
		return Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, nil
}

// OffsetSync says that the source record at Upstream is the target record at Downstream. Topic is the name on the
// source; both are offsets of one record, not next offsets. The value has no version.
type OffsetSync struct {
	Topic      string
	Partition  int32
	Upstream   int64
	Downstream int64
}

// TopicPartition is the partition on the source that the sync is about.
func (s OffsetSync) TopicPartition() TopicPartition { return TopicPartition{s.Topic, s.Partition} }

// Key encodes the record key. The error is ErrStringTooLong.
func (s OffsetSync) Key() ([]byte, error) {
	var w writer
	w.string(s.Topic)
	w.int32(s.Partition)
	return w.bytes()
}

// Value encodes the record value.
func (s OffsetSync) Value() []byte {
	var w writer
	w.int64(s.Upstream)
	w.int64(s.Downstream)
	return w.buf
}

// String renders the sync as MM2's OffsetSyncFormatter does.
func (s OffsetSync) String() string {
	return fmt.Sprintf("OffsetSync{topicPartition=%s, upstreamOffset=%d, downstreamOffset=%d}", s.TopicPartition(), s.Upstream, s.Downstream)
}

// DecodeOffsetSync decodes a record of an offset-syncs topic. Trailing bytes are ignored. Errors: ErrTombstone,
// ErrTruncated.
func DecodeOffsetSync(key, value []byte) (OffsetSync, error) {
	var s OffsetSync
	if value == nil {
		return s, ErrTombstone
	}
	k, v := reader{buf: key}, reader{buf: value}
	s.Upstream = v.int64("upstreamOffset")
	s.Downstream = v.int64("offset")
	s.Topic = k.string("topic")
	s.Partition = k.int32("partition")
	if err := firstError(v.err, k.err); err != nil {
		return OffsetSync{}, fmt.Errorf("decode offset sync: %w", err)
	}
	return s, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

package mm2

// RenameTopic is the name on the target that a checkpoint for a source topic carries: topics that came from the target
// go by their name there ("B.t" on A is "t" on B), all others by their remote name. MM2 strips every prefix of a topic
// that came from the target, so that it names "B.orders.v1" "v1"; the name that the target knows is "orders.v1".
func RenameTopic(p ReplicationPolicy, sourceAlias, targetAlias, topic string) string {
	if up, ok := p.IsRemoteOf(targetAlias, topic); ok {
		return up
	}
	return p.FormatRemoteTopic(sourceAlias, topic)
}

// MoreRecent tells whether next is to be written after last for the same group and partition: the source group went
// back, or the target offset goes forward. Equal target offsets are not written again.
func MoreRecent(last, next Checkpoint) bool {
	return next.Upstream < last.Upstream || next.Downstream > last.Downstream
}

// CheckpointStore remembers the newest checkpoint of each group and target partition, as MM2's checkpoint task does.
type CheckpointStore struct {
	groups map[string]map[TopicPartition]Checkpoint
}

// NewCheckpointStore builds an empty store.
func NewCheckpointStore() *CheckpointStore {
	return &CheckpointStore{groups: make(map[string]map[TopicPartition]Checkpoint)}
}

// Load takes a checkpoint read from the checkpoints topic; the last one wins, whatever it says.
func (s *CheckpointStore) Load(c Checkpoint) {
	g := s.groups[c.Group]
	if g == nil {
		g = make(map[TopicPartition]Checkpoint)
		s.groups[c.Group] = g
	}
	g[c.TopicPartition()] = c
}

// ShouldEmit tells whether a translated checkpoint is to be written (MoreRecent than the one known, or the first).
// It remembers nothing: call Load once the write is decided. Negative offsets are never written.
func (s *CheckpointStore) ShouldEmit(c Checkpoint) bool {
	if c.Downstream < 0 || c.Upstream < 0 {
		return false
	}
	last, ok := s.groups[c.Group][c.TopicPartition()]
	return !ok || MoreRecent(last, c)
}

// Get returns the newest checkpoint of a group for a target partition.
func (s *CheckpointStore) Get(group string, tp TopicPartition) (Checkpoint, bool) {
	c, ok := s.groups[group][tp]
	return c, ok
}

// Group returns all checkpoints of a group by target partition. The map is the store's own: read only.
func (s *CheckpointStore) Group(group string) map[TopicPartition]Checkpoint { return s.groups[group] }

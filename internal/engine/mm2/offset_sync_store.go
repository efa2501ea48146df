package mm2

// SyncsPerPartition is the number of slots of OffsetSyncStore for one partition.
const SyncsPerPartition = 64

// OffsetSyncStore translates committed offsets by offset syncs exactly as MM2's class of the same name, which keeps, per
// source partition, 64 slots of syncs, newest first, ever farther apart:
//
//	A: slot 0 is the newest sync read
//	B: U[i] <= U[j] + 2^j - 2^i      (not too old)
//	C: U[i] >= U[j] + 2^max(i-2,0)   (well separated, where the two differ)
//	D: slot 63 is the oldest usable sync
//
// for i < j. Arithmetic is 64 bits wide and wraps; a bound that wrapped counts as satisfied for B and as violated for C.
type OffsetSyncStore struct {
	mustReadToEnd bool
	readToEnd     bool
	// Slots hold the same pointer where Java holds the same object: equality of numbers is not identity.
	slots map[TopicPartition]*[SyncsPerPartition]*OffsetSync
}

// NewOffsetSyncStore builds an empty store. mustReadToEnd is true when no earlier checkpoints could be loaded: then
// only the newest sync of each partition present at the start is used, so that translation never goes back behind what
// an earlier life may have said.
func NewOffsetSyncStore(mustReadToEnd bool) *OffsetSyncStore {
	return &OffsetSyncStore{
		mustReadToEnd: mustReadToEnd,
		slots:         make(map[TopicPartition]*[SyncsPerPartition]*OffsetSync),
	}
}

// Started says that the offset-syncs topic was read to the end it had at the start. Nothing is translated before.
func (s *OffsetSyncStore) Started() { s.readToEnd = true }

// Add takes the next sync of the topic.
func (s *OffsetSyncStore) Add(sync OffsetSync) {
	tp := sync.TopicPartition()
	slots := s.slots[tp]
	if slots == nil {
		slots = new([SyncsPerPartition]*OffsetSync)
		s.slots[tp] = slots
		fill(slots, &sync)
		return
	}
	if sync.Upstream < slots[0].Upstream || s.mustReadToEnd && !s.readToEnd {
		fill(slots, &sync)
		return
	}
	insert(slots, &sync)
}

func fill(slots *[SyncsPerPartition]*OffsetSync, sync *OffsetSync) {
	for i := range slots {
		slots[i] = sync
	}
}

func insert(slots *[SyncsPerPartition]*OffsetSync, sync *OffsetSync) {
	old := *slots
	replacement := sync
	r := 0 // next candidate in old
	slots[0] = sync
	for cur := 1; cur < SyncsPerPartition; cur++ {
		prev := cur - 1
		for {
			candidate := old[r]
			recent := invariantB(slots[prev], candidate, prev, cur)
			apartFromPrev := invariantC(slots[prev], candidate, prev)
			apartFromNext := cur+1 == SyncsPerPartition || invariantC(candidate, slots[cur+1], cur)
			duplicate := r+1 < SyncsPerPartition && candidate == old[r+1]
			promote := recent && apartFromPrev && apartFromNext
			if promote {
				replacement = candidate
			}
			skip := duplicate || !apartFromPrev
			if promote || skip {
				r++
			}
			if r >= cur || !skip {
				break
			}
		}
		if invariantB(slots[prev], slots[cur], prev, cur) {
			return // the tail is as good as it was
		}
		slots[cur] = replacement
	}
}

func invariantB(newer, older *OffsetSync, i, j int) bool {
	bound := older.Upstream + int64(uint64(1)<<j) - int64(uint64(1)<<i)
	return bound < 0 || newer.Upstream <= bound
}

func invariantC(newer, older *OffsetSync, i int) bool {
	bound := older.Upstream + int64(uint64(1)<<max(i-2, 0))
	return bound >= 0 && newer.Upstream >= bound
}

// TranslateDownstream translates a group's committed offset upstream. ok is false when nothing can be said: the topic
// is not read to its end yet, or no sync is known for the partition. The answer -1 means that the group is behind the
// oldest usable sync; no checkpoint is written then. It never is past the true position, and often far before it.
func (s *OffsetSyncStore) TranslateDownstream(tp TopicPartition, upstream int64) (downstream int64, ok bool) {
	slots := s.slots[tp]
	if !s.readToEnd || slots == nil {
		return 0, false
	}
	chosen := slots[SyncsPerPartition-1]
	for _, sync := range slots {
		if sync.Upstream <= upstream {
			chosen = sync
			break
		}
	}
	switch {
	case chosen.Upstream > upstream:
		return -1, true
	case chosen.Upstream == upstream:
		return chosen.Downstream, true
	}
	return chosen.Downstream + 1, true
}

// Syncs returns the distinct syncs held for a partition, newest first.
func (s *OffsetSyncStore) Syncs(tp TopicPartition) []OffsetSync {
	slots := s.slots[tp]
	if slots == nil {
		return nil
	}
	var out []OffsetSync
	for i, sync := range slots {
		if i == 0 || sync != slots[i-1] {
			out = append(out, *sync)
		}
	}
	return out
}

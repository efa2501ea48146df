package mirror

const (
	// answerShare is what the partitions of an answer share, so that requests which write carry batches of many: each costs
	// both sides about the same, whatever is in it. Each partition gets leastShare, so that answers are not made of scraps,
	// and partitionBytes at most.
	answerShare    = 4<<20 - 64<<10
	leastShare     = 128 << 10
	partitionBytes = 4 << 20
	// leastBatches are asked for at least, and up to mostBatches where batches are of so many sizes that much is cut off.
	leastBatches = 2
	mostBatches  = 32
)

// sizes is what is known of a partition's batches, as they came.
type sizes struct {
	largest int32 // bytes of the largest of the last ones read; 0: none yet
	batches int32 // how many to ask for at least
}

// learn takes the bytes of an answer's batches, of the one that was cut for the partition's share, and of the largest.
func (s *sizes) learn(taken, cut, largest int) {
	s.largest = max(int32(largest), s.largest/8*7)
	switch {
	case taken > 0 && cut > taken/32:
		s.batches = min(2*max(s.batches, leastBatches), mostBatches)
	case cut <= taken/64:
		s.batches = max(s.batches-1, leastBatches)
	}
}

// answerBytes is how much an answer may hold of a partition: whole batches, as far as can be told, since a broker cuts an
// answer where the bytes end, and what is cut off is read again. The lock is held.
func (p *mirror) answerBytes(t *part) int32 {
	most := int32(max(answerShare/max(len(p.order), 1), leastShare))
	if p.rate.rate > 0 {
		return p.rate.bound(most, t.largest)
	}
	batches := max(t.batches, leastBatches)
	if t.largest > partitionBytes/batches {
		return wholes(max(most, partitionBytes), t.largest)
	}
	return wholes(max(most, batches*t.largest), t.largest)
}

// wholes is the most that is no more than n and holds a number of batches which may be a little larger, or one such batch.
func wholes(n, batch int32) int32 {
	if batch <= 0 || n < batch {
		return n
	}
	return n/batch*batch + batch/16
}

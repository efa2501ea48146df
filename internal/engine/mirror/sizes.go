package mirror

import "time"

const (
	// answerShare is what the partitions that are behind share of an answer, so that requests which write carry batches of
	// many: each costs both sides about the same, whatever is in it. A partition gets leastShare, so that answers are not made
	// of scraps and a long way to the source does not make it slow, and partitionBytes at most.
	answerShare    = 4<<20 - 64<<10
	leastShare     = 256 << 10
	partitionBytes = 4 << 20
	// usualBytes is what is asked for where nothing is known of the batches, and the most where there is a rate.
	usualBytes = 1 << 20
	// leastBatches are asked for at least, and up to mostBatches where batches are of so many sizes that much is cut off.
	leastBatches = 2
	mostBatches  = 32
	// behindFor is how long the number of partitions that are behind counts.
	behindFor = 100 * time.Millisecond
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
	if p.rate.rate > 0 {
		return p.rate.bound(usualBytes, t.largest)
	}
	now := time.Now()
	most := int32(max(answerShare/max(p.lagging(now), 1), leastShare))
	switch {
	case t.largest == 0:
		return max(most, usualBytes)
	case p.limitsOf(t, now).alone != 0:
		most = max(most, rebuiltBytes) // they are put together, as far as an answer goes
	}
	batches := max(t.batches, leastBatches)
	if t.largest > partitionBytes/batches {
		most = max(most, partitionBytes)
	} else {
		most = max(most, batches*t.largest)
	}
	if most < t.largest {
		return most
	}
	return wholes(most, t.largest) + t.largest/64 // the next may be a little larger than those seen
}

// lagging is how many partitions are known to be behind the source; the lock is held.
func (p *mirror) lagging(now time.Time) int {
	if now.Sub(p.behindAt) < behindFor {
		return p.behind
	}
	p.behind, p.behindAt = 0, now
	for _, t := range p.order {
		if t.state == running && t.behind(p.cfg.ReadUncommitted) {
			p.behind++
		}
	}
	return p.behind
}

// wholes is the most that is no more than n and a multiple of one batch, if n is at least that.
func wholes(n, batch int32) int32 {
	if batch <= 0 || n < batch {
		return n
	}
	return n / batch * batch
}

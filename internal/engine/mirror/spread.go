package mirror

const (
	// wideFrom is the mean size of requests, in bytes, from which the partitions of a broker are spread over its lanes, and
	// narrowBelow the one below which they go together in one: each request costs both sides about the same, whatever is in it.
	wideFrom    = 3 << 20
	narrowBelow = 256 << 10
	// spreadWeight is how many requests the mean follows.
	spreadWeight = 16
)

// spread tells whether one lane is enough for what goes to a broker.
type spread struct {
	mean float64 // bytes of a request
	wide bool
}

// note takes a request's size into account.
func (s *spread) note(bytes int64) {
	s.mean += (float64(bytes) - s.mean) / spreadWeight
	switch {
	case s.mean >= wideFrom:
		s.wide = true
	case s.mean < narrowBelow:
		s.wide = false
	}
}

// laneOf is where a partition's batches go now. What is under way in another lane is waited for. The lock is held.
func (p *mirror) laneOf(t *part) laneKey {
	switch s := p.spreads[t.tgt.leader]; {
	case t.slow > 0:
		return laneKey{t.tgt.leader, slowLane}
	case s != nil && s.wide:
		return laneKey{t.tgt.leader, t.lane}
	}
	return laneKey{t.tgt.leader, 0}
}

// widen notes a request that was made; the lock is held.
func (p *mirror) widen(l *lane, bytes int64) {
	if l.index == slowLane {
		return
	}
	s := p.spreads[l.broker]
	if s == nil {
		s = &spread{}
		p.spreads[l.broker] = s
	}
	s.note(bytes)
}

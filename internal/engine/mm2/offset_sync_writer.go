package mm2

// Limits of MM2's source task.
const (
	// DefaultOffsetLagMax is offset.lag.max: how far, in records of the target, translation may trail.
	DefaultOffsetLagMax = 100
	// MaxOutstandingOffsetSyncs is how many offset syncs a task has in flight at most.
	MaxOutstandingOffsetSyncs = 10
)

// OffsetSyncWriter decides which offset syncs are written and when, as MM2's class of the same name: at once at the
// first record, after every gap upstream, when the target was truncated and when the last sync trails by offset.lag.max;
// else delayed until the next Promote. It holds state and sends nothing: the caller acknowledges records in, takes syncs
// out and reports when a send has ended, well or badly (MM2 does not retry either).
type OffsetSyncWriter struct {
	maxLag      int64
	partitions  map[TopicPartition]*syncState
	delayed     *syncQueue
	pending     *syncQueue
	outstanding int
}

// NewOffsetSyncWriter builds a writer; maxLag is offset.lag.max (0 writes a sync for every record; MM2's default is
// DefaultOffsetLagMax). Negative values count as 0.
func NewOffsetSyncWriter(maxLag int64) *OffsetSyncWriter {
	return &OffsetSyncWriter{
		maxLag:     max(maxLag, 0),
		partitions: make(map[TopicPartition]*syncState),
		delayed:    newSyncQueue(),
		pending:    newSyncQueue(),
	}
}

type syncState struct {
	lastSyncDownstream int64
	prevUpstream       int64
	prevDownstream     int64
}

func (s *syncState) update(upstream, downstream, maxLag int64) (emit bool) {
	first := s.lastSyncDownstream == -1
	// Translation yields one past the last sync, hence the +1.
	stale := downstream-(s.lastSyncDownstream+1) >= maxLag
	gap := upstream-s.prevUpstream != 1
	truncated := downstream < s.prevDownstream
	emit = first || stale || gap || truncated
	if emit {
		s.lastSyncDownstream = downstream
	}
	s.prevUpstream, s.prevDownstream = upstream, downstream
	return emit
}

// Acked takes one acknowledged record: source offset upstream is on the target at downstream.
func (w *OffsetSyncWriter) Acked(tp TopicPartition, upstream, downstream int64) {
	s := w.partitions[tp]
	if s == nil {
		s = &syncState{-1, -1, -1}
		w.partitions[tp] = s
	}
	sync := OffsetSync{tp.Topic, tp.Partition, upstream, downstream}
	if s.update(upstream, downstream, w.maxLag) {
		w.delayed.remove(tp)
		w.pending.put(sync)
	} else {
		w.delayed.put(sync)
	}
}

// AckedRun takes n acknowledged records whose offsets follow each other on both sides, from (upstream, downstream) on.
// It has the effect of n calls of Acked without a Take in between, in constant time. n below 1 has no effect.
func (w *OffsetSyncWriter) AckedRun(tp TopicPartition, upstream, downstream, n int64) {
	if n < 1 {
		return
	}
	w.Acked(tp, upstream, downstream)
	if n == 1 {
		return
	}
	s := w.partitions[tp]
	lastUp, lastDown := upstream+n-1, downstream+n-1
	// Of the syncs that single calls would make due, the newest replaces the others before anyone takes them.
	step := w.maxLag + 1
	if k := (lastDown - s.lastSyncDownstream) / step; k > 0 {
		s.lastSyncDownstream += k * step
		w.delayed.remove(tp)
		w.pending.put(OffsetSync{tp.Topic, tp.Partition, lastUp - (lastDown - s.lastSyncDownstream), s.lastSyncDownstream})
	}
	s.prevUpstream, s.prevDownstream = lastUp, lastDown
	if s.lastSyncDownstream != lastDown {
		w.delayed.put(OffsetSync{tp.Topic, tp.Partition, lastUp, lastDown})
	}
}

// Promote makes delayed syncs due. MM2 does so at each offset commit of Connect (offset.flush.interval.ms, 60 s); more
// often only makes readers more exact.
func (w *OffsetSyncWriter) Promote() {
	for _, s := range w.delayed.drain(len(w.delayed.order)) {
		w.pending.put(s)
	}
}

// Take returns the syncs to send now, oldest due first, at most as many as may be in flight. Each must be answered by
// one Done.
func (w *OffsetSyncWriter) Take() []OffsetSync {
	out := w.pending.drain(MaxOutstandingOffsetSyncs - w.outstanding)
	w.outstanding += len(out)
	return out
}

// Done reports that a sync from Take was written or has failed.
func (w *OffsetSyncWriter) Done() {
	if w.outstanding > 0 {
		w.outstanding--
	}
}

// Pending is the number of syncs that are due and not taken yet.
func (w *OffsetSyncWriter) Pending() int { return len(w.pending.syncs) }

// Forget drops everything known about a partition, as when its task moves away. The next record is a first one.
func (w *OffsetSyncWriter) Forget(tp TopicPartition) {
	delete(w.partitions, tp)
	w.delayed.remove(tp)
	w.pending.remove(tp)
}

// syncQueue keeps one sync a partition, in the order in which partitions first came, as Java's LinkedHashMap.
type syncQueue struct {
	order []TopicPartition
	syncs map[TopicPartition]OffsetSync
}

func newSyncQueue() *syncQueue { return &syncQueue{syncs: make(map[TopicPartition]OffsetSync)} }

func (q *syncQueue) put(s OffsetSync) {
	tp := s.TopicPartition()
	if _, ok := q.syncs[tp]; !ok {
		q.order = append(q.order, tp)
	}
	q.syncs[tp] = s
}

func (q *syncQueue) remove(tp TopicPartition) {
	if _, ok := q.syncs[tp]; !ok {
		return
	}
	delete(q.syncs, tp)
	for i, o := range q.order {
		if o == tp {
			q.order = append(q.order[:i], q.order[i+1:]...)
			return
		}
	}
}

func (q *syncQueue) drain(n int) []OffsetSync {
	n = min(max(n, 0), len(q.order))
	out := make([]OffsetSync, 0, n)
	for _, tp := range q.order[:n] {
		out = append(out, q.syncs[tp])
		delete(q.syncs, tp)
	}
	q.order = q.order[n:]
	return out
}

package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// fetchWant is what an answer is about.
type fetchWant struct {
	part   *part
	tp     TP
	id     [16]byte
	offset int64
	seq    uint64
	most   int32  // bytes asked for
	limits limits // as they are when the answer has come
}

// limits is what a batch may be, by what is known of the target.
type limits struct {
	bytes      int64
	records    int
	appendTime bool
	codec      batch.TopicCodec
	// shared: requests that write carry batches of several partitions.
	shared bool
	// alone: batches with records older than this, in ms, go one at a time over a long line, so they should be large; 0: none.
	alone int64
}

// fetchLoop keeps the wants in step with the partitions.
func (p *mirror) fetchLoop(ctx context.Context) {
	for {
		p.locked(func() { p.aimAtChanged(time.Now()) })
		select {
		case <-ctx.Done():
			p.hub.ForgetFree(p.wakeFetch)
			return
		case <-p.wakeFetch:
		}
	}
}

// current tells whether an answer still counts: nothing was set anew since it was asked for, and it begins where the
// partition goes on. The lock is held.
func (w fetchWant) current() bool {
	return w.part.state == running && w.part.fetchSeq == w.seq && w.part.fetchOffset == w.offset
}

// done ends the work on an answer; the lock is held.
func (w fetchWant) done() {
	if w.part.inHand == w.seq {
		w.part.inHand = 0
	}
}

// seen takes an answer that holds no records, while the want stays.
func (p *mirror) seen(w fetchWant, ends Ends) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.current() {
		p.note(w.part, ends)
		p.reconsider(w.part)
		w.part.fetchFailures = 0
		p.worked(w.part, true)
	}
}

// note tells a partition's bounds on the source; the lock is held.
func (p *mirror) note(t *part, ends Ends) {
	if ends != t.ends {
		t.ends = ends
		p.tell(t, func(o Observer, tp TP) { o.Seen(tp, ends) })
	}
}

// fetched takes what an answer held for a partition, and err about what follows it. The next want is left at once, so that
// the hub's next request has it.
func (p *mirror) fetched(w fetchWant, ends Ends, h *unpacked, err error) {
	t, now := w.part, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	w.done()
	t.learn(h.taken, h.cut, h.largest)
	if !w.current() {
		h.drop()
		p.reconsider(t)
		return
	}
	p.note(t, ends)
	if err != nil && h.next() == w.offset {
		p.metrics.failure("source", "decode", err)
		p.fetchFailed(w, &Stop{
			Reason: StopCorrupt, Offset: w.offset, Retry: true, Err: err,
			Message: fmt.Sprintf("Partition %d of topic %s on the source cannot be read at offset %d: %s.", w.tp.Partition, w.tp.Topic, w.offset, err),
		}, err)
		return
	}
	// An error behind good batches comes again, at the head of the next answer.
	t.fetchFailures = 0
	p.worked(t, true)
	p.enqueue(t, h)
	p.admit(now)
	p.aim(t, now)
	notify(p.wakeProduce)
}

// faulted takes an error code of a partition. leader is who the broker says leads it.
func (p *mirror) faulted(w fetchWant, code error, broker int32, leader wire.Leader) {
	p.metrics.failure("source", "fetch", code)
	if errors.Is(code, kerr.OffsetOutOfRange) {
		// What the source does hold is asked for; others must not wait for that, nor is the same asked again meanwhile.
		p.locked(func() {
			w.done()
			if w.current() {
				w.part.fetchNotBefore = time.Now().Add(time.Minute)
			}
		})
		p.alive("looking at the source", func() {
			stop := p.outOfRange(w, code, broker)
			p.locked(func() { p.fetchFailed(w, stop, code) })
		})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := w.part
	w.done()
	if w.current() && leader.Node >= 0 && leader.Epoch > t.src.epoch && p.source.cluster.Knows(leader.Node) {
		// No need to ask for metadata; what was asked before may be older.
		t.src.min, t.src.leader, t.src.epoch = p.source.asked, leader.Node, leader.Epoch
		p.reconsider(t)
		return
	}
	p.fetchFailed(w, fetchFault(w, code), code)
}

// enqueue takes what was read; the lock is held.
func (p *mirror) enqueue(t *part, h *unpacked) {
	next := h.next()
	if next == t.fetchOffset {
		return
	}
	t.fetchOffset = next
	if !h.empty() {
		t.queue.add(h)
		p.account(t)
		p.enlist(t)
		return
	}
	switch {
	case len(t.left) > 0: // what was found of it counts together with the rest only, and so does what lies between
	case !t.queue.empty(): // the last batch made from the queue goes up to fetchOffset
	case t.last() != nil:
		t.last().next = next
	default:
		t.position = next
		p.tell(t, func(o Observer, tp TP) { o.Passed(tp, next) })
	}
}

// fetchFailed slows the partition down, or ends its reading with stop; the lock is held.
func (p *mirror) fetchFailed(w fetchWant, stop *Stop, cause error) {
	t := w.part
	if !w.current() {
		return
	}
	if stop != nil {
		t.fetchStop = stop
		t.fetchSeq++
		p.settle(t)
		return
	}
	t.fetchFailures++
	wait := min(time.Second, 50*time.Millisecond<<min(t.fetchFailures, 6))
	t.fetchNotBefore = time.Now().Add(wait)
	p.source.markDirty(w.tp.Topic)
	p.wakeIn(wait)
	if t.fetchFailures > 8 {
		p.tellUnavailable(p.source, t, cause)
	}
}

// outOfRange says what the source holds instead of the offset.
func (p *mirror) outOfRange(w fetchWant, code error, broker int32) *Stop {
	p.mu.Lock()
	ctx := p.life
	p.mu.Unlock()
	evidence := map[string]any{"offset": w.offset}
	bounds := "unknown bounds"
	if ctx != nil {
		start, errStart := p.source.listOffset(ctx, broker, w.tp, -2, 0)
		end, errEnd := p.source.listOffset(ctx, broker, w.tp, -1, 0)
		if errStart == nil && errEnd == nil {
			evidence["log_start"], evidence["log_end"] = start, end
			bounds = fmt.Sprintf("the offsets %d to %d", start, end)
		}
	}
	return &Stop{
		Reason: StopOutOfRange, Offset: w.offset, Err: code, Evidence: evidence,
		Message: fmt.Sprintf("Partition %d of topic %s on the source holds %s, not offset %d.", w.tp.Partition, w.tp.Topic, bounds, w.offset),
	}
}

// fetchFault turns an error code into a stop, or nil when it is to be tried again with new metadata.
func fetchFault(w fetchWant, code error) *Stop {
	switch {
	case errors.Is(code, kerr.TopicAuthorizationFailed):
		return &Stop{
			Reason: StopSourceRefused, Offset: -1, Retry: true, Err: code,
			Message: fmt.Sprintf("The source denies reading topic %s.", w.tp.Topic),
		}
	case errors.Is(code, kerr.CorruptMessage):
		return &Stop{
			Reason: StopCorrupt, Offset: w.offset, Retry: true, Err: code,
			Message: fmt.Sprintf("The source cannot read partition %d of topic %s at offset %d from its own disk.", w.tp.Partition, w.tp.Topic, w.offset),
		}
	}
	return nil
}

// listOffset asks a partition's leader for an offset: the first at or behind timestamp, or -2 the start, -1 the end.
func (s *side) listOffset(ctx context.Context, broker int32, tp TP, timestamp int64, isolation int8) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = tp.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = tp.Partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := s.request(ctx, broker, req)
	if err != nil {
		return 0, err
	}
	resp, ok := answer.(*kmsg.ListOffsetsResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("mirror: the answer to ListOffsets has another form than expected")
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

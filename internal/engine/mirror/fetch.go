package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// fetchJob is one Fetch request to one broker.
type fetchJob struct {
	broker   int32
	maxBytes int32
	wants    []fetchWant
	// hurry: a partition is not asked for since enough of it waits; so the broker must not wait.
	hurry bool
}

type fetchWant struct {
	part   *part
	tp     TP
	id     [16]byte
	offset int64
	seq    uint64
	limits limits // as they are when the answer has come
}

// limits is what a batch may be, by what is known of the target.
type limits struct {
	bytes      int64
	records    int
	appendTime bool
	codec      batch.TopicCodec
	// alone: batches with records older than this, in ms, go one at a time over a long line, so they should be large; 0: none.
	alone int64
}

// fetchLoop keeps one Fetch under way at each source broker that leads a partition with room.
func (p *mirror) fetchLoop(ctx context.Context) {
	for {
		var jobs []fetchJob
		p.locked(func() { jobs = p.fetchJobs(time.Now()) })
		for _, j := range jobs {
			p.spawn("reading", func() { p.read(ctx, j) })
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wakeFetch:
		}
	}
}

// fetchJobs chooses what to ask for; the lock is held. A partition whose target is unknown or behind is not read, so
// that it cannot fill the budget of the others.
func (p *mirror) fetchJobs(now time.Time) []fetchJob {
	room := p.room()
	if room <= 0 || len(p.order) == 0 {
		return nil
	}
	share := max(p.cfg.MaxBytesInFlight/8, 2*rebuiltBytes)
	byBroker, full := map[int32]*fetchJob{}, map[int32]bool{}
	p.turn++
	for i := range p.order {
		// Brokers fill their answer in the order of the request: each partition is first at times.
		t := p.order[(i+p.turn)%len(p.order)]
		if t.state != running || t.fetching || t.fetchStop != nil || t.src.leader < 0 || t.tgt.leader < 0 ||
			now.Before(t.fetchNotBefore) || t.stale > 0 || t.failures > 2 {
			continue
		}
		if t.queue.bytes() >= share {
			full[t.src.leader] = true
			continue
		}
		b := p.source.broker(t.src.leader)
		if b.busy[0] > 0 || now.Before(b.notBefore) {
			continue
		}
		j := byBroker[t.src.leader]
		if j == nil {
			// At least one batch comes whatever the limit, so a small remainder is as good as none.
			j = &fetchJob{broker: t.src.leader, maxBytes: int32(min(b.limit, max(room, 1<<20)))}
			byBroker[t.src.leader] = j
		}
		t.fetching = true
		j.wants = append(j.wants, fetchWant{
			part: t, tp: t.asg.Source, id: t.src.id, offset: t.fetchOffset, seq: t.fetchSeq,
		})
	}
	jobs := make([]fetchJob, 0, len(byBroker))
	for _, j := range byBroker {
		p.source.broker(j.broker).busy[0]++
		j.hurry = full[j.broker]
		jobs = append(jobs, *j)
	}
	return jobs
}

// maxWait is how long the broker may hold the request.
func (j fetchJob) maxWait(cfg *Config) time.Duration {
	if j.hurry {
		return min(cfg.FetchMaxWait, 5*time.Millisecond)
	}
	return cfg.FetchMaxWait
}

// bounds are what an answer says beside records.
type bounds struct {
	code int16
	ends Ends
}

// fetched takes the answer for one partition; unpack gives what it held, and is called without the lock.
func (p *mirror) fetched(ctx context.Context, w fetchWant, b bounds, broker int32, unpack func(fetchWant) (*unpacked, error)) {
	t := w.part
	if code := kerr.ErrorForCode(b.code); code != nil {
		stop := p.fetchFault(ctx, w, code, broker)
		p.mu.Lock()
		defer p.mu.Unlock()
		t.fetching = false
		p.fetchFailed(t, w, stop, code)
		return
	}
	p.locked(func() { w.limits = p.limitsOf(t, time.Now()) })
	h, err := unpack(w)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.fetching = false
	if t.state != running || t.fetchSeq != w.seq {
		h.drop()
		return
	}
	if b.ends != t.ends {
		t.ends = b.ends
		p.tell(t, func(o Observer, tp TP) { o.Seen(tp, b.ends) })
	}
	if err != nil && h.next() == w.offset {
		p.metrics.failure("source", "decode", err)
		p.fetchFailed(t, w, &Stop{
			Reason: StopCorrupt, Offset: w.offset, Retry: true, Err: err,
			Message: fmt.Sprintf("Partition %d of topic %s on the source cannot be read at offset %d: %s.", w.tp.Partition, w.tp.Topic, w.offset, err),
		}, err)
		return
	}
	// An error behind good batches comes again, at the head of the next answer.
	t.fetchFailures = 0
	p.worked(t, true)
	p.enqueue(t, h)
}

// unasked ends a want of which nothing was heard; with again, since the request failed.
func (p *mirror) unasked(w fetchWant, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.part.fetching = false
	if again {
		p.source.markDirty(w.tp.Topic)
	}
}

// nothing ends a want of which the answer says nothing because there is nothing.
func (p *mirror) nothing(w fetchWant) {
	t := w.part
	p.mu.Lock()
	defer p.mu.Unlock()
	t.fetching = false
	if t.state == running && t.fetchSeq == w.seq {
		t.fetchFailures = 0
		p.worked(t, true)
	}
}

// fetchDone ends a job.
func (p *mirror) fetchDone(j fetchJob, began time.Time, err error) {
	p.locked(func() { p.source.finished(j.broker, 0, began, err) })
	p.wake()
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
	case !t.queue.empty(): // the last batch made from the queue goes up to fetchOffset
	case t.last() != nil:
		t.last().next = next
	default:
		t.position = next
		p.tell(t, func(o Observer, tp TP) { o.Passed(tp, next) })
	}
}

// fetchFailed slows the partition down, or ends its reading with stop; the lock is held.
func (p *mirror) fetchFailed(t *part, w fetchWant, stop *Stop, cause error) {
	if t.state != running || t.fetchSeq != w.seq {
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

// fetchFault turns an error code into a stop, or nil when it is to be tried again with new metadata.
func (p *mirror) fetchFault(ctx context.Context, w fetchWant, code error, broker int32) *Stop {
	p.metrics.failure("source", "fetch", code)
	switch {
	case errors.Is(code, kerr.OffsetOutOfRange):
		evidence := map[string]any{"offset": w.offset}
		bounds := "unknown bounds"
		start, errStart := p.source.listOffset(ctx, broker, w.tp, -2, 0)
		end, errEnd := p.source.listOffset(ctx, broker, w.tp, -1, 0)
		if errStart == nil && errEnd == nil {
			evidence["log_start"], evidence["log_end"] = start, end
			bounds = fmt.Sprintf("the offsets %d to %d", start, end)
		}
		return &Stop{
			Reason: StopOutOfRange, Offset: w.offset, Err: code, Evidence: evidence,
			Message: fmt.Sprintf("Partition %d of topic %s on the source holds %s, not offset %d.", w.tp.Partition, w.tp.Topic, bounds, w.offset),
		}
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

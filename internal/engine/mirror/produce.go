package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	requestBytes = 8 << 20
	// maxLanes is the most that a path spreads the partitions of a broker over.
	maxLanes = 2
	// produceTimeout is how long the target waits for its replicas.
	produceTimeout = 15 * time.Second
	// producerStateAge is below producer.id.expiration.ms: brokers age what they know of a producer by the timestamps of its
	// records, so that behind older ones an exact resend may not be recognised.
	producerStateAge = 20 * time.Hour
	// withheldPause is when Config.MayWrite is asked again after it said no.
	withheldPause = 100 * time.Millisecond
)

// produceJob is one Produce request to one broker. Its partitions' batches are marked inRequest.
type produceJob struct {
	broker int32
	lane   int
	bytes  int64
	sends  []produceSend
	// verify: the one batch of the job may be on the target already; look before it is sent again.
	verify bool
	// anew: the target does not know the batch's identity, so that a batch which is not there needs another.
	anew bool
}

type produceSend struct {
	part  *part
	batch *sending
	tp    TP
	id    [16]byte
}

func (p *mirror) produceLoop(ctx context.Context) {
	for {
		var jobs []produceJob
		p.locked(func() { jobs = p.produceJobs(ctx, time.Now()) })
		for _, j := range jobs {
			if j.verify {
				p.spawn("looking at the target", func() { p.verify(ctx, j) })
			} else {
				p.spawn("writing", func() { p.produce(ctx, j) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wakeProduce:
		}
	}
}

// produceJobs makes requests of what is ready; the lock is held.
func (p *mirror) produceJobs(ctx context.Context, now time.Time) []produceJob {
	if !p.cfg.MayWrite() {
		p.wakeIn(withheldPause)
		return nil
	}
	type line struct {
		broker int32
		lane   int
	}
	open := map[line]*produceJob{}
	var jobs []produceJob
	for i := range p.order {
		t := p.order[(i+p.turn)%len(p.order)]
		if t.state != running && t.state != closing || t.tgt.leader < 0 {
			continue
		}
		b, to := p.target.broker(t.tgt.leader), line{t.tgt.leader, t.lane}
		if now.Before(b.notBefore) {
			continue
		}
		s := t.sending
		switch {
		case s != nil && (s.inRequest || now.Before(s.notBefore)):
			continue
		case s == nil && (t.queue.empty() || t.state != running):
			continue
		case open[to] == nil && b.busy[t.lane] >= laneRequests:
			continue
		case s == nil && !p.identify(ctx, t, now):
			continue
		}
		if s == nil {
			s = p.takeBatch(t, now)
		}
		s.inRequest = true
		send := produceSend{part: t, batch: s, tp: t.asg.Target, id: t.tgt.id}
		if s.uncertain && !s.looked && s.unit.oldest() < now.Add(-producerStateAge).UnixMilli() {
			b.busy[t.lane]++
			jobs = append(jobs, produceJob{broker: t.tgt.leader, lane: t.lane, sends: []produceSend{send}, verify: true})
			continue
		}
		j := open[to]
		if j == nil {
			b.busy[t.lane]++
			j = &produceJob{broker: t.tgt.leader, lane: t.lane}
			open[to] = j
		}
		j.sends = append(j.sends, send)
		if j.bytes += s.unit.bytes(); j.bytes >= b.limit {
			jobs = append(jobs, *j)
			delete(open, to)
		}
	}
	for _, j := range open {
		jobs = append(jobs, *j)
	}
	return jobs
}

// takeBatch moves the head of the queue into a batch; the lock is held.
func (p *mirror) takeBatch(t *part, now time.Time) *sending {
	u, next := t.queue.take()
	if t.queue.empty() {
		next = t.fetchOffset
	}
	t.sending = &sending{unit: u, next: next, id: t.id, since: now}
	p.account(t)
	return t.sending
}

// identify gives the partition a producer identity that it has not used before, or asks the target for one. The lock is
// held.
func (p *mirror) identify(ctx context.Context, t *part, now time.Time) bool {
	used, was := p.used[t.asg.Target]
	switch {
	case t.hasID && (t.id.pid >= 0 || p.ids.pid < 0): // else there are identities again
		return true
	case was && used.pid >= 0 && !t.anew && used.epoch < math.MaxInt16-1:
		// Of an earlier assignment a batch may still be on its way, its request given up. Once the target has a batch of a
		// higher epoch, it refuses those of lower ones: the old one lands before all new ones or not at all.
		t.id = identity{pid: used.pid, epoch: used.epoch + 1}
	case p.hasIDs && (!was || p.ids.pid < 0 || used.pid != p.ids.pid):
		t.id = p.ids
	default:
		p.wantIdentity(ctx, now)
		return false
	}
	t.hasID, t.anew = true, false
	p.used[t.asg.Target] = t.id
	return true
}

// wantIdentity has the target asked for an identity, unless that is going on or was tried just now; the lock is held.
func (p *mirror) wantIdentity(ctx context.Context, now time.Time) {
	if !p.askingID && !now.Before(p.idsAfter) {
		p.askingID = true
		p.spawn("asking for a producer id", func() { p.askIdentity(ctx) })
	}
}

func (p *mirror) askIdentity(ctx context.Context) {
	reqCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	mark := p.target.health.begin(time.Now())
	resp, err := req.RequestWith(reqCtx, p.target.client)
	p.target.end(mark, err)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askingID = false
	switch {
	case err == nil:
		if p.hasIDs && p.ids.pid < 0 {
			p.cfg.Logger.Info("the target grants idempotent writes again")
			p.events.push(func() { p.cfg.Observer.Idempotence(nil) })
		}
		p.ids, p.hasIDs = identity{pid: resp.ProducerID, epoch: resp.ProducerEpoch}, true
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		// Older brokers want a right of its own for idempotent writing.
		if !p.hasIDs || p.ids.pid >= 0 {
			p.cfg.Logger.Warn("the target denies idempotent writes", slog.Any("error", err))
			p.events.push(func() { p.cfg.Observer.Idempotence(err) })
		}
		p.ids, p.hasIDs = identity{pid: -1, epoch: -1, seq: -1}, true
		p.idsAfter = time.Now().Add(p.askAgain)
	default:
		p.metrics.failure("target", "producer_id", err)
		p.idsAfter = time.Now().Add(300 * time.Millisecond)
		p.wakeIn(300 * time.Millisecond)
	}
	notify(p.wakeProduce)
}

var errNoProduceAnswer = errors.New("mirror: the answer to a produce request has another form than expected")

func (p *mirror) produce(ctx context.Context, j produceJob) {
	began := time.Now()
	answers, err := p.write(ctx, j)
	var limits map[string]map[string]string
	for i, s := range j.sends {
		if err == nil && !answers[i].missing && limits[s.tp.Topic] == nil {
			if names := limitNames(kerr.ErrorForCode(answers[i].code)); len(names) > 0 {
				if limits == nil {
					limits = map[string]map[string]string{}
				}
				limits[s.tp.Topic] = p.target.topicConfigs(ctx, s.tp.Topic, names)
			}
		}
	}
	if errors.Is(err, errWithheld) {
		p.withhold(j)
		return
	}
	p.locked(func() {
		p.target.finished(j.broker, j.lane, began, err)
		for i, s := range j.sends {
			p.produced(ctx, s, answers[i], err, limits[s.tp.Topic])
		}
	})
	p.wake()
}

// errWithheld is write's answer when Config.MayWrite says no right before the request is sent.
var errWithheld = errors.New("mirror: nothing may be written now")

// withhold takes a request back that was not sent, since nothing may be written now. Its batches stay as they are.
func (p *mirror) withhold(j produceJob) {
	p.locked(func() {
		p.target.broker(j.broker).busy[j.lane]--
		for _, s := range j.sends {
			s.batch.inRequest = false
			switch {
			case s.part.sending != s.batch:
				s.batch.unit.drop()
			case s.batch.stale:
				p.release(s.part)
			}
		}
		p.wakeIn(withheldPause)
	})
	p.wake()
}

// limitNames are the settings of a topic that an error of Produce is about.
func limitNames(err error) []string {
	switch {
	case tooLarge(err):
		return []string{"max.message.bytes"}
	case errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.InvalidRecord):
		// message.timestamp.difference.max.ms is what brokers before 3.6 have instead.
		return []string{"message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms"}
	}
	return nil
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// produced takes the answer for one partition; the lock is held.
func (p *mirror) produced(ctx context.Context, s produceSend, rp written, err error, limits map[string]string) {
	t, b := s.part, s.batch
	b.inRequest = false
	if t.sending != b { // removed meanwhile
		b.unit.drop()
		return
	}
	if b.stale {
		p.release(t)
		return
	}
	if err == nil && rp.missing {
		err = errNoProduceAnswer
	}
	if err != nil {
		if !rp.unsent {
			b.uncertain, b.looked = true, false
		}
		p.resendLater(t, err)
		return
	}
	code := kerr.ErrorForCode(rp.code)
	if code != nil {
		p.metrics.failure("target", "produce", code)
	}
	switch {
	case code == nil && rp.base < 0:
		// It was there, says the target, but not where.
		p.renumber(ctx, t, kerr.DuplicateSequenceNumber)
	case code == nil:
		t.appendTime = rp.appendTime
		p.acknowledge(t, rp.base)
	case errors.Is(code, kerr.OutOfOrderSequenceNumber), errors.Is(code, kerr.UnknownProducerID), errors.Is(code, kerr.InvalidProducerEpoch),
		errors.Is(code, kerr.InvalidProducerIDMapping), errors.Is(code, kerr.DuplicateSequenceNumber), errors.Is(code, kerr.ProducerFenced):
		p.renumber(ctx, t, code)
	case tooLarge(code):
		p.refused(t, rp, code, limits)
	case errors.Is(code, kerr.InvalidRecord), errors.Is(code, kerr.InvalidTimestamp), errors.Is(code, kerr.UnsupportedCompressionType),
		errors.Is(code, kerr.UnsupportedForMessageFormat), errors.Is(code, kerr.PolicyViolation), errors.Is(code, kerr.InvalidTopicException),
		errors.Is(code, kerr.CorruptMessage) && b.failures >= 3 && !b.unit.damaged():
		p.refused(t, rp, code, limits)
	case errors.Is(code, kerr.CorruptMessage) && b.unit.damaged():
		at, _ := b.unit.first()
		p.stopPart(t, Stop{
			Reason: StopCorrupt, Offset: at, Retry: true, Err: code,
			Message: fmt.Sprintf("The batch at offset %d of partition %d of topic %s on the source does not have the checksum that it claims.", at,
				t.asg.Source.Partition, t.asg.Source.Topic),
		})
	case errors.Is(code, kerr.TopicAuthorizationFailed), errors.Is(code, kerr.ClusterAuthorizationFailed):
		p.stopPart(t, Stop{
			Reason: StopTargetDenied, Offset: t.position, Retry: true, Err: code,
			Message: fmt.Sprintf("The target denies writing to topic %s: %s.", t.asg.Target.Topic, code),
		})
	default:
		b.uncertain = b.uncertain || errors.Is(code, kerr.RequestTimedOut) || errors.Is(code, kerr.NotEnoughReplicasAfterAppend) ||
			errors.Is(code, kerr.UnknownServerError) || errors.Is(code, kerr.NetworkException)
		p.resendLater(t, code)
	}
}

// resendLater keeps the batch, unchanged, for another attempt; the lock is held.
func (p *mirror) resendLater(t *part, cause error) {
	b := t.sending
	if b.failures++; b.failures == 3 {
		b.unit.detach()
	}
	wait := min(2*time.Second, 50*time.Millisecond<<min(b.failures, 6))
	now := time.Now()
	b.notBefore = now.Add(wait)
	p.target.markDirty(t.asg.Target.Topic)
	p.wakeIn(wait)
	if now.Sub(b.since) < unavailableAfter {
		return
	}
	if !t.queue.empty() {
		// Others may use the budget better; this will be read again.
		p.dropQueue(t)
	}
	var ke *kerr.Error
	if errors.As(cause, &ke) {
		p.tellUnavailable(p.target, t, cause)
	}
}

// acknowledge takes the batch under way as written from base on; the lock is held.
func (p *mirror) acknowledge(t *part, base int64) {
	b := t.sending
	spans, bytes := b.unit.spans(base)
	n := int64(b.unit.count())
	if t.expect >= 0 && base != t.expect {
		p.foreign(t, base)
	}
	t.expect = base + n
	if t.hasID && t.id.pid >= 0 {
		t.id.seq = int32((int64(b.id.seq) + n) & 0x7fffffff)
	}
	if t.maxRecords < 1<<20 {
		t.maxRecords *= 2
	}
	t.position = b.next
	next := b.next
	p.metrics.mirrored(t.asg.Source.Topic, n, bytes, b.unit.newest(), time.Now())
	p.tell(t, func(o Observer, tp TP) {
		o.Mirrored(tp, spans)
		o.Passed(tp, next)
	})
	p.worked(t, false)
	p.release(t)
}

// foreign tells that the target holds records of somebody else, or lost some of ours; the lock is held.
func (p *mirror) foreign(t *part, base int64) {
	now := time.Now()
	if now.Sub(t.foreignAt) < 10*time.Second {
		return
	}
	t.foreignAt = now
	message := fmt.Sprintf("%d records in partition %d of topic %s on the target were not written by this run of the flow: another writer, or a request of a former worker that arrived late.",
		base-t.expect, t.asg.Target.Partition, t.asg.Target.Topic)
	if base < t.expect {
		// Truncated, or made anew: brokers before 4.0 do not know by which id we meant it.
		p.target.markDirty(t.asg.Target.Topic)
		message = fmt.Sprintf("Partition %d of topic %s on the target lost its records from offset %d to %d.",
			t.asg.Target.Partition, t.asg.Target.Topic, base, t.expect)
	}
	s := Stop{
		Reason: StopForeign, Offset: t.position, Retry: true, Message: message,
		Evidence: map[string]any{"expected_target_offset": t.expect, "target_offset": base},
	}
	p.metrics.stop(s.Reason)
	p.tell(t, func(o Observer, tp TP) { o.Stopped(tp, s) })
}

// refused looks for the record that the target does not take: the batch is made smaller until it is alone. The target
// took nothing of the batch, so its sequence numbers are free. The lock is held.
func (p *mirror) refused(t *part, rp written, code error, limits map[string]string) {
	b := t.sending
	if b.unit.count() > 1 {
		p.narrow(t, rp, code, limits)
		return
	}
	offset, size := b.unit.first()
	ts, encoded := b.unit.newest(), b.unit.encoded()
	why := code.Error()
	if rp.message != "" {
		why = rp.message
	}
	for _, f := range rp.faults {
		if f.message != "" {
			why = f.message
		}
	}
	evidence := map[string]any{
		"offset": offset, "bytes": size, "batch_bytes": encoded, "timestamp": ts, "target_topic": t.asg.Target.Topic, "answer": why,
	}
	stop := Stop{Reason: StopRefused, Offset: offset, Retry: true, Err: code, Evidence: evidence}
	stop.Message = fmt.Sprintf("The target refuses the record at offset %d of partition %d of topic %s: %s.", offset,
		t.asg.Source.Partition, t.asg.Source.Topic, why)
	if tooLarge(code) {
		stop.Reason = StopTooLarge
		stop.Message = fmt.Sprintf("The record at offset %d of partition %d of topic %s takes %d bytes in a batch of its own; topic %s on the target allows less (%s).",
			offset, t.asg.Source.Partition, t.asg.Source.Topic, encoded, t.asg.Target.Topic, settings(limits))
		evidence["limit"] = settings(limits)
	} else if outsideWindow(ts, limits, time.Now()) {
		stop.Message = fmt.Sprintf("%s Topic %s on the target has %s.", stop.Message, t.asg.Target.Topic, settings(limits))
		evidence["limit"] = settings(limits)
	}
	p.start(t) // whatever was learned of the size may have changed when it tries again
	t.maxRecords = 1
	p.stopPart(t, stop)
}

// putBack returns the batch under way to the head of the queue; the lock is held.
func (p *mirror) putBack(t *part) {
	b := t.sending
	if t.queue.empty() {
		// What was passed behind the batch is in fetchOffset still.
		t.fetchOffset = max(t.fetchOffset, b.next)
	}
	t.queue.putBack(b.unit)
	t.sending = nil
	p.account(t)
	notify(p.wakeProduce)
}

// outsideWindow tells whether a timestamp lies outside of what a topic's settings allow, in ms around now.
func outsideWindow(ts int64, limits map[string]string, now time.Time) bool {
	for name, value := range limits {
		ms, err := strconv.ParseInt(value, 10, 64)
		if err != nil || name == "max.message.bytes" {
			continue
		}
		age := now.UnixMilli() - ts
		if name != "message.timestamp.after.max.ms" && age > ms || name != "message.timestamp.before.max.ms" && -age > ms {
			return true
		}
	}
	return false
}

// settings is "name=value, …", in order of names; a value that could not be read is left out.
func settings(limits map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if v := limits[name]; v != "" {
			name += "=" + v
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// topicConfigs reads settings of a topic; those that the broker does not know are left out, and where it does not
// answer all are there without a value.
func (s *side) topicConfigs(ctx context.Context, topic string, names []string) map[string]string {
	unread := make(map[string]string, len(names))
	for _, n := range names {
		unread[n] = ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, names
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil || len(resp.Resources) != 1 {
		return unread
	}
	have := map[string]string{}
	for _, c := range resp.Resources[0].Configs {
		if c.Value != nil {
			have[c.Name] = *c.Value
		}
	}
	if len(have) == 0 {
		return unread
	}
	return have
}

package mirror

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// written is the target's answer for one batch.
type written struct {
	missing bool // the answer says nothing of it
	unsent  bool // the request surely did not reach the broker
	code    int16
	base    int64
	// appendTime: the target gave the records its own timestamps.
	appendTime bool
	message    string
	faults     []recordFault
	// leader and its epoch, where the broker knows who leads the partition instead of it; else -1.
	leader, epoch int32
	// limits are the settings of the topic that a refusal is about, once they are read.
	limits map[string]string
}

// recordFault is an objection to one record of a batch.
type recordFault struct {
	index   int
	message string
}

// inHand is how long a broker may still work on a request of a connection that has ended, much more than was ever seen.
const inHand = 300 * time.Millisecond

// before are the codes that a broker gives only before it appends. All others say nothing: a leader that has appended and is
// deposed while it waits for replicas answers NOT_LEADER_OR_FOLLOWER, and the next one has the batch.
var before = func() map[int16]bool {
	codes := map[int16]bool{}
	for _, e := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage,
		kerr.UnsupportedCompressionType, kerr.UnsupportedForMessageFormat, kerr.PolicyViolation, kerr.InvalidTopicException,
		kerr.InvalidRequiredAcks, kerr.UnsupportedVersion, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.ProducerFenced, kerr.InvalidTxnState, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	} {
		codes[e.Code] = true
	}
	return codes
}()

var errNoProduceAnswer = errors.New("mirror: the answer to a produce request has another form than expected")

// produced takes the answer for one batch; the lock is held.
func (p *mirror) produced(s produceSend, w written, err error) {
	t, b := s.part, s.batch
	if b.stale {
		p.leave(t, b)
		return
	}
	t.awaiting--
	if err == nil && w.missing {
		err = errNoProduceAnswer
	}
	b.answer = w
	code := kerr.ErrorForCode(w.code)
	switch {
	case err != nil:
		b.stage, b.cause = pick(w.unsent, refused, unknown), err
	case code == nil && w.base < 0, errors.Is(code, kerr.DuplicateSequenceNumber):
		// It was there, says the target, but not where.
		b.stage, b.cause = unknown, kerr.DuplicateSequenceNumber
	case code == nil:
		b.stage, b.base = acked, w.base
		t.appendTime = w.appendTime
		p.flush(t)
	case !before[w.code]:
		b.stage, b.cause = unknown, code
		if errors.Is(code, kerr.RequestTimedOut) || errors.Is(code, kerr.NotEnoughReplicasAfterAppend) {
			// Each of those behind it may take as long. Their connection is not the partition's alone, so that they are waited for.
			t.slow, t.suspect = slowAcks, false
		}
	default:
		b.stage, b.cause = refused, code
	}
	if code != nil {
		p.metrics.failure("target", "produce", code)
		if w.leader >= 0 && w.epoch > t.tgt.epoch {
			p.follow(t, w.leader, w.epoch)
		}
	}
	t.broken = t.broken || b.stage == refused || b.stage == unknown
	if t.awaiting == 0 {
		t.conn = nil
		if t.broken {
			p.decide(t)
		}
	}
	p.enlist(t)
}

// leave ends a batch of a former assignment; the lock is held.
func (p *mirror) leave(t *part, b *sending) {
	b.unit.drop()
	before := len(t.under)
	t.remove(b)
	if len(t.under) == before { // the partition is gone
		return
	}
	t.stale--
	p.account(t)
	p.settle(t)
	p.enlist(t)
}

// follow goes to a leader that the target named instead of asking for metadata; the lock is held.
func (p *mirror) follow(t *part, leader, epoch int32) {
	if !p.target.cluster.Knows(leader) {
		return
	}
	t.tgt.min = p.target.asked // what was asked before may be older
	t.tgt.epoch, t.hinted = epoch, true
	p.lead(t, leader)
}

// lead has a partition written to its leader; the lock is held.
func (p *mirror) lead(t *part, leader int32) {
	if t.tgt.leader != leader {
		p.unlist(t)
	}
	t.tgt.leader = leader
	p.enlist(t)
}

// flush acknowledges what is acknowledged with nothing before it; the lock is held.
func (p *mirror) flush(t *part) {
	for head := t.head(); head != nil && head.stage == acked; head = t.head() {
		p.acknowledge(t, head)
	}
}

// decide goes on with a pipeline in which something failed, when nothing is awaited any more; the lock is held.
func (p *mirror) decide(t *part) {
	p.flush(t)
	head := t.head()
	if head == nil {
		t.broken = false
		p.settle(t)
		return
	}
	if head.stage == made {
		t.broken = false
		return
	}
	seq := outOfSequence(head.cause)
	for _, b := range t.under {
		if b.stage == unknown || b == head && seq && !b.looked {
			t.unread = true
		}
	}
	if t.unread {
		if now := time.Now(); head.id.pid < 0 || !t.appendTime && t.last().unit.newest() < p.coldBefore(now) {
			// The target knows no producer, or may have forgotten it, and then refuses nothing: what it still has in hand must be
			// there before it is looked for.
			t.notBefore = now.Add(inHand)
			p.enlistLater(t, inHand)
		}
		if head.cause != nil {
			p.cfg.Logger.Info("the target is looked at", slog.String("topic", t.asg.Target.Topic), slog.Int("partition", int(t.asg.Target.Partition)),
				slog.Int64("producer_id", head.id.pid), slog.Int("sequence", int(head.id.seq)), slog.Int64("expected_offset", head.expect), slog.Any("error", head.cause))
		}
		return
	}
	if len(limitNames(head.cause)) > 0 && head.answer.limits == nil {
		t.describe = true
		return
	}
	p.jumped(t)
	t.broken = false
	code := head.cause
	switch {
	case tooLarge(code), errors.Is(code, kerr.InvalidRecord), errors.Is(code, kerr.InvalidTimestamp), errors.Is(code, kerr.UnsupportedCompressionType),
		errors.Is(code, kerr.UnsupportedForMessageFormat), errors.Is(code, kerr.PolicyViolation), errors.Is(code, kerr.InvalidTopicException),
		errors.Is(code, kerr.CorruptMessage) && t.failures >= 2 && !head.unit.damaged():
		p.refused(t, head, code)
	case errors.Is(code, kerr.CorruptMessage) && head.unit.damaged():
		at, _ := head.unit.first()
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
	case seq:
		// What the target holds does not explain it. It may not have been what it said before: once more, then otherwise.
		if t.strange++; t.strange > 1 || !errors.Is(code, kerr.OutOfOrderSequenceNumber) {
			p.startAnew(t)
		}
		p.resend(t, code)
	default:
		p.resend(t, code)
	}
}

// outOfSequence tells whether the target refused a batch for its producer or its place.
func outOfSequence(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.ProducerFenced)
}

// startAnew has what is under way sent under an identity that the partition has not used; the lock is held.
func (p *mirror) startAnew(t *part) { t.hasID, t.anew, t.inherited = false, true, false }

// resend sends what is under way again, of which nothing is on the target, one at a time and after a pause; the lock is
// held.
func (p *mirror) resend(t *part, cause error) {
	for _, b := range t.under {
		if b.stage != acked {
			b.stage = made
		}
	}
	t.solo = true
	p.pause(t, cause)
	if t.failures < 3 {
		return
	}
	// It will stay for long: one batch, in memory of its own. The others will be read again.
	if n := len(t.under); n > 1 && t.under[n-1].stage != acked {
		p.rewind(t, 1)
	}
	if p.suspended && t.under[0].stage == made {
		// Others of the path may go on with what it holds; it will be read again, too.
		p.rewind(t, 0)
		p.settle(t)
		return
	}
	t.under[0].unit.detach()
	p.account(t)
}

// pause keeps a partition from trying again for a moment that grows, and tells when it has taken long; the lock is held.
func (p *mirror) pause(t *part, cause error) {
	t.failures++
	wait := min(2*time.Second, 50*time.Millisecond<<min(t.failures, 6))
	if t.hinted {
		t.hinted, wait = false, 0
	}
	now := time.Now()
	t.notBefore = now.Add(wait)
	p.target.markDirty(t.asg.Target.Topic)
	p.enlistLater(t, wait)
	if head := t.head(); t.failingSince.IsZero() && head != nil {
		t.failingSince = head.since
	}
	if t.failingSince.IsZero() || now.Sub(t.failingSince) < unavailableAfter {
		return
	}
	if !t.queue.empty() {
		// Others may use the budget better; this will be read again.
		p.dropQueue(t)
	}
	var ke *kerr.Error
	if errors.As(cause, &ke) || errors.Is(cause, errUnsettled) {
		p.tellUnavailable(p.target, t, cause)
	}
}

// jumped tells that the target accepted batches behind one that it had refused, because it had forgotten the producer
// meanwhile. The refused ones follow them. The lock is held.
func (p *mirror) jumped(t *part) {
	head := t.head()
	var ahead *sending
	records := int64(0)
	for _, b := range t.under {
		if b.stage == acked {
			ahead = b
			break
		}
		records += b.count()
	}
	if ahead == nil || head.jumped {
		return
	}
	at, _ := head.unit.first()
	p.odd(t, orderDiffers, head.expect, ahead.base, fmt.Sprintf(
		"Partition %d of topic %s on the target accepted records behind %d records from source offset %d on that it had refused: it had lost what it knew of the producer. These records follow later, so that the order differs.",
		t.asg.Target.Partition, t.asg.Target.Topic, records, at))
	for _, b := range t.under {
		b.jumped, b.expect = true, -1
	}
	t.expect = -1
	p.startAnew(t)
}

// acknowledge takes the oldest batch as written; the lock is held.
func (p *mirror) acknowledge(t *part, b *sending) {
	spans, bytes := b.unit.spans(b.base)
	n := b.count()
	if b.expect >= 0 && b.base != b.expect {
		p.foreign(t, b.expect, b.base)
	}
	// What is behind it moves with it.
	at := b.base + n
	if b.jumped {
		at = -1
	}
	for _, later := range t.under[1:] {
		if !later.jumped {
			later.expect = at
			at = later.end()
		}
	}
	t.expect = at
	if t.maxRecords < manyRecords {
		t.maxRecords *= 2
	}
	t.acks, t.lastTime, t.solo, t.failures, t.failingSince, t.strange = t.acks+1, b.unit.newest(), false, 0, time.Time{}, 0
	t.slow = max(0, t.slow-1)
	t.position = b.next
	next, point := b.next, t.pointBehind(b)
	p.acked = time.Now()
	p.metrics.mirrored(t.asg.Source.Topic, n, bytes, b.unit.newest(), p.acked)
	p.tell(t, func(o Observer, tp TP) {
		o.Mirrored(tp, spans, point)
		o.Passed(tp, next)
	})
	t.remove(b)
	b.unit.drop()
	p.worked(t, false)
	p.account(t)
	p.settle(t)
}

// foreign tells that the target holds records of somebody else, or lost some of ours; the lock is held.
func (p *mirror) foreign(t *part, expect, base int64) {
	message := fmt.Sprintf("%d records in partition %d of topic %s on the target were not written by this run of the flow: another writer, or a request of a former worker that arrived late.",
		base-expect, t.asg.Target.Partition, t.asg.Target.Topic)
	kind := othersWrote
	if base < expect {
		kind = recordsLost
		// Truncated, or made anew: brokers before 4.0 do not know by which id we meant it.
		p.target.markDirty(t.asg.Target.Topic)
		message = fmt.Sprintf("Partition %d of topic %s on the target lost its records from offset %d to %d.",
			t.asg.Target.Partition, t.asg.Target.Topic, base, expect)
	}
	p.odd(t, kind, expect, base, message)
}

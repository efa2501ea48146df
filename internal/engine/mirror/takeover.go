package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// takeover is what a partition still has to do before it goes on where an earlier run ended.
type takeover struct {
	point  *Point // behind which the target is to be looked at; nil: it was
	legacy legacy
	// left are those records of legacy.there that were not found in the source yet, found those that were. Both count together
	// or not at all.
	left       []stretch
	found      []Span
	shortSince time.Time // since when the source has nothing more, and some are left; zero: it has
	// inherited is set while the identity is one that an earlier run wrote under, and may still.
	inherited bool
}

// stretch is a number of records that lie in a row on the target.
type stretch struct{ target, count int64 }

// takeUp readies a partition to go on behind a point; the lock is held.
func (p *mirror) takeUp(t *part, at *Point) {
	if at == nil {
		return
	}
	t.expect = at.Target
	if at.ProducerID < 0 {
		return
	}
	own := *at
	t.point = &own
}

// caughtUp tells whether the partition has taken over all that an earlier run left, as far as it goes now; else whatever ends
// the reason enlists it again. The lock is held.
func (p *mirror) caughtUp(ctx context.Context, t *part, l *lane) bool {
	if t.point != nil {
		t.busy = true
		at, tp, v, gen, broker := *t.point, t.asg.Target, t.tgt, t.gen, l.broker
		p.spawn("taking over", func() {
			left, err := p.inheritance(ctx, broker, tp, v, at)
			p.locked(func() {
				if t.gen == gen && t.state != closed {
					p.inherit(t, at, left, err)
				}
			})
			notify(p.wakeFetch)
		})
		return false
	}
	if len(t.left) == 0 {
		return true
	}
	for len(t.left) > 0 && !t.queue.empty() {
		p.skip(t)
	}
	p.settle(t) // else nobody would, where nothing is sent
	return len(t.left) == 0
}

// shortFor is for how long a source must have fewer records than were copied before it counts as having lost them: its leader
// may be behind for a moment after a change.
const shortFor = 10 * time.Second

// runShort notices a source that does not have as many records as an earlier run copied from it; the lock is held.
func (p *mirror) runShort(t *part, now time.Time) {
	switch {
	case len(t.left) == 0 || t.state != running || !t.queue.empty() || t.ends.HighWatermark < 0 || t.behind(p.cfg.ReadUncommitted):
		t.shortSince = time.Time{}
	case t.shortSince.IsZero():
		t.shortSince = now
	case now.Sub(t.shortSince) >= shortFor:
		p.disinherit(t, errShort)
		p.reconsider(t)
		p.enlist(t)
	}
}

var errShort = errors.New("mirror: the source has fewer records than were copied from it")

// lookAgain has what was found in the source looked for anew, since it is read anew; the lock is held.
func (t *takeover) lookAgain() { t.left, t.found = slices.Clone(t.legacy.there), nil }

// legacy is what an earlier run left behind a point.
type legacy struct {
	there   []stretch // its records on the target, which come next from the source and are not written again
	last    []byte    // the body of the last one; nil: it could not be read
	doubt   error     // why they cannot be relied on; nil: they can
	alive   bool      // the target knows the producer, so its numbers go on
	next    int32     // the first of them
	end     int64     // of the log
	foreign int64     // records of others among them
}

// inheritance reads what an earlier run wrote behind a point: by the producer's entry when that explains all that the log has
// more, else by the headers of the batches.
func (p *mirror) inheritance(ctx context.Context, broker int32, tp TP, v view, at Point) (legacy, error) {
	tail, err := p.settled(ctx, broker, tp, v, at.ProducerID)
	if err != nil {
		return legacy{}, err
	}
	left := legacy{end: tail.LogEnd, next: at.Sequence, alive: tail.Known && tail.ProducerEpoch == at.Epoch}
	after := int32(sequenceAfter(tail.LastSequence))
	behind := tail.LogEnd - at.Target
	switch {
	case behind <= 0:
	case left.alive && (int64(after)-int64(at.Sequence))&0x7fffffff == behind:
		left.there, left.next = []stretch{{at.Target, behind}}, after
	default:
		err = p.headers(ctx, broker, tp, v.id, at.Target, left.look(at))
	}
	ahead := (int64(left.next) - int64(after)) & 0x7fffffff
	if err == nil && left.alive && ahead > 0 && ahead < 1<<30 {
		return left, errUnsettled // more came since the entry was read
	}
	if err == nil && len(left.there) > 0 {
		err = p.lastOf(ctx, broker, tp, v, &left)
	}
	if errors.Is(err, kerr.OffsetOutOfRange) || denied(err) {
		// Retention on the target has passed the point, or nothing may be read there.
		p.cfg.Logger.Warn("what an earlier run left on the target cannot be read", slog.String("topic", tp.Topic), slog.Int("partition", int(tp.Partition)), slog.Any("error", err))
		err = nil
	}
	switch unused := !tail.Known || tail.ProducerEpoch < at.Epoch; {
	case unused && at.Sequence == 0 && len(left.there) == 0:
		left.alive = true // nothing came under it so far: what may still come, and what comes now, have the same numbers
	case left.next != after:
		left.alive = false // its numbers do not follow from the point: they are not ours to go on with
	}
	return left, err
}

// look counts the earlier run's records in the batches behind a point.
func (l *legacy) look(at Point) func(batch.Batch) bool {
	return func(b batch.Batch) bool {
		id := identityOf(b)
		before := (l.next - id.seq) & 0x7fffffff // records of the batch that lie before the point
		switch {
		case id.pid == at.ProducerID && id.epoch == at.Epoch && before < b.Count():
			l.add(b.BaseOffset()+int64(before), int64(b.Count()-before))
			l.next = batch.NextSequence(id.seq, b.Count())
		case b.NextOffset() > at.Target:
			l.foreign += b.NextOffset() - max(b.BaseOffset(), at.Target)
		}
		return true
	}
}

// lastOf reads the last of the earlier run's records, to be compared with the source's.
func (p *mirror) lastOf(ctx context.Context, broker int32, tp TP, v view, left *legacy) error {
	end := left.there[len(left.there)-1]
	at := end.target + end.count - 1
	return p.headers(ctx, broker, tp, v.id, at, func(b batch.Batch) bool {
		if b.BaseOffset() <= at && at < b.NextOffset() {
			left.last, left.doubt = batch.Body(b, int(at-b.BaseOffset()), maxOld, p.codec)
		}
		return false
	})
}

// sequenceAfter is the number that follows a sequence number.
func sequenceAfter(last int32) int64 { return (int64(last) + 1) & 0x7fffffff }

// add notes records of ours that lie at an offset.
func (l *legacy) add(target, count int64) {
	if n := len(l.there); n > 0 && l.there[n-1].target+l.there[n-1].count == target {
		l.there[n-1].count += count
		return
	}
	l.there = append(l.there, stretch{target, count})
}

// inherit takes what an earlier run left, or the error of looking for it; the lock is held.
func (p *mirror) inherit(t *part, at Point, left legacy, err error) {
	t.busy = false
	defer p.enlist(t)
	if err != nil {
		p.metrics.failure("target", "take over", err)
		if t.failingSince.IsZero() {
			t.failingSince = time.Now()
		}
		p.pause(t, err)
		return
	}
	t.failures, t.failingSince = 0, time.Time{}
	p.worked(t, false)
	t.point, t.legacy = nil, left
	t.lookAgain()
	n := int64(0)
	for _, s := range left.there {
		n += s.count
	}
	p.cfg.Logger.Info("taking over", slog.String("topic", t.asg.Target.Topic), slog.Int("partition", int(t.asg.Target.Partition)),
		slog.Int64("source_offset", at.Source), slog.Int64("target_offset", at.Target), slog.Int64("there", n), slog.Int64("log_end", left.end),
		slog.Bool("producer_known", left.alive))
	if left.foreign > 0 {
		p.odd(t, othersWrote, at.Target, left.end, fmt.Sprintf(
			"%d records in partition %d of topic %s on the target, from offset %d on, are not this flow's.", left.foreign,
			t.asg.Target.Partition, t.asg.Target.Topic, at.Target))
	}
	t.expect = left.end
	id := identity{pid: at.ProducerID, epoch: at.Epoch, seq: at.Sequence}
	if old, was := p.used[t.asg.Target]; !was || old.pid != id.pid || old.epoch < id.epoch {
		p.used[t.asg.Target] = id
	}
	t.hasID, t.anew, t.inherited, t.anchored = false, false, false, false
	t.id = id // for the numbers of what is there
	if left.alive {
		// The same numbers go on, so that what the earlier run may still write and what comes now cannot both land.
		t.hasID, t.inherited, t.anchored = true, true, true
	}
	if left.doubt != nil && len(left.there) > 0 {
		p.disinherit(t, left.doubt)
	}
}

// skip looks up the batch at the head of the queue among what is there, as far as it is; the lock is held.
func (p *mirror) skip(t *part) {
	u, next := t.queue.take()
	if t.queue.empty() {
		next = t.fetchOffset
	}
	defer p.account(t)
	defer u.drop()
	p.metrics.discarded.Add(float64(u.bytes()))
	all, _ := u.spans(0)
	n := 0
	for i := 0; i < len(all) && len(t.left) > 0; {
		s, at := &all[i], &t.left[0]
		one := *s
		one.Target, one.Count = at.target, min(s.Count, at.count)
		t.found = append(t.found, one)
		n += int(one.Count)
		s.Source, s.Count = s.Source+one.Count, s.Count-one.Count
		at.target, at.count = at.target+one.Count, at.count-one.Count
		if s.Count == 0 {
			i++
		}
		if at.count == 0 {
			t.left = t.left[1:]
		}
	}
	if len(t.left) > 0 {
		return
	}
	if t.legacy.last != nil {
		body, err := batch.Body(u.b, n-1, maxOld, p.codec)
		if err != nil || !bytes.Equal(body, t.legacy.last) {
			p.disinherit(t, err)
			return
		}
	}
	end := t.found[len(t.found)-1]
	partly := n < u.count()
	if partly {
		next = end.Source + end.Count
	}
	spans := t.found
	point := Point{Source: next, Target: end.Target + end.Count, ProducerID: t.id.pid, Epoch: t.id.epoch, Sequence: t.legacy.next}
	t.position, t.id.seq = next, t.legacy.next
	t.legacy, t.found = legacy{}, nil
	p.tell(t, func(o Observer, tp TP) {
		o.Mirrored(tp, spans, point)
		o.Passed(tp, next)
	})
	if partly {
		p.dropQueue(t) // the rest of the batch comes again, from its middle
	}
}

// disinherit goes on as if nothing were there, since what is there is not what the source has at these offsets; the lock is
// held.
func (p *mirror) disinherit(t *part, cause error) {
	first, last := t.legacy.there[0], t.legacy.there[len(t.legacy.there)-1]
	p.odd(t, sentTwice, first.target, last.target+last.count, fmt.Sprintf(
		"What partition %d of topic %s on the target holds from offset %d to %d is not what the source has now behind offset %d, which is copied again.",
		t.asg.Target.Partition, t.asg.Target.Topic, first.target, last.target+last.count-1, t.position))
	p.cfg.Logger.Warn("what an earlier run wrote is not what the source has", slog.String("topic", t.asg.Target.Topic),
		slog.Int("partition", int(t.asg.Target.Partition)), slog.Int64("target_offset", first.target), slog.Any("error", cause))
	t.legacy, t.left, t.found, t.shortSince = legacy{}, nil, nil, time.Time{}
	p.startAnew(t)
	p.dropQueue(t)
}

// superseded tells that an earlier run's batches landed after it was taken over, which are taken over as well; the lock is
// held. false: somebody else writes under the identity.
func (p *mirror) superseded(t *part, first sought) bool {
	if !t.inherited || first.expect < 0 || t.awaiting > 0 {
		return false
	}
	p.cfg.Logger.Warn("an earlier run wrote after it was taken over", slog.String("topic", t.asg.Target.Topic),
		slog.Int("partition", int(t.asg.Target.Partition)), slog.Int64("expected_offset", first.expect))
	at := Point{Source: t.position, Target: first.expect, ProducerID: first.id.pid, Epoch: first.id.epoch, Sequence: first.id.seq}
	for _, b := range t.under {
		b.stage = refused
	}
	p.rewind(t, 0)
	t.point = &at
	p.settle(t)
	p.enlist(t)
	return true
}

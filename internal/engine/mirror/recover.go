package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// errUnsettled says that nothing can be concluded yet from what the target holds.
var errUnsettled = errors.New("its replicas have not caught up")

// settleTries is how often a reading is repeated at once when the target's replicas are behind.
const settleTries = 6

// sought is a batch of which it is to be found out whether it is on the target.
type sought struct {
	of     *sending
	id     identity
	count  int
	newest int64
	expect int64
}

// finding is what a look at the target gave.
type finding struct {
	there int           // so many of the first batches are there, by the entry
	bases map[int]int64 // where those are that are there
	// foreign says that somebody else writes under our identity, lost that the target has less than it acknowledged: in
	// either case another identity is needed.
	foreign, lost bool
	tail          wire.Tail
}

// look finds out what of a pipeline without answers is on the target, and goes on from there: nothing is sent again
// before.
func (p *mirror) look(ctx context.Context, broker int32, t *part, gen uint64) {
	var all []sought
	var tp TP
	var v view
	p.locked(func() {
		if t.gen != gen || !t.busy {
			return
		}
		tp, v = t.asg.Target, t.tgt
		for _, b := range t.under {
			all = append(all, sought{b, b.id, b.unit.count(), b.unit.newest(), b.expect})
		}
	})
	if len(all) == 0 {
		p.locked(func() {
			if t.gen == gen {
				t.busy, t.unread = false, false
			}
		})
		return
	}
	f, err := p.find(ctx, broker, tp, v, all)
	p.locked(func() {
		if t.gen != gen || !t.busy || t.state == closed {
			return
		}
		t.busy = false
		if err != nil {
			p.metrics.failure("target", "look", err)
			p.pause(t, err)
			return
		}
		p.found(t, all, f)
		p.enlist(t)
	})
	notify(p.wakeFetch)
}

// found takes what a look gave; the lock is held.
func (p *mirror) found(t *part, all []sought, f finding) {
	t.unread = false
	for i, s := range all {
		base, there := f.bases[i]
		switch {
		case s.of.stage == acked:
		case there:
			s.of.stage, s.of.base = acked, base
		case s.of.stage != made:
			s.of.stage, s.of.looked = refused, true
		}
	}
	p.cfg.Logger.Info("the target was looked at", slog.String("topic", t.asg.Target.Topic), slog.Int("partition", int(t.asg.Target.Partition)),
		slog.Int("batches", len(all)), slog.Int("there", len(f.bases)), slog.Bool("known", f.tail.Known), slog.Int("last_sequence", int(f.tail.LastSequence)),
		slog.Int64("log_end", f.tail.LogEnd))
	switch {
	case f.foreign && p.superseded(t, all[0]):
		return
	case f.foreign:
		p.odd(t, identityUsed, all[0].expect, f.tail.LogEnd, fmt.Sprintf(
			"Somebody else writes to partition %d of topic %s on the target under this flow's producer id %d: its last sequence there is %d of epoch %d.",
			t.asg.Target.Partition, t.asg.Target.Topic, all[0].id.pid, f.tail.LastSequence, f.tail.ProducerEpoch))
		p.startAnew(t)
	case f.lost:
		p.startAnew(t)
	}
	p.decide(t)
}

// find looks at the target: first for the producer's entry, then, when the log's end is not where it should be, for the
// batches themselves.
func (p *mirror) find(ctx context.Context, broker int32, tp TP, v view, all []sought) (finding, error) {
	tail, err := p.settled(ctx, broker, tp, v, all[0].id.pid)
	f := finding{tail: tail, bases: map[int]int64{}}
	switch {
	case denied(err):
		// Not even where the log ends: what is in it says the log itself, if it may be read.
		f.tail.LogEnd = -1
	case err != nil:
		return f, err
	case tail.Known && tail.ProducerEpoch == all[0].id.epoch:
		f.count(all)
	case tail.Known && tail.ProducerEpoch > all[0].id.epoch:
		f.foreign = true
	case tail.Known:
		// Of an epoch that we have left: nothing of ours came after.
		f.lost = all[0].id.seq != 0
	}
	if err == nil && tail.Known && f.there == 0 {
		return f, nil
	}
	if first := all[0].expect; first >= 0 && f.tail.LogEnd == first && !tail.Known {
		return f, nil
	}
	if f.there > 0 {
		if last := all[f.there-1]; last.expect >= 0 && f.tail.LogEnd == last.expect+int64(last.count) {
			for i, s := range all[:f.there] {
				f.bases[i] = s.expect
			}
			return f, nil
		}
	}
	return f, p.scan(ctx, broker, tp, v.id, all, &f)
}

// count tells by the entry's last sequence how many batches are there.
func (f *finding) count(all []sought) {
	// How many records the entry is ahead of what was acknowledged.
	ahead := (int64(f.tail.LastSequence) + 1 - int64(all[0].id.seq)) & 0x7fffffff
	if ahead > 1<<30 {
		f.lost = true
		return
	}
	for f.there < len(all) && ahead > 0 {
		ahead -= int64(all[f.there].count)
		f.there++
	}
	if ahead < 0 {
		f.there-- // the last one is there in part
	}
	f.foreign = ahead != 0
}

// settled reads the end of a partition, until all that its leader has is replicated. Where nothing is told of producers, no
// entry is known.
func (p *mirror) settled(ctx context.Context, broker int32, tp TP, v view, pid int64) (wire.Tail, error) {
	told := true
	for try := 0; ; try++ {
		tail, err := p.tail(ctx, broker, tp, v, pid, told)
		if told && denied(err) {
			told = false
			tail, err = p.tail(ctx, broker, tp, v, pid, told)
		}
		if err != nil || tail.Settled() {
			return tail, err
		}
		if try == settleTries {
			return tail, errUnsettled
		}
		select {
		case <-ctx.Done():
			return tail, ctx.Err()
		case <-time.After(10 * time.Millisecond << try):
		}
	}
}

// tail is one reading, with or without the entry of a producer.
func (p *mirror) tail(ctx context.Context, broker int32, tp TP, v view, pid int64, entry bool) (wire.Tail, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	mark := p.target.begin()
	conn, err := p.target.cluster.Lane(ctx, broker, hub.ReadLane)
	var tail wire.Tail
	switch {
	case err != nil:
	case entry:
		tail, err = conn.Tail(ctx, tp.Topic, tp.Partition, v.epoch, pid)
	default:
		tail, err = conn.TailEnd(ctx, tp.Topic, tp.Partition, v.epoch)
	}
	p.target.end(mark, transportError(err))
	return tail, err
}

// denied tells that a broker does not let itself be read, or does not know how.
func denied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, wire.ErrVersion) ||
		errors.Is(err, kerr.UnsupportedVersion)
}

func transportError(err error) error {
	var ke *kerr.Error
	if errors.As(err, &ke) || errors.Is(err, wire.ErrVersion) {
		return nil
	}
	return err
}

// scan looks for batches in the log, by their headers. With an entry that counts some of them, these are there for sure.
func (p *mirror) scan(ctx context.Context, broker int32, tp TP, id [16]byte, all []sought, f *finding) error {
	from := all[0].expect
	var err error
	if from < 0 {
		total := int64(0)
		for _, s := range all {
			total += int64(s.count)
		}
		from, err = p.nearEnd(ctx, broker, tp, total)
	}
	if err == nil {
		err = p.headers(ctx, broker, tp, id, from, func(b batch.Batch) bool {
			for i, s := range all {
				if _, have := f.bases[i]; !have && identityOf(b) == s.id && int(b.Count()) == s.count && (s.id.pid >= 0 || b.MaxTimestamp() == s.newest) {
					f.bases[i] = b.BaseOffset()
					break
				}
			}
			return len(f.bases) < len(all)
		})
	}
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange): // it ends before: there is nothing
	case denied(err):
		p.cfg.Logger.Warn("the target lets nothing be read, so that what was sent without answer is sent again", slog.String("topic", tp.Topic),
			slog.Int("partition", int(tp.Partition)), slog.Any("error", err))
	case err != nil:
		return err
	}
	for i, s := range all[:f.there] {
		if _, have := f.bases[i]; have {
			continue
		}
		// The entry knows it, and the log has it no more.
		f.bases[i] = max(s.expect, f.tail.LogEnd-int64(s.count), 0)
		p.cfg.Logger.Warn("a batch that the target has taken is not in its log any more", slog.String("topic", tp.Topic),
			slog.Int("partition", int(tp.Partition)), slog.Int64("offset", f.bases[i]))
	}
	return nil
}

// nearEnd is where to look for batches of which the offset is not known: a little before the log's end, since somebody else
// may have written behind them.
func (p *mirror) nearEnd(ctx context.Context, broker int32, tp TP, records int64) (int64, error) {
	start, err := p.target.listOffset(ctx, broker, tp, -2, 0)
	if err != nil {
		return 0, err
	}
	end, err := p.target.listOffset(ctx, broker, tp, -1, 0)
	return max(start, end-records-1000), err
}

// headers shows the batches from an offset on, up to what is replicated when it begins, or until enough were seen. What
// others write meanwhile does not count, so that it comes to an end.
func (p *mirror) headers(ctx context.Context, broker int32, tp TP, id [16]byte, from int64, more func(batch.Batch) bool) error {
	for end := int64(-1); ; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 1<<20
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = tp.Topic, id
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = tp.Partition, from, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		answer, err := p.target.request(ctx, broker, req)
		if err != nil {
			return err
		}
		resp, ok := answer.(*kmsg.FetchResponse)
		if !ok {
			return errNoFetchAnswer
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return errNoFetchAnswer
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return err
		}
		next := from
		for in := batch.Slice(got.RecordBatches); in.Next(); {
			if in.Magic() < 2 {
				continue
			}
			if !more(in.Batch()) {
				return nil
			}
			next = in.Batch().NextOffset()
		}
		if end < 0 {
			end = got.HighWatermark
		}
		if next == from || next >= end {
			return nil
		}
		from = next
	}
}

// prove has the target asked for the entry of a partition's producer, without which only one batch is under way. The lock
// is held.
func (p *mirror) prove(ctx context.Context, t *part, l *lane, now time.Time) {
	if t.proof != unproven || t.acks == 0 || t.id.pid < 0 || t.solo || t.broken || now.Before(t.proveAt) {
		return
	}
	t.proveAt = now.Add(requestTimeout)
	tp, v, id, gen, broker := t.asg.Target, t.tgt, t.id, t.gen, l.broker
	p.spawn("reading the producer's entry", func() {
		p.learnExpiration(ctx, broker)
		tail, err := p.tail(ctx, broker, tp, v, id.pid, true)
		p.locked(func() {
			if t.gen != gen || t.id.pid != id.pid || t.id.epoch != id.epoch {
				return
			}
			t.proveAt = time.Now().Add(time.Second)
			switch {
			case err == nil && tail.Known && tail.ProducerEpoch == id.epoch:
				t.proof = proven
			case denied(err):
				t.proof = impossible
				p.cfg.Logger.Info("the target does not tell what it knows of producers, so that one batch of a partition is under way at a time",
					slog.String("topic", tp.Topic), slog.Any("error", err))
			}
			p.enlist(t)
		})
	})
}

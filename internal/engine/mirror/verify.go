package mirror

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// renumber answers a target that does not know the partition's sequence: it lost its producer state, or its end. A batch
// whose fate is known goes out again under a new identity; for one that may be there, the target is asked first. The
// lock is held.
func (p *mirror) renumber(ctx context.Context, t *part, code error) {
	p.cfg.Logger.Info("target lost producer state", slog.String("topic", t.asg.Target.Topic), slog.Int("partition", int(t.asg.Target.Partition)),
		slog.Int64("producer_id", t.sending.id.pid), slog.Int("sequence", int(t.sending.id.seq)), slog.Int64("expected_offset", t.expect), slog.Any("error", code))
	if t.sending.uncertain || errors.Is(code, kerr.DuplicateSequenceNumber) {
		t.sending.uncertain = true
		if t.tgt.leader < 0 {
			p.resendLater(t, code)
			return
		}
		t.sending.inRequest = true
		send := produceSend{part: t, batch: t.sending, tp: t.asg.Target, id: t.tgt.id}
		p.target.broker(t.tgt.leader).busy[t.lane]++
		job := produceJob{broker: t.tgt.leader, lane: t.lane, sends: []produceSend{send}, verify: true, anew: true}
		p.spawn("looking at the target", func() { p.verify(ctx, job) })
		return
	}
	p.startAnew(t)
}

// startAnew sends the batch under way again under an identity that the partition has not used; the lock is held.
func (p *mirror) startAnew(t *part) {
	t.hasID, t.anew = false, true
	p.putBack(t)
}

// verify looks at the target's log for a batch that may be there, and acknowledges it or sends it again.
func (p *mirror) verify(ctx context.Context, j produceJob) {
	s, began := j.sends[0], time.Now()
	var expect int64
	p.locked(func() { expect = s.part.expect })
	found := false
	base := int64(-1)
	var err error
	if expect < 0 {
		expect, err = p.tail(ctx, j.broker, s)
	}
	if err == nil {
		base, found, err = p.findBatch(ctx, j.broker, s, expect)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	p.target.finished(j.broker, j.lane, began, transportError(err))
	t, b := s.part, s.batch
	b.inRequest = false
	switch {
	case t.sending != b:
		b.unit.drop()
	case b.stale:
		p.release(t)
	case found:
		p.acknowledge(t, base)
	case err != nil && !errors.Is(err, kerr.OffsetOutOfRange) && !errors.Is(err, kerr.TopicAuthorizationFailed):
		p.resendLater(t, err)
	case j.anew:
		p.startAnew(t)
	default:
		// Not there, as far as can be seen: what is not replicated yet cannot. The old identity covers that, if the target
		// still knows it.
		b.looked = true
	}
}

func transportError(err error) error {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return nil
	}
	return err
}

// tail is where to look for a partition's first batch, of which the offset is not known: a little before the log's end,
// since somebody else may have written behind it.
func (p *mirror) tail(ctx context.Context, broker int32, s produceSend) (int64, error) {
	start, err := p.target.listOffset(ctx, broker, s.tp, -2, 0)
	if err != nil {
		return 0, err
	}
	end, err := p.target.listOffset(ctx, broker, s.tp, -1, 0)
	return max(start, end-int64(s.batch.unit.count())-1000), err
}

// findBatch looks for the batch from offset from on; it reads headers only, up to the log's end.
func (p *mirror) findBatch(ctx context.Context, broker int32, s produceSend, from int64) (base int64, found bool, err error) {
	for {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 1<<20
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = s.tp.Topic, s.id
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = s.tp.Partition, from, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		answer, err := p.target.request(ctx, broker, req)
		if err != nil {
			return 0, false, err
		}
		resp, ok := answer.(*kmsg.FetchResponse)
		if !ok {
			return 0, false, errNoFetchAnswer
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return 0, false, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, false, errNoFetchAnswer
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return 0, false, err
		}
		next := from
		for in := batch.Slice(got.RecordBatches); in.Next(); {
			if in.Magic() < 2 {
				continue
			}
			b := in.Batch()
			if identityOf(b) == s.batch.id && int(b.Count()) == s.batch.unit.count() {
				return b.BaseOffset(), true, nil
			}
			next = b.NextOffset()
		}
		if next == from {
			return 0, false, nil
		}
		from = next
	}
}

package mirror

import (
	"context"
	"log/slog"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// anchorage is whether a successor would know the partition's identity.
type anchorage struct {
	anchored  bool
	anchoring bool
	homeless  time.Time // since when its point is to be stored; zero: it is
}

// pointBehind is the point behind an acknowledged batch; the lock is held.
func (t *part) pointBehind(b *sending) Point {
	n := b.count()
	next := Point{Source: b.next, Target: b.base + n, ProducerID: b.id.pid, Epoch: b.id.epoch}
	if b.id.pid >= 0 {
		next.Sequence = batch.NextSequence(b.id.seq, int32(n))
	}
	return next
}

// isAnchored tells whether the partition may send under its identity; if not, its point is stored first, and whoever waits is
// enlisted then. The lock is held, and nothing of the partition is awaited.
func (p *mirror) isAnchored(t *part) bool {
	switch {
	case t.anchored, p.cfg.Anchor == nil, t.id.pid < 0:
		return true
	case !t.anchoring:
		t.anchoring = true
		if t.homeless.IsZero() {
			t.homeless = time.Now()
		}
		p.toAnchor = append(p.toAnchor, t)
		notify(p.wakeAnchor)
	}
	return false
}

// anchoredPart is a partition whose point is being stored.
type anchoredPart struct {
	part  *part
	gen   uint64
	tp    TP
	to    TP
	id    identity // of its next record
	point Point
	v     view
}

// anchorLoop stores the points of all partitions that wait for it.
func (p *mirror) anchorLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wakeAnchor:
		}
		p.anchor(ctx, p.waitingForAnchor())
	}
}

func (p *mirror) waitingForAnchor() (all []anchoredPart) {
	p.locked(func() {
		for _, t := range p.toAnchor {
			if t.state == closed || !t.anchoring {
				continue
			}
			id, target := t.id, t.expect
			if head := t.head(); head != nil { // what is sent again comes first
				id, target = head.id, head.expect
			}
			all = append(all, anchoredPart{t, t.gen, t.asg.Source, t.asg.Target, id, Point{
				Source: t.position, Target: target, ProducerID: id.pid, Epoch: id.epoch, Sequence: id.seq,
			}, t.tgt})
		}
		p.toAnchor = nil
	})
	return all
}

// anchor stores points, and lets their partitions go on.
func (p *mirror) anchor(ctx context.Context, all []anchoredPart) {
	points := map[TP]Point{}
	var err error
	for i := range all {
		a := &all[i]
		if a.point.Target < 0 {
			// Where the log ends is where the next record will be.
			tail, lost := p.settled(ctx, a.v.leader, a.to, a.v, a.id.pid)
			if lost != nil {
				err = lost
				continue
			}
			a.point.Target = tail.LogEnd
		}
		points[a.tp] = a.point
	}
	if len(points) > 0 {
		failed := p.events.flush(ctx) // so that the observer has every position that a point belongs to
		if failed == nil {
			failed = p.cfg.Anchor(ctx, points)
		}
		if failed != nil {
			err, points = failed, nil
		}
	}
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	p.locked(func() {
		for _, a := range all {
			_, stored := points[a.tp]
			p.moored(a, stored, err, now)
		}
	})
}

// moored takes what became of storing a point; the lock is held.
func (p *mirror) moored(a anchoredPart, stored bool, err error, now time.Time) {
	t := a.part
	t.anchoring = false
	if t.gen != a.gen || t.state == closed || t.id.pid != a.id.pid || t.id.epoch != a.id.epoch {
		p.enlist(t)
		return
	}
	switch {
	case stored:
		t.anchored, t.homeless = true, time.Time{}
		if t.expect < 0 && len(t.under) == 0 {
			t.expect = a.point.Target
		}
	case now.Sub(t.homeless) < p.cfg.AnchorPatience:
		t.notBefore = now.Add(anchorPause)
		p.enlistLater(t, anchorPause)
		return
	default:
		t.anchored, t.homeless = true, time.Time{}
		p.cfg.Logger.Warn("copying goes on without a point: a crash would copy the tail again", slog.String("topic", t.asg.Source.Topic),
			slog.Int("partition", int(t.asg.Source.Partition)), slog.Any("error", err))
	}
	p.enlist(t)
}

// anchorPause is when storing a point is tried again.
const anchorPause = 200 * time.Millisecond

package mirror

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// yieldFor is how long a partition that gave back what it held is not read.
	yieldFor = 2 * time.Second
	// movingFor is for how long a path that the target takes nothing of may hold more than its share.
	movingFor = time.Second
	// inlineBytes is what is unpacked while others wait for their answers.
	inlineBytes = 128 << 10
)

var errNoFetchAnswer = errors.New("mirror: the answer to a fetch has another form than expected")

var _ hub.Owner = (*mirror)(nil)

// asked is a want that was left with the hub; the zero value: none.
type asked struct {
	on     bool
	leader int32
	offset int64
	seq    uint64
	id     [16]byte
	bytes  int32
	cost   int64 // what it is expected to bring, if the partition has a share in the rate
}

// reconsider has what is wanted of a partition looked at; the lock is held.
func (p *mirror) reconsider(t *part) {
	if !t.changed {
		t.changed = true
		p.changed = append(p.changed, t)
		notify(p.wakeFetch)
	}
}

// aim leaves what is wanted of a partition with the hub, or takes it back; the lock is held.
func (p *mirror) aim(t *part, now time.Time) {
	next := asked{}
	if p.wanted(t, now) {
		next = p.ask(t)
	}
	switch {
	case next == t.asked:
		return
	case next.on:
		p.reader.Set(next.leader, hub.Want{
			TP: hub.TP(t.asg.Source), TopicID: next.id, Offset: next.offset, MaxBytes: next.bytes, Tag: next.seq,
			More: t.behind(p.cfg.ReadUncommitted),
		})
	case p.suspended:
		p.reader.Withdraw(hub.TP(t.asg.Source))
	default:
		p.reader.Drop(hub.TP(t.asg.Source))
	}
	p.noteAsked(t, next)
}

// noteAsked notes what is left with the hub; the lock is held.
func (p *mirror) noteAsked(t *part, a asked) {
	p.ahead += a.cost - t.asked.cost
	t.asked = a
}

// ask is what to leave with the hub, if anything may be; the lock is held.
func (p *mirror) ask(t *part) asked {
	a := asked{on: true, leader: t.src.leader, offset: t.fetchOffset, seq: t.fetchSeq, id: t.src.id}
	if old := t.asked; old.on && old.leader == a.leader && old.offset == a.offset && old.seq == a.seq && old.id == a.id {
		return old // whatever would be asked for by now
	}
	a.bytes = p.answerBytes(t)
	if p.rate.rate <= 0 {
		return a
	}
	if p.indebted {
		return asked{}
	}
	if !t.behind(p.cfg.ReadUncommitted) {
		a.bytes = min(a.bytes, leastAnswer) // and only once: then more is known
		return a
	}
	a.cost = int64(max(a.bytes, t.largest))
	if others := p.ahead - t.asked.cost; others > 0 && others+a.cost > p.rate.rate/4 {
		p.queued = true
		return asked{}
	}
	return a
}

// behind tells whether the source is known to hold more of a partition; the lock is held.
func (t *part) behind(uncommitted bool) bool {
	return t.fetchOffset < pick(uncommitted, t.ends.HighWatermark, t.ends.LastStable)
}

// wanted tells whether a partition is to be read. One whose target is unknown or behind is not, so that it cannot fill the
// budget of the others.
func (p *mirror) wanted(t *part, now time.Time) bool {
	switch {
	case p.suspended || t.state != running || t.fetchStop != nil || t.src.leader < 0 || t.tgt.leader < 0 || now.Before(t.fetchNotBefore):
		return false
	case t.inHand == t.fetchSeq || t.stale > 0 || t.failures > 2 && (len(t.under) > 0 || now.Before(t.notBefore)):
		return false
	case t.asked.on:
		return true
	}
	// Half of what the path may still take.
	held := p.inFlight.Load()
	return held == 0 || t.counted == 0 || t.counted < (p.hub.Free()-held)/2
}

// admit looks whether anything may be wanted at all, and has all partitions looked at when that changes; the lock is held.
// The path holds no more than is free to all, and may always hold one answer.
func (p *mirror) admit(now time.Time) {
	held, free := p.inFlight.Load(), p.hub.Free()
	suspended := held > 0 && held >= free
	if p.suspended { // not at the first byte again
		suspended = held > 0 && 2*held > free
	}
	debt := p.rate.debt(now)
	switch {
	case suspended:
		p.hub.NotifyFree(p.wakeFetch, 2*held)
	case p.suspended:
		p.hub.ForgetFree(p.wakeFetch)
	}
	if debt > 0 && !p.owing {
		p.owing = true
		time.AfterFunc(debt, func() {
			p.locked(func() { p.owing = false })
			notify(p.wakeFetch)
		})
	}
	if suspended && !p.suspended {
		p.full = now
		if !p.watching {
			p.watching = true
			time.AfterFunc(movingFor+movingFor/8, func() {
				p.locked(func() { p.watching = false })
				notify(p.wakeFetch)
			})
		}
	}
	if suspended != p.suspended || debt > 0 != p.indebted {
		p.suspended, p.indebted = suspended, debt > 0
		p.rescan.Store(true)
		notify(p.wakeFetch)
	}
}

// aimAtChanged brings the wants up to date; the lock is held.
func (p *mirror) aimAtChanged(now time.Time) {
	p.admit(now)
	if p.suspended {
		p.yield(now)
		p.giveBack(now)
	}
	switch {
	case p.rescan.Swap(false):
		p.aimAtAll(now)
	case p.queued && !p.indebted && p.ahead < p.rate.rate/4:
		p.aimAtAll(now)
	default:
		for _, t := range p.changed {
			p.aim(t, now)
		}
	}
	for _, t := range p.changed {
		t.changed = false
	}
	clear(p.changed)
	p.changed = p.changed[:0]
}

// aimAtAll brings all wants up to date, beginning with whose turn it is; the lock is held.
func (p *mirror) aimAtAll(now time.Time) {
	p.queued = false
	n, first := len(p.order), p.turn
	for i := range n {
		t := p.order[(first+i)%n]
		was := t.asked
		p.aim(t, now)
		if t.asked.cost > 0 && t.asked != was {
			p.turn = (first + i + 1) % n
		}
	}
}

// yield has partitions that cannot be written give back what they hold, since the path holds so much that nothing is read
// for the others; it will be read again. The lock is held.
func (p *mirror) yield(now time.Time) {
	gave := false
	for _, t := range p.order {
		if t.counted == 0 || t.awaiting > 0 || t.stale > 0 || t.unread || t.busy || t.state != running || !p.cutOff(t) {
			continue
		}
		unsent := len(t.under) > 0
		for _, b := range t.under {
			unsent = unsent && b.stage == made
		}
		if unsent {
			p.rewind(t, 0)
		} else {
			p.dropQueue(t)
		}
		t.fetchNotBefore, gave = now.Add(yieldFor), true
	}
	if gave {
		p.wakeIn(yieldFor)
	}
}

// giveBack has a path that the target takes nothing of give back what it holds beyond its share: the answers that were under
// way when it had enough. What was not sent is read again. The lock is held.
func (p *mirror) giveBack(now time.Time) {
	if now.Sub(p.full) < movingFor || now.Sub(p.acked) < movingFor {
		return
	}
	for _, t := range p.order {
		if p.inFlight.Load() <= p.hub.Free() {
			return
		}
		if t.state == running && !t.queue.empty() && t.stale == 0 {
			p.dropQueue(t)
		}
	}
}

// cutOff tells whether a partition's leader on the target is not known or not reached; the lock is held.
func (p *mirror) cutOff(t *part) bool {
	l := p.lanes[p.laneOf(t)]
	return t.tgt.leader < 0 || l != nil && l.failures > 2
}

// Fetched implements hub.Owner.
func (p *mirror) Fetched(a *hub.Answer) {
	size := 0
	for i := range a.Parts {
		size += len(a.Parts[i].Fetched.Records)
	}
	if size > inlineBytes {
		if !p.alive("reading", func() { p.receive(a) }) {
			a.Release()
		}
		return
	}
	p.contained("reading", func() { p.receive(a) })
}

// Lost implements hub.Owner.
func (p *mirror) Lost(broker int32, err error) {
	p.metrics.failure("source", "request", err)
	p.locked(func() {
		for _, t := range p.order {
			if t.src.leader == broker {
				p.source.markDirty(t.asg.Source.Topic)
			}
		}
	})
}

// contained calls f; a panic ends Run.
func (p *mirror) contained(where string, f func()) {
	err := report.Contained("the data path: "+where, func() error {
		f()
		return nil
	})
	if err != nil {
		p.failed(err)
	}
}

// alive is spawn from without; false: the path has ended.
func (p *mirror) alive(where string, f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return false
	}
	p.spawn(where, f)
	return true
}

// receive goes through an answer.
func (p *mirror) receive(a *hub.Answer) {
	defer a.Release()
	u, ok := p.unpackers.Get().(*unpacker)
	if !ok {
		u = newUnpacker(p)
	}
	defer p.unpackers.Put(u)
	p.lost(a.Unclaimed)
	for i := range a.Parts {
		fp := &a.Parts[i].Fetched
		w, ok := p.wantOf(&a.Parts[i].Want, a.Parts[i].Kept)
		if !ok {
			p.lost(len(fp.Records))
			continue
		}
		ends := Ends{LogStart: fp.LogStart, HighWatermark: fp.HighWatermark, LastStable: fp.LastStable}
		switch code := kerr.ErrorForCode(fp.ErrorCode); {
		case a.Parts[i].Kept:
			p.seen(w, ends)
		case code == nil:
			h, err := u.unpack(w, fp, a.Parts[i].Buffer)
			p.metrics.fetched(len(fp.Records), len(fp.Records)-h.taken)
			if len(fp.Records) < int(w.most) {
				h.cut = 0 // for the end of the answer, or of the log
			}
			p.charge(h.taken)
			p.fetched(w, ends, h, err)
		default:
			p.faulted(w, code, a.Broker, fp.Leader)
		}
	}
}

// lost counts what was read and is of no use. It was read all the same, so the rate is charged with it.
func (p *mirror) lost(n int) {
	if n > 0 {
		p.metrics.fetched(n, n)
		p.charge(n)
	}
}

// wantOf finds what an answer is about; false: nobody waits for it any more.
func (p *mirror) wantOf(w *hub.Want, kept bool) (fetchWant, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, now := p.parts[TP(w.TP)], time.Now()
	if t == nil || t.state != running || t.fetchSeq != w.Tag || p.life == nil {
		return fetchWant{}, false
	}
	if !kept {
		// Else the same would be asked for, and copied, once more while this is gone through.
		p.noteAsked(t, asked{})
		t.inHand = w.Tag
	}
	return fetchWant{
		part: t, tp: t.asg.Source, id: w.TopicID, offset: w.Offset, seq: w.Tag, most: w.MaxBytes, limits: p.limitsOf(t, now),
	}, true
}

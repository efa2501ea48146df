package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// stage is what is known of a batch that was made.
type stage int

const (
	made    stage = iota // not in a request, and surely not on the target
	awaited              // in a request without answer
	acked                // acknowledged, and waits for those before it
	refused              // surely not appended
	unknown              // may be on the target
)

// sending is a batch under way.
type sending struct {
	unit   *unit
	next   int64 // position once acknowledged
	id     identity
	expect int64 // its target offset if nobody else writes; -1 unknown
	stage  stage
	base   int64   // of an acknowledged one
	cause  error   // of a refused or unknown one
	answer written // of a refused one
	looked bool    // the target's log was looked at, and it is not there
	stale  bool    // the partition was assigned anew meanwhile: the answer only ends the use of the memory
	jumped bool    // one behind it was appended first
	since  time.Time
}

func (b *sending) count() int64 { return int64(b.unit.count()) }

// end is the target offset behind the batch, if nobody else writes; -1 unknown.
func (b *sending) end() int64 {
	if b.expect < 0 {
		return -1
	}
	return b.expect + b.count()
}

// pipeline is what a partition has under way. Batches are written in the order of the list and acknowledged in that
// order. The path's lock guards it.
type pipeline struct {
	under    []*sending // oldest first
	awaiting int        // how many of them are awaited
	conn     *wire.Conn // the connection on which those were sent
	stale    int        // how many are of a former assignment; then there are no others
	broken   bool       // something failed: nothing is sent before all answers have come
	solo     bool       // something had failed: one at a time until the next acknowledgement
	unread   bool       // the target has to be looked at before anything is sent
	describe bool       // settings of the target's topic have to be read before the refusal is understood
	busy     bool       // one of these two is being done
	proof    proof
	proveAt  time.Time
	acks     int   // acknowledged under this identity
	lastTime int64 // the newest timestamp of the last acknowledged batch, ms
	strange  int   // refusals for the sequence that what the target holds does not explain
	hinted   bool  // the target named another leader: no pause is needed
	failures int   // in a row
	// failingSince is since when the target does not take the partition's batches; zero: it does.
	failingSince time.Time
	notBefore    time.Time
	listed       *lane // the lane in which it waits for its turn
	slow         int   // acknowledgements until it goes back to the lane that it shares with others
	suspect      bool  // its last request took long: it goes alone, to see whether it is the one
}

// proof is whether the target's entry of the partition's producer was seen, without which nothing tells what of several
// batches has arrived.
type proof int

const (
	unproven proof = iota
	proven
	impossible // the target does not tell
)

func (l *pipeline) head() *sending {
	if len(l.under) == 0 || l.stale > 0 {
		return nil
	}
	return l.under[0]
}

func (l *pipeline) last() *sending {
	if len(l.under) == 0 || l.stale > 0 {
		return nil
	}
	return l.under[len(l.under)-1]
}

// next is the first that waits to be sent.
func (l *pipeline) next() *sending {
	for _, b := range l.under {
		if b.stage == made {
			return b
		}
	}
	return nil
}

// underWay is in bytes.
func (l *pipeline) underWay() (n int64) {
	for _, b := range l.under {
		n += b.unit.bytes()
	}
	return n
}

// remove takes a batch out of the list, without an end to the use of its memory.
func (l *pipeline) remove(b *sending) {
	for i, one := range l.under {
		if one == b {
			copy(l.under[i:], l.under[i+1:])
			l.under[len(l.under)-1] = nil
			l.under = l.under[:len(l.under)-1]
			return
		}
	}
}

// coldBefore is the time before which records are so old that brokers may have forgotten who wrote them; ms.
func (p *mirror) coldBefore(now time.Time) int64 {
	return now.Add(margin - p.expiration).UnixMilli()
}

// mayJoin tells whether a batch whose largest timestamp is ts may be sent behind others without answer.
func (p *mirror) mayJoin(t *part, l *lane, ts int64, now time.Time) bool {
	if t.awaiting == 0 {
		return true
	}
	if t.solo || t.broken || t.id.pid < 0 || t.acks == 0 || t.conn != l.conn || t.proof == impossible {
		return false
	}
	if !t.appendTime {
		// Each of those under way was as young as the one before it.
		if cold := p.coldBefore(now); ts < cold || t.lastTime < cold || t.last().unit.newest() < cold {
			return false
		}
	}
	return t.proof == proven
}

// nextBatch is what a partition sends now in a lane's next request, nil: nothing; then whatever ends the reason enlists it
// again. The lock is held.
func (p *mirror) nextBatch(ctx context.Context, t *part, l *lane, now time.Time) *sending {
	if t.state != running && t.state != closing || t.tgt.leader < 0 || t.stale > 0 || t.busy || now.Before(t.notBefore) {
		return nil
	}
	if t.unread || t.describe {
		t.busy = true
		read := t.unread
		p.spawn("looking at the target", func() {
			if read {
				p.look(ctx, l.broker, t, t.gen)
			} else {
				p.understand(ctx, t, t.gen)
			}
		})
		return nil
	}
	if t.broken {
		return nil
	}
	if !p.caughtUp(ctx, t, l) {
		return nil
	}
	b := t.next()
	if b == nil && (t.state != running || t.queue.empty()) {
		return nil
	}
	if b == nil && p.rereads(t, now) {
		return nil
	}
	var ts int64
	if b != nil {
		ts = b.unit.newest()
	} else {
		ts = t.queue.units[0].newest()
	}
	if !p.mayJoin(t, l, ts, now) {
		p.prove(ctx, t, l, now)
		return nil
	}
	if old, had := t.id, t.hasID; t.awaiting == 0 {
		if !p.identify(ctx, t, now) {
			return nil
		}
		if !had || old.pid != t.id.pid || old.epoch != t.id.epoch {
			p.renumber(t)
			t.anchored = false
		}
		if !p.isAnchored(t) {
			return nil
		}
	}
	if b == nil {
		b = p.take(t, now)
	}
	b.stage = awaited
	t.awaiting++
	t.conn = l.conn
	return b
}

// rereads drops small batches that were read before it was known that they go one at a time over a long line, once, so
// that they come again as large ones; the lock is held.
func (p *mirror) rereads(t *part, now time.Time) bool {
	if t.reread || len(t.queue.units) < 2 {
		return false
	}
	w := fetchWant{limits: p.limitsOf(t, now)}
	if !w.alone(t.queue.units[0].b) || !w.alone(t.queue.units[1].b) {
		return false
	}
	t.reread = true
	p.dropQueue(t)
	notify(p.wakeFetch)
	return true
}

// ready tells whether there is anything to send, now or when what is under way has ended.
func (t *part) ready() bool {
	return t.stale == 0 && (t.next() != nil || t.unread || t.describe || t.state == running && (!t.queue.empty() || t.point != nil))
}

// take moves the head of the queue into the pipeline; the lock is held.
func (p *mirror) take(t *part, now time.Time) *sending {
	u, next := t.queue.take()
	if t.queue.empty() {
		next = t.fetchOffset
	}
	b := &sending{unit: u, next: next, since: now}
	t.under = append(t.under, b)
	p.number(t, b)
	p.account(t)
	return b
}

// number gives a batch the partition's next sequence number and expected offset; the lock is held.
func (p *mirror) number(t *part, b *sending) {
	b.id, b.expect = t.id, t.expect
	if t.id.pid >= 0 {
		t.id.seq = batch.NextSequence(t.id.seq, int32(b.count()))
	}
	t.expect = b.end()
}

// renumber gives new numbers to what is under way and not on the target; the lock is held.
func (p *mirror) renumber(t *part) {
	if head := t.head(); head != nil {
		t.expect = head.expect
	}
	for _, b := range t.under {
		if b.stage != acked { // by the target, under the numbers that it had
			p.number(t, b)
			b.looked = false
		}
	}
	t.acks, t.proof, t.strange = 0, unproven, 0
}

// rewind drops what is under way from a batch on, the first of which is surely not on the target: it will be read again, and its
// numbers are free. What is acknowledged behind it comes twice, which is told. What waits in the queue lies behind it and goes too. The lock is held.
func (p *mirror) rewind(t *part, from int) {
	if t.stale > 0 {
		return // these wait for the answers to a former assignment's requests
	}
	defer t.flow()
	if from >= len(t.under) {
		return
	}
	first := t.under[from]
	if t.hasID && t.id.pid >= 0 {
		t.id.seq = first.id.seq
	}
	t.expect = first.expect
	for i := from; i < len(t.under); i++ {
		if b := t.under[i]; b.stage == acked {
			p.odd(t, sentTwice, b.unit.base, b.unit.next, fmt.Sprintf(
				"The records of partition %d of topic %s on the source from offset %d to %d are on the target behind others that it refuses, and follow those once more: it had lost what it knew of the producer.",
				t.asg.Source.Partition, t.asg.Source.Topic, b.unit.base, b.unit.next-1))
		}
		p.metrics.discarded.Add(float64(t.under[i].unit.bytes()))
		t.under[i].unit.drop()
		t.under[i] = nil
	}
	t.under = t.under[:from]
	p.dropQueue(t)
}

// flow ends what held up the pipeline, when nothing of it is left: nobody else would.
func (l *pipeline) flow() {
	if len(l.under) == 0 {
		l.broken, l.describe = false, false
	}
}

// abandon gives up a partition's pipeline, whatever became of it; those without answer stay until theirs comes. The lock
// is held.
func (p *mirror) abandon(t *part) {
	kept := t.under[:0]
	for _, b := range t.under {
		if b.stage != awaited {
			b.unit.drop()
			continue
		}
		b.stale = true
		kept = append(kept, b)
	}
	clear(t.under[len(kept):])
	t.under = kept
	t.pipeline = pipeline{under: kept, stale: len(kept), listed: t.listed}
}

package mirror

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

type partState int

const (
	running partState = iota
	waiting           // stopped, tries again at retryAt
	stopped           // waits for Assign
	closing           // Unassign or Drain: acknowledges what is under way, starts nothing
	closed
)

// unavailableAfter is how long a partition may be without a leader, or be refused for want of replicas, unseen.
const unavailableAfter = 5 * time.Second

// part is one assigned partition. All members are guarded by the path's lock.
type part struct {
	asg   Assignment
	gen   uint64 // raised by each Assign: what belongs to an older one is dropped
	state partState

	// Reading. fetchOffset is the next to ask for; fetchSeq is raised whenever it is set anew, so that an answer to an
	// older question is recognised.
	src         view
	fetchOffset int64
	fetchSeq    uint64
	inHand      uint64 // fetchSeq of the answer that is being gone through; until that is done nothing more is wanted
	asked       asked  // what is left with the hub
	sizes
	changed        bool // in the list of those to look at
	fetchFailures  int
	fetchNotBefore time.Time
	fetchStop      *Stop // reading ended; told when all that was read before is acknowledged
	ends           Ends

	// Between. position: everything below is acknowledged or not to be mirrored.
	queue    unitQueue
	counted  int64 // what of queue and sending is in the path's bytes in flight
	position int64

	// Writing.
	pipeline
	tgt        view
	id         identity // of the next batch
	hasID      bool
	anew       bool  // the target does not know the identity used last: another producer is needed
	expect     int64 // target offset of the next record if nobody else writes; -1 unknown
	lane       int
	maxBytes   int64 // learned from refusals
	maxRecords int
	reread     bool
	turn       uint64               // of its lane, when it was written to last
	appendTime bool                 // the target gives its own timestamps
	odd        map[oddity]*oddities // told together later

	takeover
	anchorage

	stop     *Stop // last one told and not yet over
	retryAt  time.Time
	attempts int
	idle     chan struct{} // closed when a closing partition has nothing under way
	leaving  bool          // unassigned with a request under way: goes with the answer, unless it is assigned anew before
}

// view is where a partition is on a side, by the metadata.
type view struct {
	min      uint64 // answers to metadata requests up to this number are too old
	id       [16]byte
	leader   int32 // -1: not known, or none
	epoch    int32 // of the leader; -1 not known
	seen     bool  // an answer since min
	badSince time.Time
	otherID  time.Time // since when another id is seen
}

// reset starts the partition at an assignment. The path's lock is held.
func (p *mirror) reset(t *part, a Assignment) {
	t.leaving = false
	p.abandon(t)
	p.unlist(t)
	p.dropQueue(t)
	*t = part{
		asg: a, gen: t.gen + 1, fetchSeq: t.fetchSeq + 1, asked: t.asked, sizes: t.sizes, changed: t.changed, pipeline: t.pipeline,
		fetchOffset: a.Start, position: a.Start, expect: -1, maxRecords: math.MaxInt,
		ends: Ends{-1, -1, -1}, idle: t.idle, stop: t.stop, attempts: t.attempts, odd: t.odd, queue: t.queue, counted: t.counted,
		src: view{min: p.source.asked, id: a.SourceTopicID, leader: -1, epoch: -1},
		tgt: view{min: p.target.asked, id: a.TargetTopicID, leader: -1, epoch: -1},
	}
	p.takeUp(t, a.Point)
	p.start(t)
	p.settle(t)
	p.source.markDirty(a.Source.Topic)
	p.target.markDirty(a.Target.Topic)
	notify(p.source.urgent)
	notify(p.target.urgent)
	notify(p.wakeSettings)
}

// start readies a partition that was assigned, or that starts again; the lock is held.
func (p *mirror) start(t *part) {
	t.maxBytes = 0 // not known: the target will say
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.asg.Target.Topic))
	t.lane = int((h.Sum32()>>1 + uint32(t.asg.Target.Partition)) % maxLanes)
}

// dropQueue forgets what was read and not sent; it will be read again.
func (p *mirror) dropQueue(t *part) {
	p.metrics.discarded.Add(float64(t.queue.bytes()))
	t.queue.drop()
	p.account(t)
	t.lookAgain()
	t.fetchOffset = t.position
	if last := t.last(); last != nil {
		t.fetchOffset = last.next
	}
	t.fetchSeq++
	t.fetchStop = nil
}

// account brings the bytes in flight up to date with a partition; the lock is held.
func (p *mirror) account(t *part) {
	n := t.queue.bytes() + t.underWay()
	p.addInFlight(n - t.counted)
	t.counted = n
	p.reconsider(t)
}

// settle does what waits for a partition's last acknowledgement.
func (p *mirror) settle(t *part) {
	if len(t.under) > 0 || !t.queue.empty() {
		return
	}
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
	if t.leaving {
		p.remove(t)
		return
	}
	if s := t.fetchStop; s != nil && t.state == running {
		t.fetchStop = nil
		p.stopPart(t, *s)
	}
}

// stopPart stops a partition and tells so; with s.Retry it tries again by itself.
func (p *mirror) stopPart(t *part, s Stop) {
	if t.state == closed {
		return
	}
	wasClosing := t.state == closing
	t.state = stopped
	if s.Retry {
		t.state = waiting
		wait := min(p.cfg.RetryMax, p.cfg.RetryMin<<min(t.attempts, 16))
		t.retryAt = time.Now().Add(wait)
		p.wakeIn(wait)
	}
	if wasClosing {
		t.state = closing
	}
	t.attempts++
	p.dropQueue(t)
	if t.awaiting == 0 && !t.unread {
		p.rewind(t, 0)
	}
	p.tellStopped(t, s)
	p.settle(t)
}

func (p *mirror) tellStopped(t *part, s Stop) {
	if s.Evidence == nil {
		s.Evidence = map[string]any{}
	}
	t.stop = &s
	p.metrics.stop(s.Reason)
	p.cfg.Logger.Info("partition stopped", slog.String("topic", t.asg.Source.Topic), slog.Int("partition", int(t.asg.Source.Partition)),
		slog.String("reason", s.Reason.String()), slog.Int64("offset", s.Offset), slog.Bool("retry", s.Retry), slog.String("error", s.Message))
	p.tell(t, func(o Observer, tp TP) { o.Stopped(tp, s) })
}

// worked notes that the side on which the partition had stopped works again.
func (p *mirror) worked(t *part, onSource bool) {
	if t.stop == nil || t.state != running || t.stop.Reason.onSource() != onSource {
		return
	}
	t.stop, t.attempts = nil, 0
	p.tell(t, func(o Observer, tp TP) { o.Resumed(tp) })
}

func (r Reason) onSource() bool {
	switch r {
	case StopOutOfRange, StopRecreated, StopSourceMissing, StopSourceRefused, StopCorrupt, StopSourceUnavailable:
		return true
	}
	return false
}

// retry starts a partition again whose back-off is over.
func (p *mirror) retry(t *part) {
	t.state = running
	t.fetchNotBefore = time.Time{}
	t.src.refresh(p.source.asked)
	t.tgt.refresh(p.target.asked)
	p.source.markDirty(t.asg.Source.Topic)
	p.target.markDirty(t.asg.Target.Topic)
}

func (v *view) refresh(asked uint64) {
	*v = view{min: asked, id: v.id, leader: -1, epoch: -1}
}

// tell queues a call of the observer that is dropped when the partition is assigned anew before; Assign waits for one
// under way. What f uses of the partition must have been read before, under the lock, which is held here and not there.
func (p *mirror) tell(t *part, f func(Observer, TP)) {
	gen, tp := t.gen, t.asg.Source
	p.events.push(func() {
		current := false
		p.locked(func() { current = t.gen == gen })
		if current {
			f(p.cfg.Observer, tp)
		}
	})
}

// resolveAll applies new metadata of a side to all partitions. The path's lock is held.
func (p *mirror) resolveAll(s *side) {
	now := time.Now()
	for _, t := range p.order {
		p.resolve(s, t, now)
	}
}

func (p *mirror) resolve(s *side, t *part, now time.Time) {
	onSource := s == p.source
	v, tp := &t.tgt, t.asg.Target
	if onSource {
		v, tp = &t.src, t.asg.Source
	}
	if t.state == stopped || t.state == waiting || t.state == closed || t.leaving || onSource && (t.fetchStop != nil || t.state == closing) {
		return
	}
	tm := s.topics[tp.Topic]
	if tm == nil || tm.answered <= v.min {
		s.dirty[tp.Topic] = true
		return
	}
	v.seen = true
	leader, known := tm.leaders[tp.Partition]
	var zero [16]byte
	switch {
	case errors.Is(tm.err, kerr.TopicAuthorizationFailed):
		v.leader = -1
		p.stopSide(t, onSource, Stop{
			Reason: pick(onSource, StopSourceRefused, StopTargetDenied), Offset: -1, Retry: true, Err: tm.err,
			Message: fmt.Sprintf("The %s refuses access to topic %s: %s.", s.name, tp.Topic, tm.err),
		})
	case errors.Is(tm.err, kerr.UnknownTopicOrPartition), errors.Is(tm.err, kerr.InvalidTopicException), tm.err == nil && !known:
		v.leader = -1
		if v.badSince.IsZero() {
			v.badSince = now
		}
		if now.Sub(v.badSince) < p.cfg.MissingGrace {
			s.dirty[tp.Topic] = true
			return
		}
		what := "topic " + tp.Topic
		if known || tm.err == nil {
			what = fmt.Sprintf("partition %d of topic %s", tp.Partition, tp.Topic)
		}
		p.stopSide(t, onSource, Stop{
			Reason: pick(onSource, StopSourceMissing, StopTargetMissing), Offset: -1, Retry: onSource, Err: tm.err,
			Message:  fmt.Sprintf("The %s has no %s.", s.name, what),
			Evidence: map[string]any{"partitions": len(tm.leaders)},
		})
	case tm.err != nil:
		v.leader = -1
		p.unavailable(s, t, v, now, tm.err)
	case v.id != zero && tm.id != zero && v.id != tm.id:
		// One broker of several may answer from before the change: only what two answers say counts.
		if v.otherID.IsZero() {
			v.otherID = now
		}
		if now.Sub(v.otherID) < 300*time.Millisecond {
			s.dirty[tp.Topic] = true
			return
		}
		v.leader = -1
		p.stopSide(t, onSource, Stop{
			Reason: pick(onSource, StopRecreated, StopTargetMissing), Offset: t.position,
			Message: fmt.Sprintf("Topic %s on the %s was deleted and created again: its id was %s and is %s.", tp.Topic, s.name,
				topicID(v.id), topicID(tm.id)),
			Evidence: map[string]any{"old_topic_id": topicID(v.id), "new_topic_id": topicID(tm.id), "position": t.position, "recreated": true},
		})
	case leader < 0:
		v.leader = -1
		p.unavailable(s, t, v, now, kerr.LeaderNotAvailable)
	default:
		if v.id == zero {
			v.id = tm.id
		}
		v.badSince, v.otherID = time.Time{}, time.Time{}
		epoch := tm.epochs[tp.Partition]
		if epoch < v.epoch && tm.id != zero { // a broker that has not heard of it yet; without ids it may be another topic
			s.dirty[tp.Topic] = true
			return
		}
		v.epoch = epoch
		if onSource {
			v.leader = leader
			return
		}
		p.lead(t, leader)
	}
}

// unavailable notes that a partition has no leader, asks again, and tells after a while.
func (p *mirror) unavailable(s *side, t *part, v *view, now time.Time, err error) {
	s.dirty[pick(s == p.source, t.asg.Source.Topic, t.asg.Target.Topic)] = true
	if v.badSince.IsZero() {
		v.badSince = now
	}
	if now.Sub(v.badSince) >= unavailableAfter {
		p.tellUnavailable(s, t, err)
	}
}

func (p *mirror) tellUnavailable(s *side, t *part, err error) {
	onSource := s == p.source
	reason := pick(onSource, StopSourceUnavailable, StopTargetUnavailable)
	if t.stop != nil && t.stop.Reason == reason || t.state != running {
		return
	}
	tp := pick(onSource, t.asg.Source, t.asg.Target)
	p.tellStopped(t, Stop{
		Reason: reason, Offset: t.position, Retry: true, Err: err,
		Message: fmt.Sprintf("The %s does not serve partition %d of topic %s: %s.", s.name, tp.Partition, tp.Topic, err),
	})
}

// stopSide stops a partition for a reason found in the metadata. What was read before a fault of the source is still
// written; a fault of the target ends both.
func (p *mirror) stopSide(t *part, onSource bool, s Stop) {
	if !onSource {
		p.stopPart(t, s)
		return
	}
	t.fetchStop = &s
	t.fetchSeq++
	p.settle(t)
}

func topicID(id [16]byte) string { return fmt.Sprintf("%x", id[:]) }

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

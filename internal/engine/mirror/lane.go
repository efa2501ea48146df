package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	requestBytes = 8 << 20
	// maxLanes is over how many connections the partitions of a target broker are spread. The broker works on one request
	// of a connection at a time.
	maxLanes = hub.Lanes
	// slowLane is for partitions that make the target wait for its replicas.
	slowLane = hub.SlowLane
	// produceTimeout is how long the target waits for its replicas.
	produceTimeout = 15 * time.Second
	// withheldPause is when Config.MayWrite is asked again after it said no.
	withheldPause = 100 * time.Millisecond
	// longWait is how long a request takes that holds up others, beyond the line.
	longWait = 2 * time.Second
	// sharedRequests is from how many partitions on that are written to within a turnover small batches are passed on as they
	// are: requests will carry those of several.
	sharedRequests = 4
	turnover       = 250 * time.Millisecond
	// slowAcks is how many acknowledgements a partition stays in the slow lane.
	slowAcks = 8
)

// laneKey names a lane: one of a broker's connections.
type laneKey struct {
	broker int32
	index  int
}

// lane writes the batches of its partitions through one connection to one broker, in one goroutine, so that they go out in
// the order in which they were made. The path's lock guards it.
type lane struct {
	laneKey
	ready []*part // have something to send; each takes its turn
	wake  chan struct{}
	busy  int // requests under way
	conn  *wire.Conn
	ended *wire.Conn // whose end was noted
	line  line
	// together is how many partitions were written to in the last turnover; so far in this one, which began at turned and has
	// a number that no other has, it is active.
	together, active int
	turned           time.Time
	turn             uint64
	limit            int64 // bytes of the next request: over a slow line large ones run into time-outs
	// failures in a row, and when to try again.
	failures  int
	notBefore time.Time
}

// produceJob is one Produce request. Its batches are awaited.
type produceJob struct {
	sends []produceSend
	bytes int64
	began time.Time
	mark  uint64
}

type produceSend struct {
	part  *part
	batch *sending
	tp    TP
	id    [16]byte
}

// enlist has a partition take its turn in the lane where it belongs, if it has anything to send; the lock is held.
func (p *mirror) enlist(t *part) {
	if t.listed != nil || t.tgt.leader < 0 || t.state != running && t.state != closing || !t.ready() {
		return
	}
	k := p.laneOf(t)
	l := p.lanes[k]
	if l == nil {
		l = &lane{laneKey: k, wake: make(chan struct{}, 1), limit: requestBytes, line: line{trip: p.fixedTrip, fixed: p.fixedTrip > 0}}
		p.lanes[k] = l
		p.opened = append(p.opened, l)
		notify(p.wakeProduce)
	}
	t.listed = l
	l.ready = append(l.ready, t)
	notify(l.wake)
}

// unlist takes a partition out of the lane where it waits; the lock is held.
func (p *mirror) unlist(t *part) {
	if l := t.listed; l != nil {
		l.ready = slices.DeleteFunc(l.ready, func(one *part) bool { return one == t })
		t.listed = nil
	}
}

// enlistLater enlists a partition whose pause ends then.
func (p *mirror) enlistLater(t *part, in time.Duration) {
	time.AfterFunc(in, func() { p.locked(func() { p.enlist(t) }) })
}

// produceLoop starts the lanes.
func (p *mirror) produceLoop(ctx context.Context) {
	for {
		var opened []*lane
		p.locked(func() { opened, p.opened = p.opened, nil })
		for _, l := range opened {
			p.spawn("writing", func() { p.laneLoop(ctx, l) })
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wakeProduce:
		}
	}
}

func (p *mirror) laneLoop(ctx context.Context, l *lane) {
	for ctx.Err() == nil {
		var due bool
		var pause time.Duration
		p.locked(func() { due, pause = l.due(time.Now()) })
		switch {
		case due && !p.cfg.MayWrite():
			pause = withheldPause
		case due:
			pause = p.writeNext(ctx, l)
		case pause == 0:
			select {
			case <-ctx.Done():
			case <-l.wake:
			}
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// due tells whether a request may be made now, or else when to look again; 0: when something happens. The lock is held.
func (l *lane) due(now time.Time) (due bool, in time.Duration) {
	switch {
	case len(l.ready) == 0 || l.busy >= l.line.requests():
		return false, 0
	case now.Before(l.notBefore):
		return false, l.notBefore.Sub(now)
	}
	return true, 0
}

// writeNext makes a request of what is ready and sends it, and says how long to wait before the next.
func (p *mirror) writeNext(ctx context.Context, l *lane) (pause time.Duration) {
	mark := p.target.begin()
	conn, err := p.target.cluster.Lane(ctx, l.broker, l.index)
	if err != nil {
		p.target.end(mark, err)
		p.metrics.failure("target", "request", err)
		p.locked(func() {
			p.laneFailed(l, nil, err)
			for _, t := range l.ready {
				p.target.markDirty(t.asg.Target.Topic) // perhaps somebody else leads them now
			}
		})
		return 0
	}
	var j *produceJob
	p.locked(func() {
		l.conn = conn
		j = p.compose(ctx, l, time.Now())
	})
	if j == nil {
		p.target.end(mark, context.Canceled) // which says nothing of the target
		return 0
	}
	j.mark = mark
	// The connection is not ours alone, so that nobody ends it with the path; who waits for a target that does not read is
	// left behind, and writes nothing any more when it is his turn.
	held := make(chan bool, 1)
	go p.contained("writing", func() {
		defer close(held)
		held <- !p.send(ctx, l, conn, j)
	})
	select {
	case withheld := <-held:
		return pick(withheld, withheldPause, 0)
	case <-ctx.Done():
		return 0
	}
}

// send writes a request when it is its turn on the connection; false: the right to had ended by then, or the path.
func (p *mirror) send(ctx context.Context, l *lane, conn *wire.Conn, j *produceJob) bool {
	r := j.request()
	r.May = func() bool { return ctx.Err() == nil && p.cfg.MayWrite() }
	done := func(resp *wire.ProduceResponse, err error) {
		p.contained("answers", func() { p.answered(l, conn, j, resp, err) })
	}
	err := conn.Produce(r, done)
	switch {
	case errors.Is(err, wire.ErrWithheld):
		p.target.end(j.mark, context.Canceled)
		p.locked(func() { p.withhold(l, j) })
		return false
	case err != nil:
		done(nil, fmt.Errorf("produce: %w", err))
	}
	return true
}

// compose takes the turns of the partitions that are ready, in one request; nil when none sends anything now. The lock is
// held.
func (p *mirror) compose(ctx context.Context, l *lane, now time.Time) *produceJob {
	j := &produceJob{began: now}
	for turns := len(l.ready); turns > 0 && j.bytes < l.limit; turns-- {
		t := l.ready[0]
		l.ready = l.ready[1:]
		t.listed = nil
		if p.laneOf(t) != l.laneKey {
			p.enlist(t) // it moved
			continue
		}
		if t.suspect && len(j.sends) > 0 {
			p.enlist(t)
			continue
		}
		b := p.nextBatch(ctx, t, l, now)
		if b == nil {
			continue
		}
		j.sends = append(j.sends, produceSend{part: t, batch: b, tp: t.asg.Target, id: t.tgt.id})
		j.bytes += b.unit.bytes()
		p.enlist(t)
		if t.suspect {
			break
		}
	}
	if len(l.ready) == 0 {
		l.ready = nil
	}
	if len(j.sends) == 0 {
		return nil
	}
	l.busy++
	p.count(l, j, now)
	p.widen(l, j.bytes)
	return j
}

// count notes which partitions are active; the lock is held.
func (p *mirror) count(l *lane, j *produceJob, now time.Time) {
	if age := now.Sub(l.turned); age >= turnover {
		l.together, l.active, l.turned = pick(age < 2*turnover, l.active, 0), 0, now
		p.turns++
		l.turn = p.turns
	}
	for _, s := range j.sends {
		if s.part.turn != l.turn {
			s.part.turn = l.turn
			l.active++
		}
	}
}

// sharing is how many partitions the lane's requests carry batches of, about; the lock is held.
func (l *lane) sharing(now time.Time) int {
	if now.Sub(l.turned) >= 2*turnover {
		return 0 // it was idle since
	}
	return max(l.together, l.active)
}

// request encodes the job, one topic behind the other.
func (j *produceJob) request() *wire.ProduceRequest {
	r := &wire.ProduceRequest{Timeout: produceTimeout}
	slices.SortStableFunc(j.sends, func(a, b produceSend) int { return strings.Compare(a.tp.Topic, b.tp.Topic) })
	for i, s := range j.sends {
		if i == 0 || s.tp.Topic != j.sends[i-1].tp.Topic {
			r.Topics = append(r.Topics, wire.ProduceTopic{Name: s.tp.Topic, ID: s.id})
		}
		if s.id == [16]byte{} {
			r.MaxVersion = wire.LastProduceByName
		}
		of := &r.Topics[len(r.Topics)-1]
		of.Partitions = append(of.Partitions, wire.ProducePartition{Partition: s.tp.Partition, Records: s.batch.unit.encode(s.batch.id)})
	}
	return r
}

// find is the send that a part of an answer is about, at place k in most cases; -1: none.
func (j *produceJob) find(k int, rp *wire.ProducedPartition) int {
	is := func(s *produceSend) bool {
		if s.tp.Partition != rp.Partition {
			return false
		}
		if len(rp.Topic) > 0 {
			return s.tp.Topic == string(rp.Topic)
		}
		return s.id == rp.TopicID
	}
	if k < len(j.sends) && is(&j.sends[k]) {
		return k
	}
	for i := range j.sends {
		if is(&j.sends[i]) {
			return i
		}
	}
	return -1
}

// answered takes the answer to a request, or what became of it without one. It runs on the connection's own goroutine,
// perhaps when the path has ended already, so that it starts nothing.
func (p *mirror) answered(l *lane, conn *wire.Conn, j *produceJob, resp *wire.ProduceResponse, err error) {
	all := make([]written, len(j.sends))
	for i := range all {
		all[i] = written{missing: true, unsent: err != nil && unsent(err)}
	}
	if err == nil {
		for k := range resp.Partitions {
			if i := j.find(k, &resp.Partitions[k]); i >= 0 {
				all[i] = answerOf(&resp.Partitions[k])
			}
		}
	} else {
		p.metrics.failure("target", "request", err)
	}
	p.target.end(j.mark, err)
	now := time.Now()
	p.locked(func() {
		l.busy--
		if err != nil {
			p.laneFailed(l, conn, err)
		} else {
			p.laneWorked(l, j, resp.Took, resp.Throttle, now)
			for _, n := range resp.Nodes {
				p.target.cluster.SetBroker(n.ID, net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))))
			}
		}
		for i, s := range j.sends {
			p.produced(s, all[i], err)
		}
		notify(l.wake)
	})
	notify(p.wakeFetch)
}

func answerOf(rp *wire.ProducedPartition) written {
	w := written{
		code: rp.ErrorCode, base: rp.BaseOffset, message: string(rp.Message), appendTime: rp.AppendTime >= 0,
		leader: rp.Leader.Node, epoch: rp.Leader.Epoch,
	}
	for _, f := range rp.Records {
		w.faults = append(w.faults, recordFault{index: int(f.Index), message: string(f.Message)})
	}
	return w
}

// laneWorked notes an answered request, which took so long where it was its turn on the connection; the lock is held.
func (p *mirror) laneWorked(l *lane, j *produceJob, took, throttled time.Duration, now time.Time) {
	l.failures, l.notBefore = 0, time.Time{}
	if took < requestTimeout/8 {
		l.limit = min(2*l.limit, requestBytes)
	}
	if throttled == 0 && l.line.took(now, now.Sub(j.began)) {
		p.probes = append(p.probes, l)
		notify(p.wakeProbe)
	}
	long := took > longWait+4*l.line.trip && throttled == 0
	for _, s := range j.sends {
		switch {
		case long && len(j.sends) > 1:
			s.part.suspect = true
		case long:
			s.part.slow, s.part.suspect = slowAcks, false
		default:
			s.part.suspect = false
		}
	}
}

// laneFailed notes that the way to a broker failed, once for each connection that ends; the lock is held.
func (p *mirror) laneFailed(l *lane, conn *wire.Conn, err error) {
	if conn != nil && conn == l.ended {
		return
	}
	l.ended = conn
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.limit = max(l.limit/2, minRequestBytes)
	}
	l.failures++
	l.notBefore = time.Now().Add(min(time.Second, 50*time.Millisecond<<min(l.failures, 6)))
	if p.suspended {
		notify(p.wakeFetch)
	}
	p.cfg.Logger.Debug("lane failed", slog.Int("broker", int(l.broker)), slog.Int("lane", l.index), slog.Any("error", err))
	notify(l.wake)
}

// withhold takes a request back that was not sent, since nothing may be written now; the lock is held.
func (p *mirror) withhold(l *lane, j *produceJob) {
	l.busy--
	for _, s := range j.sends {
		if s.batch.stale {
			p.leave(s.part, s.batch)
			continue
		}
		s.batch.stage = made
		s.part.awaiting--
		if s.part.awaiting == 0 {
			s.part.conn = nil
			if s.part.broken {
				p.decide(s.part)
			}
		}
		p.enlist(s.part)
	}
}

// probeLoop finds out how long the way to a broker is when requests that write take long.
func (p *mirror) probeLoop(ctx context.Context) {
	for {
		var lanes []*lane
		p.locked(func() { lanes, p.probes = p.probes, nil })
		for _, l := range lanes {
			var shortest time.Duration
			for range 3 { // the first may have to connect
				began := time.Now()
				if _, err := p.target.request(ctx, l.broker, kmsg.NewPtrApiVersionsRequest()); err == nil {
					shortest = shorter(shortest, time.Since(began))
				}
			}
			p.locked(func() { l.line.measured(time.Now(), shortest) })
			notify(l.wake)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wakeProbe:
		}
	}
}

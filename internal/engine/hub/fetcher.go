package hub

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	// pollWait is how long a broker holds a poll that finds nothing.
	pollWait = 500 * time.Millisecond
	// expressWait is the same on the second connection, where others may come to wait behind it.
	expressWait = 5 * time.Millisecond
	// crampedFor is how long a fetch waits for room before it asks for a single batch: a flow that holds nothing always
	// gets one.
	crampedFor = 100 * time.Millisecond
	// leastLimit bounds how far the size of answers goes down over a slow line.
	leastLimit = 64 << 10
	maxBackoff = time.Second
	// sessionFor is how long the broker keeps a session of which nothing is wanted: a flow may only have paused.
	sessionFor = time.Second
)

// fetcher reads from one broker for all members, at one isolation level.
//
// Its poll, on the first connection, asks in a session (KIP-227) for everything that is wanted and waits for news. What is
// wanted while a poll is out, and is not part of it, is asked for at once on the second connection, without a session,
// until the poll is over and the next one covers it.
//
// All members but the channels and what the loops own are guarded by the cluster's fetching lock.
type fetcher struct {
	s         *shared
	broker    int32
	committed bool
	wake      chan struct{} // of the poll: something is wanted
	hurry     chan struct{} // of the second connection: something is wanted that the poll does not cover

	slots    map[TP]*slot
	count    int // wants
	nameless int // of which without a topic id
	ids      map[string]topicUse
	touched  []*slot
	pending  []*want
	polling  bool   // a poll is out
	parked   bool   // the session has nothing to ask for
	poll     uint64 // number of the last one begun
	session  wire.Session
	expiry   time.Time // when followers are looked at again
	open     bool      // the broker has a session
	emptied  time.Time // since when nothing is wanted; zero: something is

	failures  int
	refusals  int // of the session, one after the other
	notBefore time.Time
	limit     int64 // bytes of the next answer; see succeeded
	brought   int64 // bytes of the last answers, for what to expect

	first, second wire.FetchRequest // of the loops
}

// fetcher finds or makes a broker's; the lock is held.
func (s *shared) fetcher(broker int32, committed bool) *fetcher {
	k := fetcherKey{broker, committed}
	f := s.fetchers[k]
	if f == nil {
		f = &fetcher{
			s: s, broker: broker, committed: committed, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), slots: map[TP]*slot{},
			ids: map[string]topicUse{}, limit: s.hub.budget.most,
		}
		s.fetchers[k] = f
		s.group.Go(func() { f.pollLoop(s.ctx) })
		s.group.Go(func() { f.expressLoop(s.ctx) })
	}
	return f
}

// fetcherKey names a fetcher.
type fetcherKey struct {
	broker    int32
	committed bool
}

func (f *fetcher) line(express bool) int {
	line := pollLine
	if f.committed {
		line = committedPollLine
	}
	if express {
		line++
	}
	return line
}

// answered is what a request came to.
type answered struct {
	resp *wire.FetchResponse
	err  error
}

// exchange sends a request, once the broker may be asked, and waits for the answer. fill completes the request with the
// lock held, for the version spoken; false: there is nothing to ask for. Errors are about the connection.
func (f *fetcher) exchange(ctx context.Context, express bool, r *wire.FetchRequest, fill func(version int16) bool) (got answered, sent bool) {
	most, ok := f.ready(ctx)
	if !ok {
		return got, false
	}
	conn, err := f.connect(ctx, express)
	if err != nil {
		return answered{err: err}, true
	}
	if wait := time.Until(conn.Throttled()); wait > 0 && !sleep(ctx, wait) {
		return answered{err: ctx.Err()}, true
	}
	version := conn.FetchVersion()
	f.s.fetching.Lock()
	r.MinBytes, r.MaxBytes, r.Committed = 1, int32(most), f.committed
	expect := min(most, max(2*f.brought, 4096))
	asks := fill(version)
	f.s.fetching.Unlock()
	if !asks {
		return got, false
	}
	mark := f.s.Begin()
	defer func() { f.s.End(mark, got.err) }()
	f.s.hub.budget.expected.Add(expect)
	defer f.s.hub.budget.expected.Add(-expect)
	began := time.Now()
	answers := make(chan answered, 1)
	if err := conn.Fetch(r, func(resp *wire.FetchResponse, err error) { answers <- answered{resp, err} }); err != nil {
		return answered{err: err}, true
	}
	got = <-answers
	if got.err == nil {
		f.succeeded(time.Since(began)-r.MaxWait, got.resp)
	}
	return got, true
}

// connect opens the connection where that is needed.
func (f *fetcher) connect(ctx context.Context, express bool) (*wire.Conn, error) {
	conn, err := f.s.links.connect(ctx, f.broker, f.line(express))
	if err != nil && !errors.Is(err, ErrNoAddress) { // else nobody was asked
		f.s.End(f.s.Begin(), err)
	}
	return conn, err
}

// ready waits until the broker may be asked, and says for how many bytes; false: the cluster was left.
func (f *fetcher) ready(ctx context.Context) (most int64, ok bool) {
	for {
		f.s.fetching.Lock()
		wait, limit := time.Until(f.notBefore), f.limit
		f.s.fetching.Unlock()
		if wait > 0 {
			if !sleep(ctx, wait) {
				return 0, false
			}
			continue
		}
		b := f.s.hub.budget
		if most = b.ask(limit); most > 0 {
			return most, ctx.Err() == nil
		}
		room := make(chan struct{}, 1)
		b.notify(room, leastAsked)
		timer := time.NewTimer(crampedFor)
		select {
		case <-ctx.Done():
		case <-room:
		case <-timer.C:
			most = 1
		}
		timer.Stop()
		b.forget(room)
		if most > 0 || ctx.Err() != nil {
			return most, ctx.Err() == nil
		}
	}
}

// succeeded notes an answer that took a time beyond the wait allowed. Over a slow line a large answer would run into the
// connection's time-out again and again, so the size follows what went through.
func (f *fetcher) succeeded(took time.Duration, resp *wire.FetchResponse) {
	f.s.fetching.Lock()
	defer f.s.fetching.Unlock()
	f.failures, f.notBefore = 0, time.Time{}
	if took < requestTimeout/8 {
		f.limit = min(2*f.limit, f.s.hub.budget.most)
	}
	size := int64(0)
	if resp.Buffer != nil {
		size = int64(resp.Buffer.Size())
	}
	f.brought = max(size, f.brought/2)
}

// failed notes that the broker did not answer, and tells those who wait for it.
func (f *fetcher) failed(err error) {
	if f.s.ctx.Err() != nil {
		return
	}
	now := time.Now()
	f.s.fetching.Lock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.limit = max(f.limit/2, leastLimit)
	}
	f.failures++
	f.notBefore = now.Add(min(maxBackoff, 50*time.Millisecond<<min(f.failures, 6)))
	owners := map[*Reader]bool{}
	for _, s := range f.slots {
		for _, w := range s.wants {
			owners[w.reader] = true
		}
	}
	f.leave(now)
	f.s.fetching.Unlock()
	for r := range owners {
		r.owner.Lost(f.broker, err)
	}
}

// pollLoop is the first connection.
func (f *fetcher) pollLoop(ctx context.Context) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for ctx.Err() == nil {
		if f.doPoll(ctx) {
			continue
		}
		var tick <-chan time.Time
		f.s.fetching.Lock()
		if f.count > 0 || f.open { // what cannot be in the session now may soon; and a session that is over is closed
			tick = again.C
		}
		f.s.fetching.Unlock()
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-tick:
		}
	}
}

// doPoll asks once; false: there is nothing to ask for.
func (f *fetcher) doPoll(ctx context.Context) bool {
	if idle, over := f.idle(time.Now()); idle {
		if over {
			f.closeSession(ctx)
		}
		return false
	}
	got, sent := f.exchange(ctx, false, &f.first, func(version int16) bool {
		f.expired(time.Now())
		f.update()
		f.parked = f.session.Len() == 0
		if len(f.pending) > 0 {
			signal(f.hurry)
		}
		if f.parked {
			return false
		}
		r := &f.first
		r.MaxVersion, r.MaxWait, r.Rack = 0, pollWait, f.s.hub.cfg.Rack
		if f.nameless > 0 {
			r.MaxVersion = wire.LastFetchByName
			version = min(version, wire.LastFetchByName)
		}
		f.session.Next(r, version)
		f.poll++
		f.polling, f.open = true, true
		return true
	})
	if !sent {
		return ctx.Err() != nil // else the session has nothing to ask for
	}
	f.s.fetching.Lock()
	was := f.polling
	f.polling = false
	if got.err != nil {
		if was {
			f.session.Failed()
		}
		f.s.fetching.Unlock()
		f.failed(got.err)
		return true
	}
	if !f.session.Answered(got.resp) {
		// The next one begins anew. A broker that does so again and again must not be asked in a circle.
		if f.refusals++; f.refusals > 2 {
			f.notBefore = time.Now().Add(min(maxBackoff, 25*time.Millisecond<<min(f.refusals, 6)))
		}
		f.s.fetching.Unlock()
		got.resp.Release()
		return true
	}
	f.refusals = 0
	f.s.learn(got.resp.Nodes)
	var d delivery
	for i := range got.resp.Partitions {
		p := &got.resp.Partitions[i]
		if name, ok := f.session.Topic(p); ok {
			if s := f.slots[TP{name, p.Partition}]; s != nil && s.in && s.since <= f.poll {
				f.complete(&d, s, s.asked, s.id, p, got.resp.Buffer)
			}
		}
	}
	f.s.fetching.Unlock()
	d.deliver(f.broker, got.resp)
	return true
}

// idle tells that nothing is wanted, and whether the session is to be closed.
func (f *fetcher) idle(now time.Time) (idle, over bool) {
	f.s.fetching.Lock()
	defer f.s.fetching.Unlock()
	if f.count > 0 {
		f.emptied = time.Time{}
		return false, false
	}
	if f.emptied.IsZero() {
		f.emptied = now
	}
	if !f.open || now.Sub(f.emptied) < sessionFor {
		return true, false
	}
	f.open = false
	f.update()
	return true, f.session.Close(&f.first)
}

// closeSession tells the broker that a session has ended, so that it keeps it no longer.
func (f *fetcher) closeSession(ctx context.Context) {
	got, _ := f.exchange(ctx, false, &f.first, func(int16) bool {
		f.first.MaxVersion, f.first.MaxWait = 0, 0
		return f.count == 0 // else the next poll is more urgent; a broker drops the oldest sessions by itself
	})
	if got.resp != nil {
		got.resp.Release()
	}
}

// expressLoop is the second connection.
func (f *fetcher) expressLoop(ctx context.Context) {
	for {
		f.s.fetching.Lock()
		due := (f.polling || f.parked) && len(f.uncovered()) > 0
		f.s.fetching.Unlock()
		if due {
			f.express(ctx)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-f.hurry:
		}
	}
}

// express asks once for what the poll does not cover.
func (f *fetcher) express(ctx context.Context) {
	var batch []*want
	var byID map[[16]byte]string
	got, sent := f.exchange(ctx, true, &f.second, func(int16) bool {
		if batch = f.uncovered(); len(batch) == 0 {
			return false
		}
		byID = f.expressRequest(batch)
		f.second.MaxWait = expressWait
		return true
	})
	if !sent {
		return
	}
	if got.err == nil && got.resp.ErrorCode != 0 {
		got.err = kerr.ErrorForCode(got.resp.ErrorCode)
		got.resp.Release()
	}
	if got.err != nil {
		f.failed(got.err)
		return
	}
	f.s.fetching.Lock()
	f.s.learn(got.resp.Nodes)
	asked := make(map[TP]*want, len(batch))
	for _, w := range batch {
		asked[w.TP] = w
	}
	var d delivery
	for i := range got.resp.Partitions {
		p := &got.resp.Partitions[i]
		name := string(p.Topic)
		if got.resp.Version > wire.LastFetchByName {
			name = byID[p.TopicID]
		}
		if w := asked[TP{name, p.Partition}]; w != nil {
			f.complete(&d, w.slot, w.Offset, w.TopicID, p, got.resp.Buffer)
		}
	}
	f.s.fetching.Unlock()
	d.deliver(f.broker, got.resp)
}

// complete answers the wants of a partition that ask from an offset; the lock is held.
func (f *fetcher) complete(d *delivery, s *slot, offset int64, id [16]byte, p *wire.FetchedPartition, buffer *wire.Buffer) {
	kept := p.ErrorCode == 0 && len(p.Records) == 0
	first := true
	for _, w := range slices.Clone(s.wants) {
		if w.Offset != offset || w.TopicID != id || w.redirect(f.broker, p, f.s.links.known) {
			continue
		}
		if !kept {
			f.remove(w)
			delete(w.reader.wants, w.TP)
		}
		part := Part{Want: w.Want, Kept: kept, Fetched: *p, Buffer: buffer}
		if !first && len(p.Records) > 0 {
			// Owners change what they get.
			part.Buffer, part.copied = f.s.hub.Pool().Get(len(p.Records)), true
			copy(part.Buffer.Bytes(), p.Records)
			part.Fetched.Records = part.Buffer.Bytes()
		}
		first = false
		d.add(w.reader, part)
	}
}

// delivery collects what an answer holds for each reader.
type delivery struct{ of map[*Reader]*Answer }

func (d *delivery) add(r *Reader, p Part) {
	a := d.of[r]
	if a == nil {
		a = &Answer{}
		if d.of == nil {
			d.of = map[*Reader]*Answer{}
		}
		d.of[r] = a
	}
	a.Parts = append(a.Parts, p)
}

// deliver hands the answers over; no lock is held.
func (d *delivery) deliver(broker int32, resp *wire.FetchResponse) {
	if len(d.of) == 0 {
		resp.Release()
		return
	}
	x := &exchange{resp: resp}
	x.refs.Store(int32(len(d.of)))
	for r, a := range d.of {
		a.Broker, a.from = broker, x
		r.owner.Fetched(a)
	}
}

// sleep waits and answers false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

package hub

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	// pollWait is how long a broker holds a poll that finds nothing.
	pollWait = 500 * time.Millisecond
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
// until the poll is over and the next one covers it. See pollLoop and expressLoop.
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
	leaders  int // of which the leader itself is to answer
	ids      map[string]topicUse
	touched  []*slot
	pending  []*want
	leaving  []*want // some that go when what is under way was answered
	polling  bool    // a poll is out
	rackless bool    // the last poll begun named no rack
	parked   bool    // the session has nothing to ask for
	poll     uint64  // number of the last one begun
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

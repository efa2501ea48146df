package hub

import (
	"context"
	"slices"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

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
		if f.rackless = f.leaders > 0; f.rackless {
			r.Rack = "" // for a while the others at this broker are read where they are, too
		}
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
	defer f.swept()
	if got.err != nil {
		if was {
			f.session.Failed()
		}
		f.s.fetching.Unlock()
		f.failed(got.err)
		return true
	}
	if !f.session.Answered(got.resp) {
		f.begunAnew()
		f.s.fetching.Unlock()
		got.resp.Release()
		return true
	}
	if !f.session.Lacked() {
		f.refusals = 0
	} else if !slices.ContainsFunc(got.resp.Partitions, func(p wire.FetchedPartition) bool { return len(p.Records) > 0 }) {
		f.begunAnew() // records are worth the next request in any case
	}
	f.s.learn(got.resp.Nodes)
	var d delivery
	for i := range got.resp.Partitions {
		p := &got.resp.Partitions[i]
		if name, ok := f.session.Topic(p); ok {
			if s := f.slots[TP{name, p.Partition}]; s != nil && s.in && s.since <= f.poll {
				f.complete(&d, s.asker, s, s.asked, s.id, p, got.resp.Buffer)
			}
		}
	}
	f.s.fetching.Unlock()
	d.deliver(f, got.resp)
	return true
}

// begunAnew notes that the next request of the session says everything again. A broker that has it so again and again must
// not be asked in a circle. The lock is held.
func (f *fetcher) begunAnew() {
	if f.refusals++; f.refusals > 2 {
		f.notBefore = time.Now().Add(min(maxBackoff, 25*time.Millisecond<<min(f.refusals, 6)))
	}
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

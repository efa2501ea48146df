package engine

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// listingAge is how old a list of all topics may be that another task has asked for.
const listingAge = 250 * time.Millisecond

// listings are the lists of all topics by client, so that two hundred flows from one cluster do not have it list all its
// topics two hundred times an interval.
type listings struct {
	mu sync.Mutex
	m  map[*kgo.Client]*listing
}

// listing is the newest list of one cluster. Who holds turn may use the members below it.
type listing struct {
	users int // guarded by the lock of listings

	turn   chan struct{}
	answer *kmsg.MetadataResponse
	number uint64 // of answer; counts from 1
	asked  time.Time
}

var shared = listings{m: map[*kgo.Client]*listing{}}

// join answers a requester that asks the client, and shares lists of all topics with others who joined with it. leave ends
// the part.
func (l *listings) join(client *kgo.Client) (r topics.Requester, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.m[client]
	if e == nil {
		e = &listing{turn: make(chan struct{}, 1)}
		l.m[client] = e
	}
	e.users++
	alone := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return e.users == 1
	}
	return &lister{to: client, listing: e, alone: alone}, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(l.m, client)
		}
	}
}

// lister is one task's requester. Lists are asked for one at a time.
type lister struct {
	to      topics.Requester
	listing *listing
	alone   func() bool
	last    uint64 // number of what the task was given last: looking twice it wants to see two
}

// Request implements topics.Requester. Answers must not be changed.
func (l *lister) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if m, ok := req.(*kmsg.MetadataRequest); !ok || m.Topics != nil {
		return l.to.Request(ctx, req)
	}
	select {
	case l.listing.turn <- struct{}{}:
		defer func() { <-l.listing.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e := l.listing
	if e.answer != nil && e.number != l.last && time.Since(e.asked) < listingAge {
		l.last = e.number
		return e.answer, nil
	}
	asked := time.Now()
	resp, err := l.to.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	e.number++
	e.asked, l.last = asked, e.number
	if e.answer, _ = resp.(*kmsg.MetadataResponse); l.alone() {
		e.answer = nil // nobody to keep it for
	}
	return resp, nil
}

package hub

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAnAnswerUnderWayComesThoughTheWantIsWithdrawn(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	produce(t, cluster, "t", 0, 7)
	polling, held := make(chan struct{}, 1), make(chan struct{})
	fetches(c, func(*kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		signal(polling)
		return held, nil
	})
	e := newEater(t, cluster, false, nil)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Tag: 5})
	<-polling
	e.reader.Withdraw(TP{"t", 0})
	held <- struct{}{}
	g := takeRecords(t, e)
	require.Equal(t, 7, g.records)
	require.EqualValues(t, 5, g.part.Want.Tag)

	// Where nothing was to be read, the want goes with the request.
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 7})
	<-polling
	e.reader.Withdraw(TP{"t", 0})
	close(held)
	gone := func(tp TP) func() bool {
		return func() bool {
			cluster.fetching.Lock()
			defer cluster.fetching.Unlock()
			return e.reader.wants[tp] == nil
		}
	}
	require.Eventually(t, gone(TP{"t", 0}), 10*time.Second, 5*time.Millisecond)

	// A want that is set anew before stays.
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 7})
	e.reader.Withdraw(TP{"t", 0})
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 7, Tag: 6})
	produce(t, cluster, "t", 0, 2)
	g = takeRecords(t, e)
	require.Equal(t, 2, g.records)
	require.EqualValues(t, 6, g.part.Want.Tag)
}

// counter is an Owner that tells what came for nothing.
type counter struct{ unclaimed chan int }

func (o *counter) Fetched(a *Answer) {
	n := a.Unclaimed
	a.Release()
	if n > 0 {
		o.unclaimed <- n
	}
}
func (o *counter) Lost(int32, error) {}

func TestBytesThatNobodyWaitedForAreTold(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	produce(t, cluster, "t", 0, 7)
	polling, held := make(chan struct{}, 1), make(chan struct{})
	fetches(c, func(*kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		signal(polling)
		return held, nil
	})
	o := &counter{make(chan int, 10)}
	r := cluster.Reader(false, o)
	defer r.Close()
	r.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	<-polling
	r.Drop(TP{"t", 0})
	close(held)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case n := <-o.unclaimed:
		require.Greater(t, n, 700)
	case <-ctx.Done():
		require.Fail(t, "nothing is told")
	}
}

func TestThePollDoesNotAskForWhatTheOtherConnectionBrings(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	f := &fetcher{s: cluster.shared, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), slots: map[TP]*slot{}, ids: map[string]topicUse{}}
	cluster.fetching.Lock()
	defer cluster.fetching.Unlock()
	r := cluster.Reader(false, &taker{})
	var ws []*want
	for p := range int32(2) {
		w := &want{Want: Want{TP: TP{"t", p}, TopicID: topic.ID, Offset: 3, More: p == 0}, reader: r, express: true}
		r.wants[w.TP] = w
		f.add(w)
		ws = append(ws, w)
	}
	f.update()
	require.False(t, ws[0].slot.in, "its records are on their way")
	require.True(t, ws[1].slot.in, "it may be idle")
	ws[0].express = false
	f.touch(ws[0].slot)
	f.update()
	require.True(t, ws[0].slot.in)
}

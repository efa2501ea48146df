package hub

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

func TestABrokerThatLeavesPartitionsOutIsNotAskedInACircle(t *testing.T) {
	t.Parallel()
	type asked struct {
		id, epoch int32
		at        time.Time
	}
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	all := make(chan asked, 100_000)
	var sessions atomic.Int32
	fetches(c, func(r *kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		resp, ok := r.ResponseKind().(*kmsg.FetchResponse)
		if r.SessionEpoch < 0 || !ok {
			return nil, nil
		}
		all <- asked{r.SessionID, r.SessionEpoch, time.Now()}
		resp.SessionID = sessions.Add(1)
		return nil, resp
	})
	e := newEater(t, cluster, true, nil)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var last asked
	for n := range int32(5) {
		select {
		case a := <-all:
			require.Zero(t, a.epoch)
			require.Equal(t, n, a.id, "the session before is named, so that the broker ends it")
			if n > 2 {
				require.GreaterOrEqual(t, a.at.Sub(last.at), 100*time.Millisecond, "request %d", n)
			}
			last = a
		case <-ctx.Done():
			require.Fail(t, "it is not asked again")
		}
	}
}

func TestBytesOfOtherFlowsAreCopiedOutsideTheLock(t *testing.T) {
	t.Parallel()
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", "127.0.0.1:1"))
	f := &fetcher{s: cluster.shared, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), slots: map[TP]*slot{}, ids: map[string]topicUse{}}
	tp := TP{"t", 0}
	var owners [3]*taker
	cluster.fetching.Lock()
	for i := range owners {
		owners[i] = &taker{}
		r := cluster.Reader(false, owners[i])
		w := &want{Want: Want{TP: tp}, reader: r}
		r.wants[tp] = w
		f.add(w)
	}
	buffer := h.Pool().Get(100)
	copy(buffer.Bytes(), "what the broker sent")
	before := h.Pool().InUse()
	resp := &wire.FetchResponse{Buffer: buffer, Partitions: []wire.FetchedPartition{{PreferredReplica: -1, Records: buffer.Bytes()[5:20]}}}
	var d delivery
	f.complete(&d, nil, f.slots[tp], 0, [16]byte{}, &resp.Partitions[0], buffer)
	locked := h.Pool().InUse()
	cluster.fetching.Unlock()
	d.deliver(f, resp)
	require.Equal(t, before, locked, "all readers of the cluster wait for the lock")
	seen := map[*byte]bool{}
	for _, o := range owners {
		require.Len(t, o.got, 1)
		require.Len(t, o.got[0].Parts, 1)
		p := o.got[0].Parts[0]
		require.Equal(t, "the broker sent", string(p.Fetched.Records), "whatever the others did with theirs")
		require.False(t, seen[&p.Fetched.Records[0]], "bytes of its own")
		seen[&p.Fetched.Records[0]] = true
		clear(p.Fetched.Records)
		p.Buffer.Retain()
		o.got[0].Release()
		p.Buffer.Release()
	}
	require.Zero(t, h.Pool().InUse())
}

// taker is an Owner that keeps its answers.
type taker struct{ got []*Answer }

func (o *taker) Fetched(a *Answer) { o.got = append(o.got, a) }
func (o *taker) Lost(int32, error) {}

func TestALeaderInPlaceOfAFollowerIsReadByThePoll(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.NumBrokers(2))
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	h := newHub(t, Config{Rack: "r1"})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	polls := make(chan struct{}, 1)
	var express atomic.Int32
	fetches(c, func(r *kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		switch {
		case r.SessionEpoch < 0:
			express.Add(1)
		case r.Rack == "":
			signal(polls)
		}
		return nil, nil
	})
	e := newEater(t, cluster, true, nil)
	cluster.fetching.Lock()
	e.reader.follows[TP{"t", 0}] = &follow{-1, time.Now().Add(time.Hour)}
	cluster.fetching.Unlock()
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID}) // idle
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 3 {
		select {
		case <-polls:
		case <-ctx.Done():
			require.Fail(t, "the leader is not polled without a rack", "asked %d times on the second connection", express.Load())
		}
	}
	require.LessOrEqual(t, express.Load(), int32(1), "an idle partition costs nothing")
	produce(t, cluster, "t", 0, 3)
	require.Positive(t, takeRecords(t, e).records)
}

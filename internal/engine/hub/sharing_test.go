package hub

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// fetches has f see the Fetch requests of a cluster; hold, if it returns one, keeps the answer back until it is closed.
func fetches(c *kfake.Cluster, f func(*kmsg.FetchRequest) (hold <-chan struct{}, answer kmsg.Response)) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r, ok := req.(*kmsg.FetchRequest)
		if !ok {
			return nil, nil, false
		}
		hold, answer := f(r)
		if hold != nil {
			c.SleepControl(func() { <-hold })
		}
		return answer, nil, answer != nil
	})
}

func TestTasksShareTwoConnectionsToABroker(t *testing.T) {
	t.Parallel()
	c := fake(t)
	proxy := faultnet.NewProxy(t, c.ListenAddrs()[0])
	h := newHub(t, Config{})
	var eaters []*eater
	for i := range 20 {
		one := join(t, h, at("source", "k", c.ListenAddrs()...))
		topic := describe(t, one, "t")["t"]
		one.SetBroker(0, proxy.Addr())
		e := newEater(t, one, true, always)
		eaters = append(eaters, e)
		e.reader.Set(0, Want{TP: TP{"t", int32(i % 3)}, TopicID: topic.ID})
		if i == 0 {
			produce(t, one, "t", 0, 1)
			produce(t, one, "t", 1, 1)
			produce(t, one, "t", 2, 1)
		}
	}
	for i, e := range eaters {
		e.until(TP{"t", int32(i % 3)}, 1)
	}
	require.LessOrEqual(t, proxy.Accepted(), 2)
}

func TestWhatIsWantedDuringAPollIsAskedForAtOnce(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	produce(t, cluster, "t", 1, 7)
	held := make(chan struct{})
	polling := make(chan struct{}, 1)
	fetches(c, func(r *kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		if r.SessionEpoch < 0 {
			return nil, nil
		}
		signal(polling)
		return held, nil // the poll comes to no end
	})
	defer close(held)
	idle, busy := newEater(t, cluster, false, nil), newEater(t, cluster, false, nil)
	idle.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	<-polling
	busy.reader.Set(0, Want{TP: TP{"t", 1}, TopicID: topic.ID, Tag: 5})
	g := take(t, busy)
	require.Equal(t, 7, g.records)
	require.EqualValues(t, 5, g.part.Want.Tag)
	// And what is there only later, too.
	busy.reader.Set(0, Want{TP: TP{"t", 1}, TopicID: topic.ID, Offset: 7})
	produce(t, cluster, "t", 1, 1)
	g = takeRecords(t, busy)
	require.Equal(t, 1, g.records)
	// A second flow wants the partition of the poll, from elsewhere: it does not wait either.
	produce(t, cluster, "t", 0, 3)
	busy.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 1})
	g = takeRecords(t, busy)
	require.Equal(t, TP{"t", 0}, g.part.Want.TP)
	require.Positive(t, g.records)
}

func TestFlowsThatWantTheSameShareTheAnswer(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	var eaters [3]*eater
	for i := range eaters {
		eaters[i] = newEater(t, cluster, true, always)
		eaters[i].reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	}
	for n := range 20 {
		if n == 10 { // one falls behind and catches up
			eaters[1].reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 40})
		}
		produce(t, cluster, "t", 0, 10)
		for _, e := range eaters {
			e.until(TP{"t", 0}, int64(10*(n+1)))
		}
	}
	require.Equal(t, 200, eaters[0].count(TP{"t", 0}))
	require.Equal(t, 200, eaters[2].count(TP{"t", 0}))
	require.Greater(t, eaters[1].count(TP{"t", 0}), 200, "it read some again")
}

func TestABusyPartitionDoesNotWaitForAThousandIdleOnes(t *testing.T) {
	t.Parallel()
	const idle, rounds = 1000, 40
	c := fake(t, kfake.SeedTopics(idle, "many"))
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "many")["many"]
	e := newEater(t, cluster, true, always)
	for p := range int32(idle) {
		e.reader.Set(0, Want{TP: TP{"many", p}, TopicID: topic.ID})
	}
	began := time.Now()
	for i := range rounds {
		produce(t, cluster, "many", 7, 1)
		e.until(TP{"many", 7}, int64(i+1))
	}
	require.Less(t, time.Since(began), rounds*pollWait/2)
}

func TestTheSessionEndsWithTheLastWant(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	polls, ends := make(chan struct{}, 1), make(chan int32, 100)
	fetches(c, func(r *kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		switch {
		case r.SessionEpoch > 0:
			signal(polls)
		case r.SessionEpoch < 0 && r.SessionID > 0:
			ends <- r.SessionID
		}
		return nil, nil
	})
	e := newEater(t, cluster, true, nil)
	for range 2 {
		e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
		<-polls
		e.reader.Drop(TP{"t", 0})
		<-ends
		select {
		case <-polls:
		default:
		}
	}
}

func TestErrorsOfPartitionsGoToTheirOwner(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.NumBrokers(2))
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	require.NoError(t, c.MoveTopicPartition("t", 1, 0))
	topic := describe(t, cluster, "t")["t"]
	e := newEater(t, cluster, false, nil)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID, Offset: 99})
	require.Equal(t, kerr.OffsetOutOfRange.Code, take(t, e).part.Fetched.ErrorCode)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: [16]byte{9}})
	require.Equal(t, kerr.UnknownTopicID.Code, take(t, e).part.Fetched.ErrorCode)
	produce(t, cluster, "t", 0, 1)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	require.Equal(t, 1, takeRecords(t, e).records)
	// A wrong leader names the right one, and says where it is.
	cluster.SetBroker(0, "127.0.0.1:1")
	e.reader.Set(1, Want{TP: TP{"t", 1}, TopicID: topic.ID})
	p := take(t, e).part.Fetched
	require.Equal(t, kerr.NotLeaderForPartition.Code, p.ErrorCode)
	require.Zero(t, p.Leader.Node)
	produce(t, cluster, "t", 1, 1)
	e.reader.Set(p.Leader.Node, Want{TP: TP{"t", 1}, TopicID: topic.ID})
	require.Equal(t, 1, takeRecords(t, e).records)
}

func TestABrokerThatGoesIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	c := fake(t)
	proxy := faultnet.NewProxy(t, c.ListenAddrs()[0])
	h := newHub(t, Config{UnreachableAfter: 200 * time.Millisecond})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	cluster.SetBroker(0, proxy.Addr())
	e := newEater(t, cluster, true, always)
	told := make(chan error, 100)
	stop := cluster.Watch(func(err error) { told <- err })
	defer stop()
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	produce(t, cluster, "t", 0, 5)
	e.until(TP{"t", 0}, 5)
	require.NoError(t, proxy.Cut())
	require.Error(t, <-e.lost)
	err := <-told
	require.Equal(t, kafka.Unreachable, kafka.Classify(err).Code)
	stopLate := cluster.Watch(func(err error) {
		if err != nil {
			told <- err
		}
	})
	require.Equal(t, kafka.Unreachable, kafka.Classify(<-told).Code, "who watches later is told, too")
	stopLate()
	require.NoError(t, proxy.Heal())
	require.NoError(t, <-told)
	produce(t, cluster, "t", 0, 5)
	e.until(TP{"t", 0}, 10)
	require.Equal(t, 10, e.count(TP{"t", 0}))

	require.NoError(t, proxy.Stall(faultnet.Both))
	produce(t, cluster, "t", 0, 1)
	require.NoError(t, proxy.Heal())
	e.until(TP{"t", 0}, 11)
}

func TestTheReplicaInTheRackIsReadAndLeftWhenItFails(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.NumBrokers(2))
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	h := newHub(t, Config{Rack: "r1"})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	produce(t, cluster, "t", 0, 1)
	addrs := c.ListenAddrs()
	proxy := faultnet.NewProxy(t, addrs[1])
	cluster.SetBroker(1, proxy.Addr())
	fetches(c, func(r *kmsg.FetchRequest) (<-chan struct{}, kmsg.Response) {
		if r.Rack == "" || len(r.Topics) == 0 || c.CurrentNode() != 0 {
			return nil, nil
		}
		resp, ok := r.ResponseKind().(*kmsg.FetchResponse)
		if !ok {
			return nil, nil
		}
		resp.SessionID = r.SessionID
		for _, rt := range r.Topics {
			st := kmsg.NewFetchResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewFetchResponseTopicPartition()
				sp.Partition, sp.PreferredReadReplica = rp.Partition, 1
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return nil, resp
	})
	e := newEater(t, cluster, true, nil)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	// kfake lets leaders answer only: so the follower refuses, and the leader is asked without a rack.
	g := take(t, e)
	require.Equal(t, 1, g.records)
	require.Zero(t, g.broker)
	require.Positive(t, proxy.Accepted(), "the follower was asked")

	// One that cannot be reached is left, too.
	require.NoError(t, proxy.Cut())
	wait.For(t, 10*time.Second, "the follower to be asked again", func() error {
		e.reader.Drop(TP{"t", 0})
		cluster.fetching.Lock()
		clear(e.reader.follows)
		cluster.fetching.Unlock()
		e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
		if g = take(t, e); g.records != 1 || g.broker != 0 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
}

func TestFetchesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	h := newHub(t, Config{MaxBytesInFlight: 1 << 20})
	b := h.budget
	require.EqualValues(t, 1<<20, b.ask(b.most))
	held := h.Pool().Get(7 << 17)
	require.EqualValues(t, 1<<17, b.ask(b.most))
	rest := h.Pool().Get(1 << 17)
	require.Zero(t, b.ask(b.most))
	some, most := make(chan struct{}, 1), make(chan struct{}, 1)
	h.NotifyFree(some, 10_000)
	h.NotifyFree(most, 900_000)
	rest.Release()
	<-some
	require.Empty(t, most)
	held.Release()
	<-most

	// What holds nothing gets a batch even though all is taken.
	c := fake(t)
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	topic := describe(t, cluster, "t")["t"]
	produce(t, cluster, "t", 0, 1)
	produce(t, cluster, "t", 0, 1)
	all := h.Pool().Get(1 << 20)
	defer all.Release()
	e := newEater(t, cluster, true, nil)
	e.reader.Set(0, Want{TP: TP{"t", 0}, TopicID: topic.ID})
	require.Equal(t, 1, take(t, e).records)
}

func TestLanesAreSharedAndAborted(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{})
	one, two := join(t, h, at("target", "k", c.ListenAddrs()...)), join(t, h, at("target", "k", c.ListenAddrs()...))
	_, err := one.Lane(t.Context(), 0, 0)
	require.ErrorIs(t, err, ErrNoAddress)
	describe(t, one, "t")
	a, err := one.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	b, err := two.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Same(t, a, b)
	slow, err := two.Lane(t.Context(), 0, SlowLane)
	require.NoError(t, err)
	require.NotSame(t, a, slow)
	h.Abort()
	<-a.Done()
	<-slow.Done()
	b, err = one.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	require.NotSame(t, a, b)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = one.Lane(cancelled, 0, 1)
	require.ErrorIs(t, err, context.Canceled)
	h.Close()
	<-b.Done()
	_, err = one.Lane(t.Context(), 0, 0)
	require.Error(t, err)
}

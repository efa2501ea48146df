package hub

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// got is one Part as an owner took it.
type got struct {
	part    Part
	broker  int32
	records int
	next    int64 // behind the last record
}

// eater is an Owner that keeps count, and asks on at once while on says so.
type eater struct {
	t      testing.TB
	reader *Reader
	on     func(g got) bool
	leader int32

	mu      sync.Mutex
	at      map[TP]int64
	records map[TP]int
	all     chan got
	lost    chan error
}

func newEater(t testing.TB, c *Cluster, committed bool, on func(got) bool) *eater {
	e := &eater{t: t, on: on, at: map[TP]int64{}, records: map[TP]int{}, all: make(chan got, 100_000), lost: make(chan error, 10_000)}
	e.reader = c.Reader(committed, e)
	t.Cleanup(e.reader.Close)
	return e
}

func (e *eater) Fetched(a *Answer) {
	defer a.Release()
	for _, p := range a.Parts {
		g := got{part: p, broker: a.Broker, next: p.Want.Offset}
		for in := batch.Slice(p.Fetched.Records); in.Next(); {
			b := in.Batch()
			g.records += int(b.Count())
			g.next = b.NextOffset()
		}
		clear(p.Fetched.Records) // as owners may
		g.part.Fetched.Records = nil
		e.mu.Lock()
		e.at[p.Want.TP] = max(e.at[p.Want.TP], g.next)
		e.records[p.Want.TP] += g.records
		e.mu.Unlock()
		if !p.Kept && e.on != nil && e.on(g) {
			w := p.Want
			w.Offset = g.next
			e.reader.Set(e.leader, w)
		}
		e.all <- g
	}
}

func (e *eater) Lost(_ int32, err error) {
	select {
	case e.lost <- err:
	default:
	}
}

// until waits until a partition was read up to an offset.
func (e *eater) until(tp TP, offset int64) {
	e.t.Helper()
	wait.For(e.t, 30*time.Second, fmt.Sprintf("offset %d of %v", offset, tp), func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if at := e.at[tp]; at < offset {
			return fmt.Errorf("at %d", at)
		}
		return nil
	})
}

// count is how many records of a partition were read.
func (e *eater) count(tp TP) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.records[tp]
}

// describe makes the brokers known to the hub and gives topic ids and leaders.
func describe(t testing.TB, c *Cluster, topics ...string) kadm.TopicDetails {
	t.Helper()
	m, err := kadm.NewClient(c.Client()).Metadata(t.Context(), topics...)
	require.NoError(t, err)
	for _, b := range m.Brokers {
		c.SetBroker(b.NodeID, fmt.Sprintf("%s:%d", b.Host, b.Port))
	}
	return m.Topics
}

func produce(t testing.TB, c *Cluster, topic string, partition int32, n int) {
	t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: topic, Partition: partition, Value: make([]byte, 100)}
	}
	require.NoError(t, c.Client().ProduceSync(t.Context(), rs...).FirstErr())
}

func always(got) bool { return true }

func take(t testing.TB, e *eater) got {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case g := <-e.all:
		return g
	case <-ctx.Done():
		require.Fail(t, "no answer")
		return got{}
	}
}

// takeRecords passes over answers without records.
func takeRecords(t testing.TB, e *eater) got {
	t.Helper()
	for {
		if g := take(t, e); !g.part.Kept {
			return g
		}
	}
}

func TestEverythingIsReadOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.NumBrokers(2))
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", c.ListenAddrs()...))
	for p := range int32(3) {
		produce(t, cluster, "t", p, 200)
	}
	topic := describe(t, cluster, "t")["t"]
	for _, committed := range []bool{false, true} {
		e := newEater(t, cluster, committed, nil)
		e.on = func(g got) bool {
			e.leader = topic.Partitions[g.part.Want.TP.Partition].Leader
			return true
		}
		for p := range int32(3) {
			e.reader.Set(topic.Partitions[p].Leader, Want{TP: TP{"t", p}, TopicID: topic.ID, Tag: uint64(p)})
			e.until(TP{"t", p}, 200)
		}
		for p := range int32(3) {
			require.Equal(t, 200, e.count(TP{"t", p}))
		}
	}
	wait.For(t, 5*time.Second, "the buffers to come back", func() error {
		if n := h.Pool().InUse(); n != 0 {
			return fmt.Errorf("%d bytes in use", n)
		}
		return nil
	})
	require.Positive(t, h.Free())
}

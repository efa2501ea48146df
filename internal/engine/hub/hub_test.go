package hub

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// fake is a cluster with a topic "t" of three partitions.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "t")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// at describes a cluster without security.
func at(side, key string, addrs ...string) kafka.Cluster {
	return kafka.Cluster{Side: side, Key: key, BootstrapServers: addrs, Credentials: kafka.NewCredentials(kafka.Security{Protocol: kafka.Plaintext})}
}

func newHub(t *testing.T, cfg Config) *Hub {
	t.Helper()
	h := New(cfg)
	t.Cleanup(h.Close)
	return h
}

func join(t *testing.T, h *Hub, cluster kafka.Cluster) *Cluster {
	t.Helper()
	c, err := h.Join(cluster)
	require.NoError(t, err)
	t.Cleanup(c.Leave)
	return c
}

func TestClustersWithTheSameKeyAndSideShareOneClient(t *testing.T) {
	t.Parallel()
	c := fake(t)
	h := newHub(t, Config{ClientID: "worker-1"})
	a := join(t, h, at("source", "k", c.ListenAddrs()...))
	require.Same(t, a.Client(), join(t, h, at("source", "k", c.ListenAddrs()...)).Client())
	for what, other := range map[string]kafka.Cluster{
		"another side": at("target", "k", c.ListenAddrs()...), "another key": at("source", "l", c.ListenAddrs()...),
	} {
		require.NotSame(t, a.Client(), join(t, h, other).Client(), what)
	}
	one, two := join(t, h, at("source", "", c.ListenAddrs()...)), join(t, h, at("source", "", c.ListenAddrs()...))
	require.NotSame(t, one.Client(), two.Client(), "no key: shared with nobody")
	require.NoError(t, a.Client().Ping(t.Context()))
	r := &kgo.Record{Topic: "t", Partition: 2, Value: []byte("v")}
	require.NoError(t, a.Client().ProduceSync(t.Context(), r).FirstErr())
	require.EqualValues(t, 2, r.Partition)
	require.Equal(t, "worker-1|source", fmt.Sprint(a.Client().OptValue(kgo.ClientID)))
}

func TestTheLastToLeaveClosesAfterAWhile(t *testing.T) {
	t.Parallel()
	c := fake(t)
	proxy := faultnet.NewProxy(t, c.ListenAddrs()[0])
	closed := func(client *kgo.Client) func() error {
		return func() error {
			if client.Ping(t.Context()) == nil {
				return fmt.Errorf("the client still works")
			}
			return nil
		}
	}
	h := newHub(t, Config{Linger: time.Millisecond})
	for key, description := range map[string]string{"": "at once", "k": "after the linger"} {
		one := join(t, h, at("source", key, proxy.Addr()))
		client := one.Client()
		require.NoError(t, client.Ping(t.Context()))
		one.Leave()
		one.Leave()
		wait.For(t, 10*time.Second, "end "+description, closed(client))
	}

	h = newHub(t, Config{Linger: time.Hour})
	one, two := join(t, h, at("source", "k", proxy.Addr())), join(t, h, at("source", "k", proxy.Addr()))
	require.NoError(t, one.Client().Ping(t.Context()))
	one.Leave()
	one.Leave() // counts once
	require.NoError(t, two.Client().Ping(t.Context()))
	two.Leave()
	before := proxy.Accepted()
	again := join(t, h, at("source", "k", proxy.Addr()))
	require.Same(t, two.Client(), again.Client())
	require.NoError(t, again.Client().Ping(t.Context()))
	require.Equal(t, before, proxy.Accepted(), "the connections were still there")
	h.Close()
	require.Error(t, again.Client().Ping(t.Context()))
	_, err := h.Join(at("source", "k", proxy.Addr()))
	require.ErrorIs(t, err, ErrClosed)
}

func TestSettingsThatCannotWorkAreAProblem(t *testing.T) {
	t.Parallel()
	h := newHub(t, Config{})
	_, err := h.Join(at("source", "k"))
	var p *kafka.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, kafka.Unreachable, p.Code)
}

func TestNothingIsWrittenAfterTheRightToItEnded(t *testing.T) {
	t.Parallel()
	c := fake(t)
	var mine, hubs atomic.Bool
	mine.Store(true)
	hubs.Store(true)
	h := newHub(t, Config{MayWrite: hubs.Load})
	for _, right := range []*atomic.Bool{&mine, &hubs} {
		cluster := at("target", "", c.ListenAddrs()...)
		cluster.MayWrite = mine.Load
		one := join(t, h, cluster)
		right.Store(false)
		require.ErrorIs(t, one.Client().Ping(t.Context()), kafka.ErrMayNotWrite)
		right.Store(true)
		require.NoError(t, one.Client().Ping(t.Context()))
	}
}

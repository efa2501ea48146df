package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
)

func TestABrokerBehindAProxyIsReachedThroughItOnly(t *testing.T) {
	t.Parallel()
	advertise, proxies := faultnet.Advertise(t)
	c := Start(t, Options{Version: V43, Listeners: []kafkaproc.Listener{
		{Name: "PROXIED", Advertise: advertise}, {Name: "PLAINTEXT"},
	}})
	proxy := proxies[1]
	require.Equal(t, proxy.Addr(), c.Bootstrap())
	topic := UniqueName(t)
	CreateTopic(t, c, topic, 1, nil)

	client := Client(t, c, kgo.SeedBrokers(c.Bootstrap()), kgo.DefaultProduceTopic(topic))
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("1")).FirstErr())
	require.NoError(t, proxy.Stall(faultnet.Downward))
	result := make(chan error, 1)
	client.Produce(t.Context(), kgo.StringRecord("2"), func(_ *kgo.Record, err error) { result <- err })
	select {
	case err := <-result:
		require.FailNow(t, "acknowledged through a stalled proxy", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, proxy.Heal())
	require.NoError(t, <-result)

	require.NoError(t, proxy.Cut())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, Client(t, c, kgo.SeedBrokers(c.Bootstrap()), kgo.RetryTimeout(time.Second)).Ping(ctx))
	require.EqualValues(t, 2, Total(Sums(t, c, topic, ReadCommitted)), "the test's own clients are not concerned")
}

func TestThreeNodesFormOneClusterAndOutliveTheLossOfOne(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Version: V39, Nodes: 3, HeapMB: 300, Props: map[string]string{"default.replication.factor": "3", "min.insync.replicas": "2"}})
	require.Len(t, c.Bootstraps("PLAINTEXT"), 3)
	topic := UniqueName(t)
	CreateTopic(t, c, topic, 3, nil)
	next := Fill(t, c, topic, FillOptions{Records: 300, Partitions: 3})
	require.NoError(t, c.Nodes()[2].Kill())
	Fill(t, c, topic, FillOptions{Records: 300, Partitions: 3, FirstID: next})
	require.NoError(t, c.Proc().StartNodes(context.Background(), c.Nodes()[2]))
	require.EqualValues(t, 600, Total(Sums(t, c, topic, ReadCommitted)))
}

package wire

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
)

func fake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "t")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return c, client
}

func fill(t *testing.T, client *kgo.Client, n int) {
	t.Helper()
	for i := range n {
		client.Produce(t.Context(), &kgo.Record{Partition: int32(i % 3), Key: fmt.Append(nil, i), Value: make([]byte, 100), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))}, nil)
		if i%50 == 49 {
			require.NoError(t, client.Flush(t.Context()))
		}
	}
	require.NoError(t, client.Flush(t.Context()))
}

// keys reads a topic of fill.
func keys(t *testing.T, addrs []string, n int) map[int32][]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := map[int32][]string{}
	for read := 0; read < n; {
		fs := client.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		fs.EachRecord(func(r *kgo.Record) {
			read++
			got[r.Partition] = append(got[r.Partition], fmt.Sprintf("%s@%d", r.Key, r.Timestamp.UnixMilli()))
		})
	}
	return got
}

func TestBatchesPassBetweenBrokersOfEveryAge(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name           string
		versions       *kversion.Versions
		fetch, produce int16
	}{
		{"1.0", kversion.V1_0_0(), 6, 5},
		{"2.1", kversion.V2_1_0(), 10, 7},
		{"2.8", kversion.V2_8_0(), 12, 9},
		{"3.1", kversion.V3_1_0(), 13, 9},
		{"3.9", kversion.V3_9_0(), 17, 11},
		{"4.0", kversion.V4_0_0(), 17, 12},
		{"newest", nil, 18, 13},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			var opts []kfake.Opt
			if v.versions != nil {
				opts = append(opts, kfake.MaxVersions(v.versions))
			}
			source, sc := fake(t, opts...)
			target, tc := fake(t, opts...)
			fill(t, sc, 600)
			pool := NewPool(1 << 20)
			for _, byName := range []bool{false, true} {
				r := &relay{
					tb: t, from: describe(t, sc, "t"), to: describe(t, tc, "t"), byName: byName, maxBytes: 3000, judge: batch.Target{Codec: batch.ProducerCodec},
					source: dial(t, Config{Cluster: at(kafka.Security{}), Address: source.ListenAddrs()[0], ClientID: "wire", Pool: pool}),
					target: dial(t, Config{Cluster: at(kafka.Security{}), Address: target.ListenAddrs()[0], ClientID: "wire"}),
				}
				require.Equal(t, v.fetch, r.source.FetchVersion())
				require.Equal(t, v.produce, r.target.ProduceVersion())
				r.run()
				require.Equal(t, keys(t, source.ListenAddrs(), 600), keys(t, target.ListenAddrs(), 600))
				require.Zero(t, pool.InUse())
				if v.fetch < idFetch && v.produce < idProduce {
					break
				}
				target, tc = fake(t, opts...)
			}
		})
	}
}

func TestAWrongLeaderNamesTheRightOne(t *testing.T) {
	t.Parallel()
	c, client := fake(t, kfake.NumBrokers(2))
	fill(t, client, 3)
	addrs := c.ListenAddrs()
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	info := describe(t, client, "t")
	wrong := dial(t, Config{Cluster: at(kafka.Security{}), Address: addrs[1], ClientID: "wire"})
	o := <-fetchInto(t, wrong, &FetchRequest{
		MaxWait: time.Second, MaxBytes: 1 << 20, SessionEpoch: -1,
		Topics: []FetchTopic{{Name: "t", ID: info.id, Partitions: []FetchPartition{{LeaderEpoch: -1, MaxBytes: 1 << 20}}}},
	})
	require.NoError(t, o.err)
	p := o.fetched.Partitions[0]
	require.Equal(t, kerr.NotLeaderForPartition.Code, p.ErrorCode)
	require.Zero(t, p.Leader.Node)
	require.Equal(t, info.epochs[0], p.Leader.Epoch)
	var named []string
	for _, n := range o.fetched.Nodes {
		if n.ID == p.Leader.Node {
			named = append(named, fmt.Sprintf("%s:%d", n.Host, n.Port))
		}
	}
	require.Equal(t, addrs[:1], named)
	o.fetched.Release()
}

func TestALineThatBreaksOrStallsIsTold(t *testing.T) {
	t.Parallel()
	c, client := fake(t)
	fill(t, client, 300)
	info := describe(t, client, "t")
	req := &FetchRequest{MaxBytes: 1 << 20, SessionEpoch: -1, Topics: []FetchTopic{{Name: "t", ID: info.id, Partitions: []FetchPartition{{LeaderEpoch: -1, MaxBytes: 1 << 20}}}}}
	proxy := faultnet.NewProxy(t, c.ListenAddrs()[0])
	pool := NewPool(1 << 20)
	cfg := Config{Cluster: at(kafka.Security{}), Address: proxy.Addr(), ClientID: "wire", Pool: pool, Silence: 300 * time.Millisecond}
	works := func(conn *Conn) {
		t.Helper()
		o := <-fetchInto(t, conn, req)
		require.NoError(t, o.err)
		require.NotEmpty(t, o.fetched.Partitions[0].Records)
		o.fetched.Release()
	}
	var lost *LostError

	conn := dial(t, cfg)
	works(conn)
	require.NoError(t, proxy.Stall(faultnet.Downward))
	o := <-fetchInto(t, conn, req)
	require.ErrorIs(t, o.err, os.ErrDeadlineExceeded)
	require.ErrorAs(t, o.err, &lost)
	require.True(t, lost.Sent)
	require.NoError(t, proxy.Heal())

	conn = dial(t, cfg)
	works(conn)
	proxy.Reset()
	<-conn.Done()
	require.Error(t, conn.Err())
	require.ErrorAs(t, conn.Fetch(req, nil), &lost)
	require.False(t, lost.Sent)

	// A slow line is no silent one.
	require.NoError(t, proxy.Throttle(40_000))
	conn = dial(t, cfg)
	works(conn)
	require.NoError(t, proxy.Heal())
	require.Zero(t, pool.InUse())
}

func TestTheBrokersEndIsTold(t *testing.T) {
	t.Parallel()
	c, client := fake(t)
	info := describe(t, client, "t")
	conn := dial(t, Config{Cluster: at(kafka.Security{}), Address: c.ListenAddrs()[0], ClientID: "wire"})
	got := fetchInto(t, conn, &FetchRequest{
		MaxWait: time.Minute, MinBytes: 1, MaxBytes: 1, SessionEpoch: -1,
		Topics: []FetchTopic{{Name: "t", ID: info.id, Partitions: []FetchPartition{{LeaderEpoch: -1, MaxBytes: 1}}}},
	})
	c.Close()
	o := <-got
	require.Error(t, o.err)
	require.NotErrorIs(t, o.err, ErrClosed)
	_, err := Dial(t.Context(), Config{Cluster: at(kafka.Security{}), Address: faultnet.RefusedAddr(t)})
	require.Equal(t, kafka.Unreachable, kafka.Classify(err).Code)
}

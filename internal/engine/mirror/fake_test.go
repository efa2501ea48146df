package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

const topic = "orders"

var first = TP{topic, 0}

// fakes are two kfake clusters with the topic, a path between them, and the values of the source's n records.
func fakes(t *testing.T, on way, n int, opts ...kfake.Opt) (source, target *kfake.Cluster, b *bench) {
	t.Helper()
	source, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, topic)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(source.Close)
	target, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic))}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(target.Close)
	write(t, source, 0, n)
	return source, target, run(t, on, plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...), nil)
}

// write produces n numbered records to each of the two partitions.
func write(t *testing.T, c *kfake.Cluster, from, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer client.Close()
	var rs []*kgo.Record
	for i := from; i < from+n; i++ {
		for p := range int32(2) {
			rs = append(rs, &kgo.Record{Partition: p, Value: fmt.Append(nil, i), Timestamp: time.Now()})
		}
	}
	require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
}

// requireNumbers checks that the copy's partitions hold 0..n-1, once each and in order.
func requireNumbers(t *testing.T, target *kfake.Cluster, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(target.ListenAddrs()...), kgo.ConsumeTopics(remote(topic)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got := map[int32][]string{}
	for len(got[0]) < n || len(got[1]) < n {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], string(r.Value)) })
		require.NoError(t, ctx.Err(), "%d and %d records", len(got[0]), len(got[1]))
	}
	for p := range int32(2) {
		require.EqualValues(t, n, target.PartitionInfo(remote(topic), p).HighWatermark)
		for i, v := range got[p] {
			require.Equal(t, fmt.Sprint(i), v, "partition %d", p)
		}
	}
}

func (b *bench) untilAt(tp TP, offset int64) {
	b.tb.Helper()
	wait.For(b.tb, 20*time.Second, fmt.Sprintf("position %d of %v", offset, tp), func() error {
		if at := b.seen.position(tp); at < offset {
			return fmt.Errorf("at %d, stop %+v", at, b.seen.stopped(tp))
		}
		return nil
	})
}

// answerProduce makes an answer with one code for partition 0 and none for the others, as if they were not in the request.
func answerProduce(t *testing.T, req kmsg.Request, code *kerr.Error) kmsg.Response {
	pr, ok := req.(*kmsg.ProduceRequest)
	require.True(t, ok)
	resp, ok := pr.ResponseKind().(*kmsg.ProduceResponse)
	require.True(t, ok)
	for _, rt := range pr.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.ErrorCode = rp.Partition, kerr.NotLeaderForPartition.Code
			if rp.Partition == 0 {
				sp.ErrorCode = code.Code
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

func TestB24_ErrorsOfTheTargetKeepOrderAndCount(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		for _, code := range []*kerr.Error{
			kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.UnknownServerError, kerr.CorruptMessage, kerr.KafkaStorageError,
			kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.MessageTooLarge, kerr.InvalidRecord,
		} {
			t.Run(code.Message, func(t *testing.T) {
				t.Parallel()
				_, target, b := fakes(t, on, 500)
				n := 0
				target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
					target.KeepControl()
					if n++; n%3 != 2 || n > 12 {
						return nil, nil, false
					}
					return answerProduce(t, req, code), nil, true
				})
				b.assign(topic, 2, 0)
				b.untilAt(first, 500)
				b.untilAt(TP{topic, 1}, 500)
				requireNumbers(t, target, 500)
			})
		}
	})
}

func TestDeniedWriteStopsThePartitionUntilItIsAllowed(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		_, target, b := fakes(t, on, 50)
		n := 0
		target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			if n++; n > 8 {
				return nil, nil, false
			}
			return answerProduce(t, req, kerr.TopicAuthorizationFailed), nil, true
		})
		b.assign(topic, 2, 0)
		require.True(t, b.untilStopped(first, StopTargetDenied).Retry)
		b.untilAt(first, 50)
		b.untilAt(TP{topic, 1}, 50)
		wait.For(t, 5*time.Second, "Resumed", func() error {
			if s := b.seen.stopped(first); s != nil {
				return errors.New(s.Message)
			}
			return nil
		})
		requireNumbers(t, target, 50)
	})
}

func TestCorruptBatchStopsItsPartitionUntilItReadsWell(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := fakes(t, on, 50)
		bad := true
		source.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			source.KeepControl()
			fr, ok := req.(*kmsg.FetchRequest)
			if !ok || !bad {
				return nil, nil, false
			}
			resp, ok := fr.ResponseKind().(*kmsg.FetchResponse)
			require.True(t, ok)
			found := false
			for _, rt := range fr.Topics {
				st := kmsg.NewFetchResponseTopic()
				st.Topic, st.TopicID = rt.Topic, rt.TopicID
				for _, rp := range rt.Partitions {
					sp := kmsg.NewFetchResponseTopicPartition()
					sp.Partition, sp.HighWatermark, sp.LastStableOffset = rp.Partition, 50, 50
					if rp.Partition == 0 && rp.FetchOffset == 0 {
						found = true
						sp.RecordBatches = encoded(t, samples(0), identity{})
						sp.RecordBatches[70] ^= 1
					}
					st.Partitions = append(st.Partitions, sp)
				}
				resp.Topics = append(resp.Topics, st)
			}
			bad = !found
			return resp, nil, found
		})
		b.assign(topic, 2, 0)
		b.untilStopped(first, StopCorrupt)
		b.untilAt(first, 50)
		b.untilAt(TP{topic, 1}, 50)
		requireNumbers(t, target, 50)
	})
}

func TestForeignWritesAreToldAndTheSpansStayTrue(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := fakes(t, on, 10)
		b.assign(topic, 1, 0)
		b.untilAt(first, 10)
		client, err := kgo.NewClient(kgo.SeedBrokers(target.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: remote(topic), Value: []byte("foreign")}).FirstErr())
		write(t, source, 10, 10)
		b.untilAt(first, 20)
		stop := b.untilStopped(first, StopForeign)
		require.EqualValues(t, 10, stop.Evidence["expected_target_offset"])
		require.EqualValues(t, 11, stop.Evidence["target_offset"])
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		last := b.seen.spans[first][len(b.seen.spans[first])-1]
		require.EqualValues(t, 20, last.Target-last.Source+19)
	})
}

func TestUnassignedPartitionIsQuietAndItsNeighbourGoesOn(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := fakes(t, on, 100)
		b.assign(topic, 2, 0)
		b.untilAt(first, 100)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, b.path.Unassign(ctx, []TP{first, {"unknown", 3}}))
		write(t, source, 100, 100)
		b.untilAt(TP{topic, 1}, 200)
		require.EqualValues(t, 100, b.seen.position(first))
		require.EqualValues(t, 100, target.PartitionInfo(remote(topic), 0).HighWatermark)
		b.path.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 100}})
		b.untilAt(first, 200)
		requireNumbers(t, target, 200)
	})
}

func TestUnassignGivesUpWhenTheTargetDoesNotAnswer(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		_, target, b := fakes(t, on, 100)
		refused := make(chan struct{}, 1)
		target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			notify(refused)
			return answerProduce(t, req, kerr.NotEnoughReplicas), nil, true
		})
		b.assign(topic, 1, 0)
		<-refused
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.path.Unassign(ctx, []TP{first}), context.DeadlineExceeded)
		wait.For(t, 5*time.Second, "nothing in flight", func() error {
			if n := b.path.InFlight(); n != 0 {
				return fmt.Errorf("%d bytes", n)
			}
			return nil
		})
	})
}

func TestPartitionTheTargetCannotServeIsToldAfterAWhile(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		_, target, b := fakes(t, on, 100)
		refuse := true
		target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			if !refuse {
				return nil, nil, false
			}
			return answerProduce(t, req, kerr.NotEnoughReplicas), nil, true
		})
		b.assign(topic, 1, 0)
		require.True(t, b.untilStopped(first, StopTargetUnavailable).Retry)
		require.Empty(t, b.connections(), "the cluster itself answers")
		target.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) { refuse = false; return nil, nil, false })
		b.untilAt(first, 100)
		wait.For(t, 5*time.Second, "Resumed", func() error {
			if s := b.seen.stopped(first); s != nil {
				return errors.New(s.Message)
			}
			return nil
		})
	})
}

func TestLeaderThatMovesIsFollowed(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := fakes(t, on, 100, kfake.NumBrokers(3))
		b.assign(topic, 2, 0)
		for i := 1; i <= 6; i++ {
			for p := range int32(2) {
				require.NoError(t, source.MoveTopicPartition(topic, p, int32(i)%3))
				require.NoError(t, target.MoveTopicPartition(remote(topic), p, int32(i+1)%3))
			}
			write(t, source, i*100, 100)
			b.untilAt(first, int64(i+1)*100)
			b.untilAt(TP{topic, 1}, int64(i+1)*100)
		}
		requireNumbers(t, target, 700)
	})
}

func TestConfigWithoutWhatIsNeededIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{Source: plain("source", "127.0.0.1:1"), Target: plain("target", "127.0.0.1:1"), ClientID: "c", Observer: newWatcher()}
	for name, change := range map[string]func(*Config){
		"Observer":    func(c *Config) { c.Observer = nil },
		"ClientID":    func(c *Config) { c.ClientID = "" },
		"Credentials": func(c *Config) { c.Target.Credentials = nil },
		"bootstrap":   func(c *Config) { c.Source.BootstrapServers = nil },
	} {
		c := good
		change(&c)
		_, err := New(c)
		require.ErrorContains(t, err, name)
		c.PassThrough = true
		_, err = New(c)
		require.ErrorContains(t, err, name)
	}
}

func TestClusterThatCannotBeReachedIsToldWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		closed := faultnet.NewProxy(t, "")
		require.NoError(t, closed.Cut())
		for name, address := range map[string]string{"nobody listens": closed.Addr(), "silence": faultnet.SilentServer(t), "no Kafka": faultnet.HTTPServer(t)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, remote(topic)))
				require.NoError(t, err)
				t.Cleanup(target.Close)
				b := run(t, on, plain("source", address), plain("target", target.ListenAddrs()...), nil)
				began := time.Now()
				b.assign(topic, 1, 0)
				b.untilConnection("source ")
				require.Less(t, time.Since(began), 3500*time.Millisecond)
				require.Zero(t, b.seen.stopCount(first), "the partition itself is not to blame")
			})
		}
	})
}

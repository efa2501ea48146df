package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// keep are configs of topics that nothing is deleted from.
func keep(more map[string]string) map[string]string {
	all := map[string]string{"retention.ms": "-1"}
	for k, v := range more {
		all[k] = v
	}
	return all
}

func TestRealBrokersTakeWhatComesOut(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct {
		source, target kafkaproc.Version
		fetch, produce int16
	}{{kafkatest.V39, kafkatest.V43, 17, 13}, {kafkatest.V43, kafkatest.V39, 18, 11}} {
		t.Run(string(pair.source+" to "+pair.target), func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Shared(t, pair.source), kafkatest.Shared(t, pair.target)
			pool := NewPool(32 << 20)
			sc := dial(t, Config{Cluster: at(kafka.Security{}), Address: source.Bootstrap(), ClientID: "wire", Pool: pool})
			tc := dial(t, Config{Cluster: at(kafka.Security{}), Address: target.Bootstrap(), ClientID: "wire"})
			require.Equal(t, pair.fetch, sc.FetchVersion())
			require.Equal(t, pair.produce, tc.ProduceVersion())
			copyTopic := func(t *testing.T, topic string, configs map[string]string, change func(*relay)) *relay {
				t.Helper()
				kafkatest.CreateTopic(t, target, topic, 2, configs)
				r := &relay{
					tb: t, source: sc, target: tc, pool: pool, committed: true, judge: batch.Target{Codec: batch.ProducerCodec},
					from: describe(t, kafkatest.Client(t, source), topic), to: describe(t, kafkatest.Client(t, target), topic),
				}
				if change != nil {
					change(r)
				}
				settle(t, sc, r.from)
				settle(t, tc, r.to)
				r.run()
				return r
			}
			same := func(t *testing.T, topic string) {
				t.Helper()
				kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, topic, kafkatest.ReadUncommitted))
			}

			for i, c := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
				t.Run(fmt.Sprintf("codec %d passes untouched", i), func(t *testing.T) {
					topic := kafkatest.UniqueName(t)
					kafkatest.CreateTopic(t, source, topic, 2, keep(nil))
					kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 4000, Partitions: 2, Opts: []kgo.Opt{kgo.ProducerBatchCompression(c)}})
					r := copyTopic(t, topic, keep(nil), nil)
					require.Len(t, r.reasons, 1, "%v", r.reasons)
					require.Contains(t, r.reasons, "none")
					same(t, topic)
				})
			}
			t.Run("aborted transactions and markers stay out", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 2, keep(nil))
				kafkatest.FillTransactions(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2}, 50, 3)
				r := copyTopic(t, topic, keep(nil), nil)
				require.NotZero(t, r.reasons["aborted"])
				require.NotZero(t, r.reasons["control"])
				same(t, topic)
			})
			t.Run("append time becomes create time", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 2, keep(map[string]string{"message.timestamp.type": "LogAppendTime"}))
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 500, Partitions: 2})
				kafkatest.Produce(t, source, topic, &kgo.Record{Value: []byte("alone"), Timestamp: time.UnixMilli(1_500_000_000_000)})
				r := copyTopic(t, topic, keep(nil), nil)
				require.NotZero(t, r.reasons["append_time"])
				require.NotZero(t, r.reasons["none"], "the single record passes")
				same(t, topic)
			})
			t.Run("append time onto append time passes", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				configs := keep(map[string]string{"message.timestamp.type": "LogAppendTime"})
				kafkatest.CreateTopic(t, source, topic, 2, configs)
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 500, Partitions: 2, Plain: true})
				r := copyTopic(t, topic, configs, func(r *relay) { r.judge.AppendTime = true })
				require.Len(t, r.reasons, 1)
				require.Equal(t, kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, topic, kafkatest.ReadCommitted))
			})
			t.Run("large batches are split for a small target", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 2, keep(nil))
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 3000, Partitions: 2, ValueBytes: 1000, Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}})
				r := copyTopic(t, topic, keep(map[string]string{"max.message.bytes": "20000"}), func(r *relay) { r.judge.MaxBatchBytes = 20_000 })
				require.NotZero(t, r.reasons["too_large"])
				same(t, topic)
			})
			t.Run("a start inside a batch", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 2, keep(nil))
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 2000, Partitions: 2, Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression())}})
				r := copyTopic(t, topic, keep(nil), func(r *relay) { r.want = 101 })
				require.NotZero(t, r.reasons["starts_inside"])
				want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
				for p := range want {
					want[p] = want[p][101:]
				}
				kafkatest.RequireEqual(t, want, kafkatest.ReadAll(t, target, topic, kafkatest.ReadCommitted))
			})
			t.Run("answers of many megabytes", func(t *testing.T) {
				topic := kafkatest.UniqueName(t)
				configs := keep(map[string]string{"max.message.bytes": "12000000"})
				kafkatest.CreateTopic(t, source, topic, 2, configs)
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{
					Records: 300, Partitions: 2, ValueBytes: 100_000, Plain: true,
					Opts: []kgo.Opt{kgo.ProducerBatchMaxBytes(11_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(200 * time.Millisecond)},
				})
				r := copyTopic(t, topic, configs, func(r *relay) { r.maxBytes = 8 << 20 })
				require.Len(t, r.reasons, 1)
				same(t, topic)
			})
			require.Zero(t, pool.InUse())
		})
	}
}

func TestHolesOfACompactedTopicCloseOnARealBroker(t *testing.T) {
	t.Parallel()
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, kafkatest.CompactedConfigs())
	kafkatest.FillCompacted(t, source, topic, kafkatest.FillOptions{Records: 2000, Partitions: 1, Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.SnappyCompression())}}, 200)
	kafkatest.CreateTopic(t, target, topic, 1, keep(nil))
	r := &relay{
		tb: t, judge: batch.Target{Codec: batch.ProducerCodec}, from: describe(t, kafkatest.Client(t, source), topic), to: describe(t, kafkatest.Client(t, target), topic),
		source: dial(t, Config{Cluster: at(kafka.Security{}), Address: source.Bootstrap(), ClientID: "wire"}),
		target: dial(t, Config{Cluster: at(kafka.Security{}), Address: target.Bootstrap(), ClientID: "wire"}),
	}
	settle(t, r.target, r.to)
	r.run()
	require.NotZero(t, r.reasons["holes"], "%v", r.reasons)
	// The cleaner may go on at the source, so the copy is checked by itself: each key's last value is there.
	last := func(c *kafkatest.Cluster) map[string]string {
		m := map[string]string{}
		for _, rec := range kafkatest.ReadAll(t, c, topic, kafkatest.ReadCommitted)[0] {
			m[string(rec.Key)] = string(rec.Value)
		}
		return m
	}
	require.Equal(t, last(source), last(target))
}

func TestSessionsOfARealBroker(t *testing.T) {
	t.Parallel()
	for _, version := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Shared(t, version)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, c, topic, 50, nil)
			info := describe(t, kafkatest.Client(t, c), topic)
			conn := dial(t, Config{Cluster: at(kafka.Security{}), Address: c.Bootstrap(), ClientID: "wire"})
			settle(t, conn, info)
			var s Session
			req := &FetchRequest{MaxWait: 20 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20}
			for p := range info.partitions {
				s.Set(topic, info.id, FetchPartition{Partition: p, LeaderEpoch: info.epochs[p], MaxBytes: 1 << 20})
			}
			// ask fetches once and returns the partitions that were named and answered.
			ask := func(good bool) (asked, answered int, records map[int32]int) {
				t.Helper()
				s.Next(req, conn.FetchVersion())
				for _, ft := range req.Topics {
					asked += len(ft.Partitions)
				}
				o := <-fetchInto(t, conn, req)
				require.NoError(t, o.err)
				defer o.fetched.Release()
				require.Equal(t, good, s.Answered(o.fetched), kerr.ErrorForCode(o.fetched.ErrorCode))
				records = map[int32]int{}
				for _, p := range o.fetched.Partitions {
					require.NoError(t, kerr.ErrorForCode(p.ErrorCode))
					sl := batch.Slice(p.Records)
					for sl.Next() {
						records[p.Partition] += int(sl.Batch().Count())
					}
				}
				return asked, len(o.fetched.Partitions), records
			}
			asked, answered, _ := ask(true)
			require.Equal(t, []int{50, 50}, []int{asked, answered})
			asked, answered, _ = ask(true)
			require.Equal(t, []int{0, 0}, []int{asked, answered}, "idle partitions are neither named nor answered")
			kafkatest.Produce(t, c, topic, &kgo.Record{Partition: 7, Value: []byte("v")})
			_, answered, records := ask(true)
			require.Equal(t, 1, answered)
			require.Equal(t, map[int32]int{7: 1}, records)
			s.Set(topic, info.id, FetchPartition{Partition: 7, LeaderEpoch: info.epochs[7], Offset: 1, MaxBytes: 1 << 20})
			s.Remove(topic, 8)
			asked, _, records = ask(true)
			require.Equal(t, 1, asked)
			require.Empty(t, records)
			kafkatest.Produce(t, c, topic, &kgo.Record{Partition: 8, Value: []byte("v")})
			_, _, records = ask(true)
			require.Empty(t, records, "partition 8 was forgotten")
			s.Set(topic, info.id, FetchPartition{Partition: 8, LeaderEpoch: info.epochs[8], MaxBytes: 1 << 20})
			_, _, records = ask(true)
			require.Equal(t, map[int32]int{8: 1}, records)

			// The session is lost: an error once, then everything anew.
			s.id++
			ask(false)
			asked, _, _ = ask(true)
			require.Equal(t, 50, asked)
			s.epoch += 3
			ask(false)
			asked, _, _ = ask(true)
			require.Equal(t, 50, asked)
			require.True(t, s.Close(req))
			o := <-fetchInto(t, conn, req)
			require.NoError(t, o.err)
			require.Zero(t, o.fetched.ErrorCode)
			o.fetched.Release()
		})
	}
}

func TestTheTailOfAPartitionOnRealBrokers(t *testing.T) {
	t.Parallel()
	for _, version := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Shared(t, version)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, c, topic, 2, keep(nil))
			info := describe(t, kafkatest.Client(t, c), topic)
			conn := dial(t, Config{Cluster: at(kafka.Security{}), Address: c.Bootstrap(), ClientID: "wire"})
			settle(t, conn, info)
			send := func(p batch.Producer) int16 {
				t.Helper()
				b := sampleBatch(t)
				batch.Patch(b, p)
				code := make(chan int16, 1)
				require.NoError(t, conn.Produce(&ProduceRequest{
					Timeout: time.Second, Topics: []ProduceTopic{{Name: topic, ID: info.id, Partitions: []ProducePartition{{Partition: 1, Records: b}}}},
				}, func(r *ProduceResponse, err error) {
					if err != nil {
						code <- -2
						return
					}
					code <- r.Partitions[0].ErrorCode
				}))
				return <-code
			}
			for i := range int32(3) {
				require.Zero(t, send(batch.Producer{ID: 77_000, Epoch: 4, Sequence: i}))
			}
			require.Equal(t, kerr.OutOfOrderSequenceNumber.Code, send(batch.Producer{ID: 77_000, Epoch: 4, Sequence: 9}))
			tail, err := conn.Tail(t.Context(), topic, 1, info.epochs[1], 77_000)
			require.NoError(t, err)
			require.True(t, tail.Known && tail.Settled())
			require.WithinRange(t, time.UnixMilli(tail.LastTimestamp), time.Now().Add(-time.Minute), time.Now())
			tail.LastTimestamp = 0
			require.Equal(t, Tail{Known: true, ProducerEpoch: 4, LastSequence: 2, OpenTransaction: -1, LogEnd: 3, HighWatermark: 3}, tail)
			tail, err = conn.Tail(t.Context(), topic, 1, -1, 77_001)
			require.NoError(t, err)
			require.False(t, tail.Known)
			require.EqualValues(t, 3, tail.LogEnd)
			_, err = conn.Tail(t.Context(), topic, 1, info.epochs[1]+1, 77_000)
			require.ErrorIs(t, err, kerr.UnknownLeaderEpoch)
			_, err = conn.Tail(t.Context(), topic, 9, -1, 77_000)
			require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
		})
	}
}

func TestARealBrokersThrottleIsNoSilence(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.V43)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, c, topic, 1, keep(nil))
	info := describe(t, kafkatest.Client(t, c), topic)
	id := kafkatest.UniqueName(t)
	name := id
	_, err := kafkatest.Admin(t, c).AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 2000}},
	}})
	require.NoError(t, err)
	var h counter
	conn := dial(t, Config{Cluster: at(kafka.Security{}), Address: c.Bootstrap(), ClientID: id, Silence: 500 * time.Millisecond, Hook: &h})
	settle(t, conn, info)
	b := sampleBatch(t)
	w := batch.NewBuilder(nil)
	w.Reset(batch.Options{})
	require.NoError(t, w.AddRecord(0, 1, batch.AppendBody(nil, nil, make([]byte, 30_000)), 0))
	_, built, err := w.Build(nil)
	require.NoError(t, err)
	req := func(b batch.Batch) *ProduceRequest {
		return &ProduceRequest{Topics: []ProduceTopic{{Name: topic, ID: info.id, Partitions: []ProducePartition{{Records: b}}}}}
	}
	// The quota arrives a moment after it was set.
	wait.For(t, 20*time.Second, "a throttle", func() error {
		if err := <-produceInto(t, conn, req(built[0].Batch)); err != nil {
			return err
		}
		if !conn.Throttled().After(time.Now().Add(time.Second)) {
			return errors.New("none yet")
		}
		return nil
	})
	until := conn.Throttled()
	require.NoError(t, <-produceInto(t, conn, req(b)), "the next request waits for longer than silence may last")
	require.WithinRange(t, time.Now(), until.Add(-300*time.Millisecond), until.Add(5*time.Second))
	require.NotZero(t, h.throttled)
}

// security are the settings for a listener of kafkatest.SecureOptions.
func security(t *testing.T, listener string, pki *kafkatest.PKI, issuer *oauthtest.Server) kafka.Security {
	t.Helper()
	s := kafka.Security{
		Protocol: kafka.SASLSSL, TLS: kafka.TLS{CA: string(pki.CA())},
		SASL: kafka.SASL{Username: kafkatest.UserName, Password: kafkatest.UserPassword},
	}
	switch listener {
	case kafkatest.ListenerTLS:
		s.Protocol = kafka.SSL
	case kafkatest.ListenerMTLS:
		cert, key := pki.Issue(t, "mirror", kafkatest.ClientCert)
		s.Protocol, s.TLS.Cert, s.TLS.Key = kafka.SSL, string(cert), string(key)
	case kafkatest.ListenerPlainTLS:
		s.SASL.Mechanism = kafka.Plain
	case kafkatest.ListenerSCRAM:
		s.Protocol, s.SASL.Mechanism = kafka.SASLPlaintext, kafka.ScramSHA256
	case kafkatest.ListenerSCRAMTLS:
		s.SASL.Mechanism = kafka.ScramSHA512
	case kafkatest.ListenerOAuthTLS:
		s.SASL = kafka.SASL{Mechanism: kafka.OAuthBearer, TokenEndpoint: issuer.TokenURL(), ClientID: oauthtest.ClientID, ClientSecret: oauthtest.ClientSecret}
	}
	return s
}

func TestSecuredListenersAndSeveralBrokers(t *testing.T) {
	t.Parallel()
	pki, issuer := kafkatest.NewPKI(t), oauthtest.New(t, oauthtest.Options{})
	listeners := []string{
		kafkatest.ListenerTLS, kafkatest.ListenerMTLS, kafkatest.ListenerPlainTLS, kafkatest.ListenerSCRAM, kafkatest.ListenerSCRAMTLS, kafkatest.ListenerOAuthTLS,
	}
	o := kafkatest.SecureOptions(kafkatest.V43, pki, issuer, listeners...)
	o.Nodes = 2
	o.Props = map[string]string{"connections.max.reauth.ms": "40000"}
	c := kafkatest.Start(t, o)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, c, topic, 1, keep(nil))
	kafkatest.Fill(t, c, topic, kafkatest.FillOptions{Records: 3000, Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}})
	var leaderID int
	for _, listener := range listeners {
		t.Run(listener, func(t *testing.T) {
			s := security(t, listener, pki, issuer)
			name := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, c, name, 1, keep(nil))
			client, err := kafka.NewClient(at(s, c.Bootstraps(listener)...), "wire-metadata", nil)
			require.NoError(t, err)
			defer client.Close()
			from, to := describe(t, client, topic), describe(t, client, name)
			cfg := func(address string) Config {
				return Config{Cluster: at(s, address), Address: address, ClientID: "wire"}
			}
			r := &relay{
				tb: t, from: from, to: to, judge: batch.Target{Codec: batch.ProducerCodec},
				source: dial(t, cfg(from.leaders[0])), target: dial(t, cfg(to.leaders[0])),
			}
			settle(t, r.target, r.to)
			r.run()
			kafkatest.RequireEqual(t, kafkatest.ReadAll(t, c, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, c, name, kafkatest.ReadCommitted))
			if s.UsesSASL() {
				require.WithinRange(t, r.source.Expires(), time.Now(), time.Now().Add(40*time.Second))
				s.SASL.Password, s.SASL.ClientSecret = "hunter2", "hunter2"
				_, err := Dial(t.Context(), Config{Cluster: at(s, from.leaders[0]), Address: from.leaders[0]})
				require.Error(t, err)
				require.NotContains(t, err.Error(), "hunter2")
				require.Equal(t, kafka.AuthFailed, kafka.Classify(err).Code)
			} else {
				require.Zero(t, r.source.Expires())
			}
		})
	}
	t.Run("the wrong broker names the right one", func(t *testing.T) {
		listener := kafkatest.ListenerSCRAM
		s := security(t, listener, pki, issuer)
		client, err := kafka.NewClient(at(s, c.Bootstraps(listener)...), "wire-metadata", nil)
		require.NoError(t, err)
		defer client.Close()
		info := describe(t, client, topic)
		wrong := ""
		for _, a := range c.Bootstraps(listener) {
			if a != info.leaders[0] {
				wrong = a
			}
		}
		conn := dial(t, Config{Cluster: at(s, wrong), Address: wrong, ClientID: "wire"})
		got := fetchInto(t, conn, &FetchRequest{
			MaxBytes: 1 << 20, SessionEpoch: -1, Topics: []FetchTopic{{ID: info.id, Partitions: []FetchPartition{{LeaderEpoch: -1, MaxBytes: 1 << 20}}}},
		})
		f := <-got
		require.NoError(t, f.err)
		p := f.fetched.Partitions[0]
		require.Equal(t, kerr.NotLeaderForPartition.Code, p.ErrorCode)
		require.Equal(t, info.epochs[0], p.Leader.Epoch)
		require.Len(t, f.fetched.Nodes, 1)
		leaderID = int(p.Leader.Node)
		require.Equal(t, info.leaders[0], fmt.Sprintf("%s:%d", f.fetched.Nodes[0].Host, f.fetched.Nodes[0].Port))
		f.fetched.Release()

		b := sampleBatch(t)
		produced := make(chan error, 1)
		require.NoError(t, conn.Produce(&ProduceRequest{Timeout: time.Second, Topics: []ProduceTopic{{ID: info.id, Partitions: []ProducePartition{{Records: b}}}}}, func(r *ProduceResponse, err error) {
			switch {
			case err != nil:
			case r.Partitions[0].ErrorCode != kerr.NotLeaderForPartition.Code || int(r.Partitions[0].Leader.Node) != leaderID:
				err = fmt.Errorf("%+v", r.Partitions[0])
			case len(r.Nodes) != 1 || fmt.Sprintf("%s:%d", r.Nodes[0].Host, r.Nodes[0].Port) != info.leaders[0]:
				err = fmt.Errorf("%+v", r.Nodes)
			}
			produced <- err
		}))
		require.NoError(t, <-produced)
	})
	t.Run("a broker that is killed", func(t *testing.T) {
		var victim string
		for _, n := range c.Nodes() {
			if n.ID() != leaderID {
				continue
			}
			victim = n.Addr(kafkatest.ListenerSCRAM)
			conn := dial(t, Config{Cluster: at(security(t, kafkatest.ListenerSCRAM, pki, issuer), victim), Address: victim, ClientID: "wire"})
			got := fetchInto(t, conn, &FetchRequest{
				MaxWait: time.Minute, MinBytes: 1 << 30, MaxBytes: 1 << 30, SessionEpoch: -1,
				Topics: []FetchTopic{{ID: describe(t, kafkatest.Client(t, c), topic).id, Partitions: []FetchPartition{{LeaderEpoch: -1, Offset: 3000, MaxBytes: 1}}}},
			})
			require.NoError(t, n.Kill())
			f := <-got
			var lost *LostError
			require.ErrorAs(t, f.err, &lost)
			require.True(t, lost.Sent)
			wait.For(t, 10*time.Second, "refused connections", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				again, err := Dial(ctx, Config{Cluster: at(security(t, kafkatest.ListenerSCRAM, pki, issuer), victim), Address: victim})
				if err == nil {
					again.Close()
					<-again.Done()
					return errors.New("it answers still")
				}
				return nil
			})
		}
		require.NotEmpty(t, victim)
	})
}

// sampleBatch is a batch of one record.
func sampleBatch(t *testing.T) batch.Batch {
	t.Helper()
	w := batch.NewBuilder(nil)
	w.Reset(batch.Options{})
	require.NoError(t, w.AddRecord(0, time.Now().UnixMilli(), batch.AppendBody(nil, nil, []byte("v")), 0))
	_, built, err := w.Build(nil)
	require.NoError(t, err)
	return built[0].Batch
}

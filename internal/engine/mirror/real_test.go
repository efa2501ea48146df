package mirror

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

type kadmOffset = kadm.ListedOffset

// copyAll makes the copy's topic, mirrors everything and compares.
func copyAll(t *testing.T, on way, topic string, partitions int32, isolation kafkatest.Isolation, configs map[string]string) {
	t.Helper()
	source, target, b := shared(t, on, func(c *Config) { c.ReadUncommitted = isolation == kafkatest.ReadUncommitted })
	kafkatest.CreateTopic(t, target, remote(topic), partitions, configs)
	b.assign(topic, partitions, 0)
	b.until(source, topic)
	want := kafkatest.ReadAll(t, source, topic, isolation)
	got := kafkatest.ReadAll(t, target, remote(topic), isolation)
	kafkatest.RequireEqual(t, want, got)
	b.requireSpans(want, got, topic)
}

func TestB09_B10_B11_RecordsOfAllKindsArriveEqual(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		for name, codec := range map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				source := kafkatest.Shared(t, kafkatest.V39)
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 3, map[string]string{"retention.ms": "-1"})
				kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 6000, Partitions: 3, Opts: []kgo.Opt{kgo.ProducerBatchCompression(codec)}})
				copyAll(t, on, topic, 3, kafkatest.ReadCommitted, map[string]string{"retention.ms": "-1"})
			})
		}
	})
}

func TestB13_AbortedRecordsAreLeftOutUnlessAskedForAndMarkersArePassed(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		for name, isolation := range map[string]kafkatest.Isolation{"committed": kafkatest.ReadCommitted, "uncommitted": kafkatest.ReadUncommitted} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				source := kafkatest.Shared(t, kafkatest.V39)
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 2, map[string]string{"retention.ms": "-1"})
				next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 50, Partitions: 2})
				// Every third transaction is aborted, the last one too: the log ends with aborted records and a marker.
				kafkatest.FillTransactions(t, source, topic, kafkatest.FillOptions{Records: 300, Partitions: 2, FirstID: next}, 10, 3)
				copyAll(t, on, topic, 2, isolation, map[string]string{"retention.ms": "-1"})
			})
		}
	})
}

func TestCompactedTopicArrivesWithItsHoles(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source := kafkatest.Shared(t, kafkatest.V39)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 2, kafkatest.CompactedConfigs())
		kafkatest.FillCompacted(t, source, topic, kafkatest.FillOptions{Records: 400, Partitions: 2}, 20)
		_, target, b := shared(t, on, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 2, nil)
		b.assign(topic, 2, 0)
		b.until(source, topic)
		got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)
		// The cleaner goes on meanwhile: what is on the source now must be on the target, in order.
		for p, records := range kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted) {
			at := map[int64]int64{}
			for _, s := range b.seen.spans[TP{topic, p}] {
				for i := range s.Count {
					at[s.Source+i] = s.Target + i
				}
			}
			for _, r := range records {
				where, ok := at[r.Offset]
				require.True(t, ok, "source offset %d of partition %d", r.Offset, p)
				require.Equal(t, r.Value, got[p][where].Value)
			}
			require.Len(t, at, len(got[p]))
		}
	})
}

func TestB14_OpenTransactionHoldsThePartitionAndIsSeen(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		tp := TP{topic, 0}
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
		next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 5, Plain: true})
		end := kafkatest.OpenTransaction(t, source, topic, &kgo.Record{Topic: topic, Value: []byte("open")})
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true, FirstID: next})
		b.assign(topic, 1, 0)
		wait.For(t, 20*time.Second, "the ends that tell of an open transaction", func() error {
			b.seen.mu.Lock()
			defer b.seen.mu.Unlock()
			if e := b.seen.ends[tp]; e.LastStable != 5 || e.HighWatermark != 106 || b.seen.passed[tp] != 5 {
				return fmt.Errorf("%+v, passed %d", e, b.seen.passed[tp])
			}
			return nil
		})
		end(false)
		b.until(source, topic)
		kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted),
			kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
	})
}

func TestB05_TimestampsAreKept(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		for name, configs := range map[string]map[string]string{
			"create":    {"retention.ms": "-1"},
			"appending": {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"},
		} {
			topic := kafkatest.UniqueName(t) + name
			kafkatest.CreateTopic(t, source, topic, 1, configs)
			kafkatest.CreateTopic(t, target, remote(topic), 1, map[string]string{
				"retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807", "message.timestamp.before.max.ms": "9223372036854775807",
			})
			var rs []*kgo.Record
			for _, at := range []time.Time{time.UnixMilli(981173106789), time.Now(), time.Now().Add(time.Hour), time.UnixMilli(-1), time.UnixMilli(0), time.UnixMilli(1), time.UnixMilli(1_700_000_000_000_000)} {
				rs = append(rs, &kgo.Record{Topic: topic, Value: []byte(at.String()), Timestamp: at})
			}
			kafkatest.Produce(t, source, topic, rs...)
			b.assign(topic, 1, 0)
			b.until(source, topic)
			want := kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted)
			require.Equal(t, name == "appending", want[0][0].LogAppendTime)
			kafkatest.RequireEqual(t, want, kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
		}
	})
}

func TestB01_B04_RecordTooLargeStopsItsPartitionOnlyUntilTheLimitIsRaised(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		big, small := kafkatest.UniqueName(t)+"-big", kafkatest.UniqueName(t)+"-small"
		kafkatest.CreateTopic(t, source, big, 1, map[string]string{"max.message.bytes": "4194304"})
		kafkatest.CreateTopic(t, source, small, 1, nil)
		kafkatest.CreateTopic(t, target, remote(big), 1, nil)
		kafkatest.CreateTopic(t, target, remote(small), 1, nil)
		opts := []kgo.Opt{kgo.ProducerBatchMaxBytes(4 << 20), kgo.ProducerBatchCompression(kgo.NoCompression())}
		next := kafkatest.Fill(t, source, big, kafkatest.FillOptions{Records: 100, Plain: true, Opts: opts})
		next = kafkatest.Fill(t, source, big, kafkatest.FillOptions{Records: 1, Plain: true, FirstID: next, ValueBytes: 900_000, Opts: opts})
		next = kafkatest.Fill(t, source, big, kafkatest.FillOptions{Records: 1, Plain: true, FirstID: next, ValueBytes: 3_500_000, Opts: opts})
		kafkatest.Fill(t, source, big, kafkatest.FillOptions{Records: 100, Plain: true, FirstID: next, Opts: opts})
		b.assign(big, 1, 0)
		b.assign(small, 1, 0)
		tp := TP{big, 0}
		stop := b.untilStopped(tp, StopTooLarge)
		require.EqualValues(t, 101, stop.Offset)
		require.True(t, stop.Retry)
		require.Equal(t, "max.message.bytes=1048588", stop.Evidence["limit"])
		require.Greater(t, stop.Evidence["batch_bytes"], 3_500_000)
		require.EqualValues(t, 101, b.seen.position(tp))

		kafkatest.Fill(t, source, small, kafkatest.FillOptions{Records: 1000, Plain: true})
		b.until(source, small)
		before := b.seen.stopCount(tp)
		wait.For(t, 20*time.Second, "two more tries", func() error {
			if n := b.seen.stopCount(tp); n < before+2 {
				return fmt.Errorf("%d", n-before)
			}
			return nil
		})
		require.EqualValues(t, 101, logEnds(t, target, remote(big))[0], "no duplicates while it tries again")

		value := "4194304"
		_, err := kafkatest.Admin(t, target).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, remote(big))
		require.NoError(t, err)
		b.until(source, big)
		require.Nil(t, b.seen.stopped(tp), "resumed")
		want := kafkatest.ReadAll(t, source, big, kafkatest.ReadCommitted)
		got := kafkatest.ReadAll(t, target, remote(big), kafkatest.ReadCommitted)
		kafkatest.RequireEqual(t, want, got)
		b.requireSpans(want, got, big)
	})
}

func TestB02_HighlyCompressibleRecordIsMirrored(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source := kafkatest.Shared(t, kafkatest.V39)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 3, Plain: true})
		client := kafkatest.Client(t, source, kgo.ProducerBatchMaxBytes(64<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxBufferedBytes(0))
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 20<<20)}).FirstErr())
		copyAll(t, on, topic, 1, kafkatest.ReadCommitted, nil)
	})
}

func TestB06_RecordOutsideTheTargetsTimeWindowStopsThePartitionWithTheReason(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, map[string]string{"retention.ms": "-1"})
		kafkatest.CreateTopic(t, target, remote(topic), 1, map[string]string{"retention.ms": "-1", "message.timestamp.before.max.ms": "86400000"})
		now := time.Now()
		kafkatest.Produce(t, source, topic, &kgo.Record{Topic: topic, Timestamp: now}, &kgo.Record{Topic: topic, Timestamp: now},
			&kgo.Record{Topic: topic, Timestamp: now.Add(-72 * time.Hour)}, &kgo.Record{Topic: topic, Timestamp: now})
		b.assign(topic, 1, 0)
		stop := b.untilStopped(TP{topic, 0}, StopRefused)
		require.EqualValues(t, 2, stop.Offset)
		require.EqualValues(t, 2, logEnds(t, target, remote(topic))[0], "the good records before it are there once")
		require.Contains(t, stop.Message, "message.timestamp.before.max.ms=", "the setting is named")
	})
}

func TestB20_OffsetThatTheSourceDoesNotHaveStopsThePartition(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
		tp := TP{topic, 0}
		b.assign(topic, 1, 1100)
		stop := b.untilStopped(tp, StopOutOfRange)
		require.EqualValues(t, 1100, stop.Offset)
		require.False(t, stop.Retry)
		require.EqualValues(t, 0, stop.Evidence["log_start"])
		require.EqualValues(t, 100, stop.Evidence["log_end"])

		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 30, -1)
		_, err := kafkatest.Admin(t, source).DeleteRecords(t.Context(), offsets)
		require.NoError(t, err)
		b.assign(topic, 1, 10)
		wait.For(t, 20*time.Second, "second stop", func() error {
			if s := b.seen.stopped(tp); s == nil || s.Offset != 10 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		require.EqualValues(t, 30, b.seen.stopped(tp).Evidence["log_start"])
		require.Zero(t, logEnds(t, target, remote(topic))[0])
		b.assign(topic, 1, 30)
		b.until(source, topic)
		require.EqualValues(t, 70, logEnds(t, target, remote(topic))[0])
	})
}

func TestB18_B19_SourceTopicMadeAnewStopsAndGoesOnAfterAssign(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		tp := TP{topic, 0}
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
		next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
		b.assign(topic, 1, 0)
		b.until(source, topic)
		remake(t, source, topic, 1)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 50, Plain: true, FirstID: next})
		stop := b.untilStopped(tp, StopRecreated)
		require.False(t, stop.Retry)
		require.NotEqual(t, stop.Evidence["old_topic_id"], stop.Evidence["new_topic_id"])
		require.EqualValues(t, 100, logEnds(t, target, remote(topic))[0])
		b.seen.forget(tp)
		b.assign(topic, 1, 0)
		b.until(source, topic)
		require.EqualValues(t, 150, logEnds(t, target, remote(topic))[0])
	})
}

// remake deletes and creates a topic.
func remake(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32) {
	t.Helper()
	_, err := kafkatest.Admin(t, c).DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	wait.For(t, 20*time.Second, "the topic to be gone", func() error {
		details, err := kafkatest.Admin(t, c).ListTopics(t.Context(), topic)
		if err == nil && details.Has(topic) {
			err = errors.New("still there")
		}
		return err
	})
	kafkatest.CreateTopic(t, c, topic, partitions, nil)
}

func TestB25_B43_TargetTopicMadeAnewStopsAndWorksAfterAssign(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		tp := TP{topic, 0}
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
		next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
		b.assign(topic, 1, 0)
		b.until(source, topic)
		remake(t, target, remote(topic), 1)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10, Plain: true, FirstID: next})
		stop := b.untilStopped(tp, StopTargetMissing)
		require.Equal(t, true, stop.Evidence["recreated"])
		require.EqualValues(t, 100, b.seen.position(tp))
		b.assign(topic, 1, 100)
		b.until(source, topic)
		require.EqualValues(t, 10, logEnds(t, target, remote(topic))[0])
	})
}

func TestB23_MissingTargetPartitionStopsAloneAndWorksOnceItIsThere(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, func(c *Config) { c.MissingGrace = time.Second })
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 3, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 2, nil)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 300, Partitions: 3, Plain: true})
		b.assign(topic, 3, 0)
		stop := b.untilStopped(TP{topic, 2}, StopTargetMissing)
		require.False(t, stop.Retry)
		require.Contains(t, stop.Message, "partition 2")
		wait.For(t, 20*time.Second, "the others", func() error {
			if a, c := b.seen.position(TP{topic, 0}), b.seen.position(TP{topic, 1}); a != 100 || c != 100 {
				return fmt.Errorf("%d, %d", a, c)
			}
			return nil
		})
		kafkatest.GrowTopic(t, target, remote(topic), 3)
		b.path.Assign([]Assignment{{Source: TP{topic, 2}, Target: TP{remote(topic), 2}}})
		b.until(source, topic)
		kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
	})
}

func TestFirstRecordOfANewTopicArrivesWithinASecondOfItsCreation(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 1, nil)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1, Plain: true})
		b.assign(topic, 1, 0) // before the copy's topic exists
		began := time.Now()
		_, err := kafkatest.Admin(t, target).CreateTopic(t.Context(), 1, 1, nil, remote(topic))
		require.NoError(t, err)
		b.until(source, topic)
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

func TestDrainThenRestartMakesNoDuplicates(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, b := shared(t, on, nil)
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 2, nil)
		kafkatest.CreateTopic(t, target, remote(topic), 2, nil)
		next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 40_000, Partitions: 2, Plain: true})
		starts := map[int32]int64{}
		for round := range 4 {
			if round > 0 {
				_, _, b = shared(t, on, nil)
			}
			for p := range int32(2) {
				b.path.Assign([]Assignment{{Source: TP{topic, p}, Target: TP{remote(topic), p}, Start: starts[p]}})
			}
			if round == 3 {
				break
			}
			wait.For(t, 20*time.Second, "some progress", func() error {
				if b.seen.position(TP{topic, 0}) <= starts[0] {
					return errors.New("none")
				}
				return nil
			})
			require.NoError(t, b.path.Drain(t.Context()))
			require.Zero(t, b.path.InFlight())
			for p := range int32(2) {
				starts[p] = max(starts[p], b.seen.position(TP{topic, p}))
			}
			b.end()
			next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2, Plain: true, FirstID: next})
		}
		b.until(source, topic)
		kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted))
	})
}

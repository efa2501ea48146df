package engine

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func idOf(r kafkatest.Record) uint64 {
	for _, h := range r.Headers {
		if h.Key == kafkatest.IDHeader {
			return binary.BigEndian.Uint64(h.Value)
		}
	}
	return 0
}

// idsFrom are the ids of a partition's committed records from an offset on.
func idsFrom(t *testing.T, c *kafkatest.Cluster, topic string, offset int64) []uint64 {
	t.Helper()
	var out []uint64
	for _, r := range kafkatest.ReadAll(t, c, topic, kafkatest.ReadCommitted)[0] {
		if r.Offset >= offset {
			out = append(out, idOf(r))
		}
	}
	return out
}

func TestI4_AGroupGoesOnAtItsNextRecordOnTheTarget(t *testing.T) {
	t.Parallel()
	s, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	kinds := map[string]func(topic string){
		"plain": func(topic string) {
			kafkatest.CreateTopic(t, s, topic, 1, nil)
			kafkatest.Fill(t, s, topic, kafkatest.FillOptions{Records: 1000, FirstID: 1})
		},
		"tx": func(topic string) {
			kafkatest.CreateTopic(t, s, topic, 1, nil)
			kafkatest.FillTransactions(t, s, topic, kafkatest.FillOptions{Records: 600, FirstID: 1}, 7, 3)
		},
		"compacted": func(topic string) {
			kafkatest.CreateTopic(t, s, topic, 1, kafkatest.CompactedConfigs())
			kafkatest.FillCompacted(t, s, topic, kafkatest.FillOptions{Records: 600, FirstID: 1}, 20)
		},
	}
	for kind, fill := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := real(t, "i4"+kind)
			topic := w.topic("t")
			fill(topic)
			var end kadm.ListedOffset
			eventually(t, "the end of the last transaction is written, which its commit does not wait for", func() bool {
				ends, err := w.srcAdm.ListEndOffsets(w.ctx(), topic)
				require.NoError(t, err)
				stable, err := w.srcAdm.ListCommittedOffsets(w.ctx(), topic)
				require.NoError(t, err)
				end, _ = ends.Lookup(topic, 0)
				last, _ := stable.Lookup(topic, 0)
				return end.Offset == last.Offset
			})
			commits := map[string]int64{}
			for i := range int64(24) {
				commits[w.name+"-g"+string(rune('a'+i))] = i * end.Offset / 23
			}
			for g, o := range commits {
				kafkatest.Commit(t, s, g, topic, map[int32]int64{0: o})
			}
			cfg := settings(w.name, w.src, w.tgt, topic)
			cfg.Groups, cfg.GroupExcludeList = []string{w.name + "-.*"}, nil
			cfg.SyncGroupOffsets = true
			// The copy must not be cleaned while it is looked at.
			cfg.ConfigPropertiesExclude = []string{`segment\.ms`, `min\.cleanable.*`, `cleanup\.policy`}
			f := run(t, cfg)
			f.untilPosition(topic, end.Offset)
			st := f.until("every group is translated", func(st report.Status) bool {
				n := 0
				for _, g := range st.Groups {
					for _, o := range g.Offsets {
						if o.TargetOffset >= 0 {
							n++
						}
					}
				}
				return n == len(commits)
			})
			for _, g := range st.Groups {
				require.Truef(t, g.Offsets[0].Exact, "%+v", g)
			}
			eventually(t, "every group is committed on the target", func() bool {
				for g := range commits {
					// The coordinator may be on its way still.
					offsets, err := w.tgtAdm.FetchOffsets(w.ctx(), g)
					if _, ok := offsets.Lookup(w.remote(topic), 0); err != nil || !ok {
						return false
					}
				}
				return true
			})
			f.drain() // commits once more, by the final positions
			for g, o := range commits {
				at := kafkatest.Committed(t, target, g, w.remote(topic))[0]
				got := idsFrom(t, target, w.remote(topic), at)
				left := idsFrom(t, s, topic, o)
				if kind != "compacted" {
					require.Equalf(t, left, got, "group %s at %d on the source, %d on the target", g, o, at)
					continue
				}
				for _, id := range left {
					require.Containsf(t, got, id, "group %s skips a record", g)
				}
				for _, r := range kafkatest.ReadAll(t, s, topic, kafkatest.ReadCommitted)[0] {
					if r.Offset < o {
						require.NotContainsf(t, got, idOf(r), "group %s reads a record again", g)
					}
				}
			}
		})
	}
}

func TestB14_AnOpenTransactionIsNamedAndEverythingArrivesAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := real(t, "b14")
	s := kafkatest.Shared(t, kafkatest.V39)
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	end := kafkatest.OpenTransaction(t, s, topic, &kgo.Record{Value: []byte("open")})
	w.produce(w.srcCl, topic, 0, 10, 100)
	f := run(t, settings(w.name, w.src, w.tgt, topic))
	c := f.untilCondition(report.OpenTransaction)
	require.Contains(t, c.Message, "offset 10")
	require.EqualValues(t, 10, c.Evidence["last_stable_offset"])
	require.EqualValues(t, 111, c.Evidence["high_watermark"])
	st := f.sink.status()
	require.Equal(t, report.Running, st.State)
	require.EqualValues(t, 101, st.Topics[0].Partitions[0].Lag)
	end(false)
	f.untilPosition(topic, 112)
	require.Equal(t, want(0, 0, 110), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	f.until("the condition goes", func(st report.Status) bool { return condition(st, report.OpenTransaction) == nil })
}

func TestB36_SwitchedOffHeartbeatsAreNeitherWrittenNorMirrored(t *testing.T) {
	t.Parallel()
	w := real(t, "b36")
	topic := w.topic("dev")
	w.create(w.srcAdm, topic, 1, nil)
	cfg := settings(w.name, w.src, w.tgt, topic, "heartbeats")
	cfg.EmitHeartbeats = false
	f := run(t, cfg)
	f.untilState(report.Running)
	f.drain()
	ts, err := w.tgtAdm.ListTopics(context.Background())
	require.NoError(t, err)
	require.False(t, slices.Contains(ts.Names(), w.remote("heartbeats")))
}

func TestB102_ATargetThatIsAwayForAWhileIsSaidAndNothingIsMissingAfterwards(t *testing.T) {
	t.Parallel()
	w := real(t, "b102")
	mine := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V43})
	w.tgt = mine.Bootstrap()
	w.clients()
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 1000)
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilPosition(topic, 1000)
	eventually(t, "the side topics are made", func() bool {
		ts, err := w.tgtAdm.ListTopics(w.ctx(), cfg.SourceAlias+".checkpoints.internal", f.task.policy.OffsetSyncsTopic(cfg.SourceAlias),
			mm2.StateTopic(cfg.SourceAlias), mm2.ConnectOffsetsTopic(cfg.SourceAlias))
		if err != nil || ts.Error() != nil {
			return false
		}
		syncs, err := w.tgtAdm.ListEndOffsets(w.ctx(), f.task.policy.OffsetSyncsTopic(cfg.SourceAlias))
		o, _ := syncs.Lookup(f.task.policy.OffsetSyncsTopic(cfg.SourceAlias), 0)
		return err == nil && o.Offset > 0 && len(f.sink.status().Conditions) == 0
	})
	mine.Stop(t)
	began := time.Now()
	w.produce(w.srcCl, topic, 0, 1000, 1000)
	c := f.untilCondition("TARGET_UNREACHABLE")
	require.Less(t, time.Since(began), 12*time.Second)
	require.Equal(t, w.tgt, c.Evidence["address"])
	st := f.untilState(report.Failed)
	require.NotEmpty(t, c.Remedy)
	f.until("lag is fresh while the target is away", func(st report.Status) bool { return st.Topics[0].Partitions[0].Lag == 1000 })
	require.Len(t, st.Conditions, 1, "%v", st.Conditions)
	mine.Restart(t)
	f.untilPosition(topic, 2000)
	f.untilState(report.Running)
	require.Equal(t, want(0, 0, 2000), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
}

func TestASideThatIsNotThereIsSaidWithStepAndAddressAndTheFlowStartsWhenItComes(t *testing.T) {
	t.Parallel()
	w := real(t, "away")
	cfg := settings(w.name, w.src, w.tgt, w.topic("t"))
	cfg.Source = cluster("127.0.0.1:1")
	f := run(t, cfg)
	began := time.Now()
	c := f.untilCondition("SOURCE_UNREACHABLE")
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, "127.0.0.1:1", c.Evidence["address"])
	require.Equal(t, "connect", c.Evidence["step"])
	f.untilState(report.Failed)
	f.drain()
}

package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func (w *world) deleteBefore(topic string, partition int32, offset int64) {
	w.tb.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	rs, err := w.srcAdm.DeleteRecords(w.ctx(), os)
	require.NoError(w.tb, err)
	require.NoError(w.tb, rs.Error())
}

func (w *world) deleteTopic(adm *kadm.Client, topic string) {
	w.tb.Helper()
	rs, err := adm.DeleteTopics(w.ctx(), topic)
	require.NoError(w.tb, err)
	require.NoError(w.tb, rs[topic].Err)
	eventually(w.tb, topic+" is gone", func() bool {
		ts, err := adm.ListTopics(w.ctx(), topic)
		return err == nil && !ts.Has(topic)
	})
}

// recreate deletes a topic and makes it again.
func (w *world) recreate(adm *kadm.Client, topic string, partitions int32) {
	w.tb.Helper()
	w.deleteTopic(adm, topic)
	eventually(w.tb, topic+" is made again", func() bool {
		r, err := adm.CreateTopic(w.ctx(), partitions, 1, nil, topic)
		return err == nil && r.Err == nil
	})
}

func TestB17_RecordsThatRetentionTookBeforeTheyWereMirroredAreAnEvent(t *testing.T) {
	t.Parallel()
	w := real(t, "b17")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 100)
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilPosition(topic, 100)
	f.drain()

	w.produce(w.srcCl, topic, 0, 100, 400)
	w.deleteBefore(topic, 0, 300)
	f = run(t, cfg)
	f.untilPosition(topic, 500)
	require.Equal(t, append(want(0, 0, 100), want(0, 300, 200)...), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	events := f.sink.eventsOf(report.OffsetsLost)
	require.Len(t, events, 1)
	require.Equal(t, topic, events[0].Subject.Topic)
	require.EqualValues(t, 0, events[0].Subject.Partition)
	require.EqualValues(t, 100, events[0].Evidence["first_missing"])
	require.EqualValues(t, 299, events[0].Evidence["last_missing"])
	require.EqualValues(t, 200, events[0].Evidence["count"])
	require.NotNil(t, condition(f.sink.status(), report.OffsetsLost), "the condition stays until it was seen")
	f.drain()
	f = run(t, cfg)
	f.untilState(report.Running)
	require.Empty(t, f.sink.eventsOf(report.OffsetsLost), "it is told once")
}

func TestB18_ASourceTopicMadeAnewIsCopiedFromItsBeginning(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		name := map[bool]string{false: "running", true: "stopped"}[stopped]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := real(t, "b18"+name)
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 1, nil)
			w.produce(w.srcCl, topic, 0, 0, 100)
			cfg := settings(w.name, w.src, w.tgt, topic)
			f := run(t, cfg)
			f.untilPosition(topic, 100)
			if stopped {
				f.drain()
			}
			w.recreate(w.srcAdm, topic, 1)
			w.produce(w.srcCl, topic, 0, 1000, 50)
			w.produce(w.srcCl, topic, 0, 1050, 200)
			if stopped {
				f = run(t, cfg)
			}
			f.untilPosition(topic, 250)
			require.Equal(t, append(want(0, 0, 100), want(0, 1000, 250)...), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
			if !stopped && len(f.sink.eventsOf(report.TopicRecreated)) == 0 {
				// A refresh between the two saw the topic gone; then the new one came as a new topic, told by the event of its end.
				require.NotEmpty(t, f.sink.eventsOf(report.SourceTopicGone))
			}
			if stopped {
				require.Len(t, f.sink.eventsOf(report.TopicRecreated), 1)
			}
			tr, ok := f.task.translate(topic, 0, 10)
			require.True(t, ok)
			require.True(t, tr.OK && tr.Exact)
			require.EqualValues(t, 110, tr.Offset, "the map of the old topic is dropped")
		})
	}
}

func TestB20_APositionBehindTheEndOfTheSourceIsATruncationAndNothingIsCopiedTwice(t *testing.T) {
	t.Parallel()
	w := real(t, "b20")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 100)
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilPosition(topic, 100)
	f.drain()
	// As if the source had held 1,000 more and lost them.
	store, err := ownStore(f.task)
	require.NoError(t, err)
	entries, err := store.Load(w.ctx())
	require.NoError(t, err)
	for k, e := range entries {
		e.Position = 1100
		require.NoError(t, e.Map.AddRun(100, 100, 1000))
		e.TargetNext = 100
		entries[k] = e
	}
	require.NoError(t, store.Save(w.ctx(), entries))
	store.Close()
	f = run(t, cfg)
	f.untilCondition(report.SourceTruncated)
	w.produce(w.srcCl, topic, 0, 100, 20)
	f.untilPosition(topic, 120)
	require.Equal(t, want(0, 0, 120), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	events := f.sink.eventsOf(report.SourceTruncated)
	require.Len(t, events, 1)
	require.EqualValues(t, 1100, events[0].Evidence["position"])
}

func TestB43_ARemoteTopicDeletedByHandIsMadeAgainAndCopyingGoesOn(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		name := map[bool]string{false: "running", true: "stopped"}[stopped]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := real(t, "b43"+name)
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 2, map[string]string{"retention.ms": "400000000"})
			w.produce(w.srcCl, topic, 0, 0, 50)
			w.produce(w.srcCl, topic, 1, 0, 50)
			cfg := settings(w.name, w.src, w.tgt, topic)
			f := run(t, cfg)
			f.untilPosition(topic, 100)
			if stopped {
				f.drain()
			}
			w.deleteTopic(w.tgtAdm, w.remote(topic))
			if stopped {
				f = run(t, cfg)
			}
			c := f.untilCondition(report.TargetDataLost)
			require.EqualValues(t, 50, c.Evidence["starts_at"])
			w.produce(w.srcCl, topic, 0, 50, 10)
			f.untilPosition(topic, 110)
			require.Equal(t, want(0, 50, 10), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
			v, override := configOf(t, w.tgtAdm, w.remote(topic), "retention.ms")
			require.True(t, override)
			require.Equal(t, "400000000", v)
			require.Len(t, f.sink.eventsOf(report.TargetDataLost), 2, "one for each partition")
			st := f.untilState(report.Running)
			require.Nil(t, condition(st, report.TargetTopicMissing))
		})
	}
}

func TestB53_ATopicMadeAfterAFlowThatStartsAtLatestIsCopiedFromItsFirstRecord(t *testing.T) {
	t.Parallel()
	w := real(t, "b53")
	old, later, last := w.topic("old"), w.topic("later"), w.topic("last")
	w.create(w.srcAdm, old, 1, nil)
	w.produce(w.srcCl, old, 0, 0, 30)
	cfg := settings(w.name, w.src, w.tgt, w.topic(".*"))
	cfg.StartPosition = StartLatest
	f := run(t, cfg)
	f.untilState(report.Running)
	w.create(w.srcAdm, later, 1, nil)
	w.produce(w.srcCl, later, 0, 0, 50)
	f.untilPosition(later, 50)
	f.drain()
	// Made while the flow is stopped: it came later all the same.
	w.create(w.srcAdm, last, 1, nil)
	w.produce(w.srcCl, last, 0, 0, 50)
	w.produce(w.srcCl, old, 0, 30, 5)
	f = run(t, cfg)
	f.untilPosition(last, 50)
	f.untilPosition(old, 35)
	require.Equal(t, want(0, 0, 50), w.read(w.tgtAdm, w.tgt, w.remote(later), 0))
	require.Equal(t, want(0, 0, 50), w.read(w.tgtAdm, w.tgt, w.remote(last), 0))
	require.Equal(t, want(0, 30, 5), w.read(w.tgtAdm, w.tgt, w.remote(old), 0))
}

func TestB53_AStartTimePastTheEndMeansTheEnd(t *testing.T) {
	t.Parallel()
	w := real(t, "b53t")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 100)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.StartPosition, cfg.StartTimestamp = StartTimestamp, time.Now().Add(24*time.Hour)
	f := run(t, cfg)
	f.untilState(report.Running)
	w.produce(w.srcCl, topic, 0, 100, 3)
	f.untilPosition(topic, 103)
	require.Equal(t, want(0, 100, 3), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
}

func TestB91_CleanStopsNeverCopyTwiceWhoeverGoesOn(t *testing.T) {
	t.Parallel()
	w := real(t, "b91")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 2, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	n := 0
	for i := range 4 {
		cfg.Identity.Worker = "w" + string(rune('a'+i))
		cfg.Identity.LeaseEpoch++
		f := run(t, cfg)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.produce(w.srcCl, topic, 0, n, 500)
			w.produce(w.srcCl, topic, 1, n, 500)
		}()
		f.untilState(report.Running)
		f.drain() // in the middle of the copy
		<-done
		n += 500
	}
	cfg.Identity.LeaseEpoch++
	f := run(t, cfg)
	f.untilPosition(topic, int64(2*n))
	for p := range int32(2) {
		require.Equal(t, want(p, 0, n), w.read(w.tgtAdm, w.tgt, w.remote(topic), p))
	}
}

func TestALostLeaseStoresNothing(t *testing.T) {
	t.Parallel()
	w := real(t, "lost")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilState(report.Running)
	w.produce(w.srcCl, topic, 0, 0, 10)
	f.until("records were copied", func(report.Status) bool {
		p := f.task.parts.all()[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.position == 10
	})
	f.kill()
	f = run(t, cfg)
	w.produce(w.srcCl, topic, 0, 10, 1)
	f.untilPosition(topic, 11)
	got := w.read(w.tgtAdm, w.tgt, w.remote(topic), 0)
	require.Equal(t, want(0, 10, 1), got[len(got)-1:])
	require.LessOrEqual(t, len(got), 21, "at most what was not stored yet comes twice")
}

func TestASourceTopicThatIsDeletedStopsAndItsCopyStays(t *testing.T) {
	t.Parallel()
	w := real(t, "gone")
	topic, other := w.topic("t"), w.topic("other")
	w.create(w.srcAdm, topic, 1, nil)
	w.create(w.srcAdm, other, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	f := run(t, settings(w.name, w.src, w.tgt, w.topic(".*")))
	f.untilPosition(topic, 10)
	w.deleteTopic(w.srcAdm, topic)
	f.until("the topic is not shown any more", func(st report.Status) bool { return len(st.Topics) == 1 && st.State == report.Running })
	eventually(t, "it is told", func() bool { return len(f.sink.eventsOf(report.SourceTopicGone)) == 1 })
	require.Equal(t, want(0, 0, 10), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	require.Empty(t, f.sink.status().Conditions)
}

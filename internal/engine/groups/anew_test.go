package groups

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// topicIDNow is the id of the remote topic on the target.
func (w *world) topicIDNow() [16]byte {
	w.t.Helper()
	there, err := w.to.ListTopics(w.t.Context(), w.remote)
	require.NoError(w.t, err)
	require.True(w.t, there.Has(w.remote))
	require.NotEqual(w.t, [16]byte{}, [16]byte(there[w.remote].ID))
	return there[w.remote].ID
}

// remakeRemote deletes the remote topic and makes it again.
func (w *world) remakeRemote() {
	w.t.Helper()
	old := w.topicIDNow()
	gone, err := w.to.DeleteTopics(w.t.Context(), w.remote)
	require.NoError(w.t, errors.Join(err, gone.Error()))
	wait.For(w.t, 30*time.Second, "the remote topic made again", func() error {
		made, err := w.to.CreateTopic(w.t.Context(), 3, 1, nil, w.remote)
		return errors.Join(err, made.Err)
	})
	wait.For(w.t, 30*time.Second, "the new topic in the metadata", func() error {
		there, err := w.to.ListTopics(w.t.Context(), w.remote)
		if err != nil || !there.Has(w.remote) || there[w.remote].ID == old {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
}

// onTarget changes the broker that stands for the target.
func onTarget(t *testing.T, v kafkaproc.Version) func(*Config) {
	return func(c *Config) {
		c.Target = kafkatest.Client(t, kafkatest.Shared(t, v), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
}

func TestI4ATranslationOfAFormerTopicIsNotCommittedOnTheOneMadeAnew(t *testing.T) {
	t.Parallel()
	for _, v := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, onTarget(t, v))
			w.target = kafkatest.Shared(t, v)
			w.to = kafkatest.Admin(t, w.target)
			if v == kafkatest.V39 {
				kafkatest.CreateTopic(t, w.target, w.remote, 3, nil)
			}
			g := w.group("g")
			w.translator.belong(w.topic, w.topicIDNow())
			w.commit(g, map[int32]int64{0: 50})
			r := w.room()
			require.NoError(t, r.SyncOnce(t.Context()))
			require.Equal(t, map[int32]int64{0: 50}, w.committed(g))

			// The group moves on, the topic begins anew, and nobody has told the translator.
			w.commit(g, map[int32]int64{0: 90})
			w.remakeRemote()
			for range 3 {
				require.NoError(t, r.SyncOnce(t.Context()))
				require.Less(t, w.committed(g)[0], int64(90), "the place in the old topic")
			}

			w.translator.set(w.topic, 0, -50)
			w.translator.belong(w.topic, w.topicIDNow())
			require.True(t, r.syncDue(time.Now().Add(earlyPause+time.Millisecond)), "what was left out does not wait for the interval")
			require.NoError(t, r.SyncOnce(t.Context()))
			require.Equal(t, map[int32]int64{0: 40}, w.committed(g))
		})
	}
}

func TestATranslationWhoseTopicIsGoneIsNotCommitted(t *testing.T) {
	t.Parallel()
	ids := map[string]topicID{"gone": {missing: true}, "old": {}, "same": {id: [16]byte{1}}, "other": {id: [16]byte{2}}}
	known, unknown := want{topicID: [16]byte{1}}, want{}
	for topic, c := range map[string]struct {
		w   want
		due bool
	}{
		"gone": {known, false}, "old": {known, true}, "same": {known, true}, "other": {known, false},
	} {
		tp := targetOf(topic)
		due, stale := current(wants{tp: c.w}, ids)
		require.Equal(t, c.due, len(due) == 1, topic)
		require.Equal(t, !c.due, len(stale) == 1, topic)
	}
	due, _ := current(wants{targetOf("other"): unknown}, ids)
	require.Len(t, due, 1, "an id that is not known decides nothing")
}

func TestB58CheckpointsFollowATopicMadeAnewAndGoBackForNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 90})
	r := w.room()
	at := func(count int, downstream int64) {
		t.Helper()
		require.NoError(t, r.SyncOnce(t.Context()))
		cps := w.checkpoints()
		require.Len(t, cps, count)
		require.Equal(t, downstream, cps[count-1].Downstream)
	}
	at(1, 90)
	w.translator.ack(w.topic, 0, 60)
	at(1, 90) // less is known, which is no reason to go back
	w.translator.ack(w.topic, 0, 100)
	w.translator.set(w.topic, 0, -50) // the target's topic began anew
	at(2, 40)
	at(2, 40)
	r = w.room() // what stands in the topic is of the new life now
	at(2, 40)
	w.translator.set(w.topic, 0, -60)
	at(3, 30)
}

func TestNothingIsWrittenWithoutTheRightTo(t *testing.T) {
	t.Parallel()
	may := false
	w := newWorld(t, func(c *Config) { c.MayWrite = func() bool { return may } })
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 5})
	r := w.room()
	require.ErrorIs(t, r.SyncOnce(t.Context()), errNotAllowed)
	require.Empty(t, w.committed(g))
	require.Empty(t, w.checkpoints())
	require.Empty(t, w.board.List())
	may = true
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 5}, w.committed(g))
	require.Len(t, w.checkpoints(), 1)
}

func targetOf(topic string) mm2.TopicPartition { return mm2.TopicPartition{Topic: topic} }

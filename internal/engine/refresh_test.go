package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// failingStore refuses to be read a few times.
type failingStore struct {
	store
	failures chan error
}

func (s failingStore) Load(ctx context.Context) (map[state.Key]state.Entry, error) {
	select {
	case err := <-s.failures:
		return nil, err
	default:
		return s.store.Load(ctx)
	}
}

func TestAPartitionTakenOverNeverStartsByWhatWasReadTooEarly(t *testing.T) {
	t.Parallel()
	w := real(t, "stale")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 5)
	book := &owners{m: map[string]string{}}
	a := settings(w.name, w.src, w.tgt, topic)
	a.Identity.FlowID, a.Owners = "a", ownersOf{book, "a"}
	fa := run(t, a)
	fa.untilPosition(topic, 5)
	b := a
	b.Identity.FlowID, b.Owners = "b", ownersOf{book, "b"}
	b.Sink = newSink()
	failures := make(chan error, 3)
	kinds := defaultRooms()
	kinds.store = func(t *Task) (store, error) {
		s, err := openStore(t)
		return failingStore{s, failures}, err
	}
	fb := runTask(t, b, kinds)
	fb.untilCondition(report.TopicOwnedByOther)
	w.produce(w.srcCl, topic, 0, 5, 5)
	fa.untilPosition(topic, 10)
	fa.drain()
	for range cap(failures) {
		failures <- errors.New("the state cannot be read now")
	}
	require.NoError(t, a.Owners.Release(w.ctx(), fa.task.targetID, []string{w.remote(topic)}))
	fb.untilPosition(topic, 10)
	w.produce(w.srcCl, topic, 0, 10, 5)
	fb.untilPosition(topic, 15)
	require.Empty(t, failures)
	require.Equal(t, want(0, 0, 15), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
}

func TestARemoteTopicThatTheTargetShowsLateIsNotWaitedForAWholeInterval(t *testing.T) {
	t.Parallel()
	w := fakes(t, "late")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 8, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.Identity.Tasks, cfg.Identity.Task = 2, 1 // the other task makes the topic
	cfg.RefreshTopicsInterval = time.Hour
	f := run(t, cfg)
	f.until("it waits", func(st report.Status) bool {
		return len(st.Topics) == 1 && st.Topics[0].Partitions[0].State == partWaiting
	})
	w.create(w.tgtAdm, w.remote(topic), 8, nil)
	f.untilState(report.Running)
	f.kill()
}

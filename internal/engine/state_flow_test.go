package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

func TestTheStateTopicDeletedUnderARunningFlowCostsNothing(t *testing.T) {
	for name, remake := range map[string]bool{"deleted": false, "made-anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := real(t, "st"+name)
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 2, nil)
			w.produce(w.srcCl, topic, 0, 0, 100)
			w.produce(w.srcCl, topic, 1, 0, 70)
			cfg := settings(w.name, w.src, w.tgt, topic)
			f := run(t, cfg)
			f.untilPosition(topic, 170)
			stateTopic := mm2.StateTopic(cfg.SourceAlias)
			stored := func() map[state.Key]state.Entry {
				store, err := ownStore(f.task)
				require.NoError(t, err)
				defer store.Close()
				entries, err := store.Load(w.ctx())
				if err != nil {
					return nil
				}
				if _, ok := store.Note(noteBaseline + cfg.Identity.FlowID); !ok {
					return nil
				}
				return entries
			}
			whole := func(sum int64) func() bool {
				return func() bool {
					got := int64(0)
					for _, e := range stored() {
						if e.Map == nil {
							return false
						}
						got += e.Position
					}
					return got == sum
				}
			}
			eventually(t, "positions stored", whole(170))
			if remake {
				w.recreate(w.tgtAdm, stateTopic, 1)
			} else {
				r, err := w.tgtAdm.DeleteTopic(w.ctx(), stateTopic)
				require.NoError(t, errors.Join(err, r.Err))
			}
			// Partition 0 goes on, 1 is idle.
			w.produce(w.srcCl, topic, 0, 100, 50)
			f.untilPosition(topic, 220)
			began := time.Now()
			eventually(t, "positions of all partitions in the new topic", whole(220))
			require.Less(t, time.Since(began), 15*time.Second)
			f.untilState(report.Running)
			f.kill() // what is stored later does not count

			f = run(t, cfg)
			w.produce(w.srcCl, topic, 1, 70, 10)
			f.untilPosition(topic, 230)
			require.Equal(t, want(0, 0, 150), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
			require.Equal(t, want(1, 0, 80), w.read(w.tgtAdm, w.tgt, w.remote(topic), 1))
			for p, at := range map[int32]int64{0: 30, 1: 40} {
				tr, ok := f.task.translate(topic, p, at)
				require.True(t, ok && tr.OK && tr.Exact, "%d: %+v", p, tr)
				require.Equal(t, at, tr.Offset)
			}
			f.drain()
		})
	}
}

func TestPositionsThatCannotBeStoredForAWhileAreToldWhateverTheReason(t *testing.T) {
	t.Parallel()
	for _, err := range []error{kerr.UnknownTopicID, kerr.RequestTimedOut, context.DeadlineExceeded, errors.New("whatever")} {
		task, _, _ := idle(t)
		now := time.Now()
		task.stateResult(now, err)
		require.False(t, task.board.Has(report.StateFailed, report.Flow), "%v: a moment's trouble", err)
		task.stateResult(now, nil)
		task.stateResult(now.Add(-stateGrace-time.Second), err)
		require.True(t, task.board.Has(report.StateFailed, report.Flow), "%v", err)
		task.stateResult(now, nil)
		require.False(t, task.board.Has(report.StateFailed, report.Flow), "%v", err)
	}
	task, _, _ := idle(t)
	for _, ours := range []error{context.Canceled, kgo.ErrClientClosed, state.ErrMayNotWrite} {
		task.stateResult(time.Now().Add(-time.Minute), ours)
		require.False(t, task.board.Has(report.StateFailed, report.Flow), "%v", ours)
	}
}

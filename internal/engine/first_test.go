package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// telling is a runner that tells when it runs.
type telling struct{ runs chan struct{} }

func (r telling) Run(ctx context.Context) error {
	close(r.runs)
	<-ctx.Done()
	return nil
}

func TestNothingStandsBeforeTheFirstRecordThatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	w := fakes(t, "first")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	cfg := settings(w.name, w.src, w.tgt, topic)
	beside := telling{make(chan struct{})}
	assigned, saved := make(chan struct{}), make(chan struct{}, 1)
	var f *flow
	m := newMemory()
	m.bend(func(context.Context) error { signal(saved); return nil })
	path := &stubPath{onAssign: func([]mirror.Assignment) { close(assigned) }}
	f = runTask(t, cfg, stubRooms(path, m, stubSyncs{}, beside))
	<-assigned
	select {
	case <-beside.runs:
		require.Fail(t, "something runs beside before the first record")
	case <-saved:
		require.Fail(t, "a position is stored before the first record")
	default:
	}
	began := time.Now()
	observer{f.task}.Mirrored(mirror.TP{Topic: topic}, []mirror.Span{{Source: 0, Target: 0, Count: 10}}, mirror.Point{Source: 10, Target: 10, ProducerID: -1})
	observer{f.task}.Passed(mirror.TP{Topic: topic}, 10)
	<-beside.runs
	<-saved
	require.Less(t, time.Since(began), 5*time.Second)
	f.kill()
}

func TestWhatStandsBesideDoesNotWaitForARecordThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]int{"no record": 0, "one that the target does not take": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fakes(t, "nofirst")
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 1, nil)
			if records > 0 {
				w.produce(w.srcCl, topic, 0, 0, records)
			}
			beside := telling{make(chan struct{})}
			f := runTask(t, settings(w.name, w.src, w.tgt, topic), stubRooms(&stubPath{}, newMemory(), stubSyncs{}, beside))
			f.untilState(report.Running)
			select {
			case <-beside.runs:
			case <-time.After(20 * time.Second):
				require.Fail(t, "what stands beside waits for ever")
			}
			f.kill()
		})
	}
}

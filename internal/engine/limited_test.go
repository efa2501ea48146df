package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// heldPath is a path with a limit.
type heldPath struct {
	stubPath
	limit int64
	held  time.Duration
}

func (p *heldPath) SetMaxBytesPerSecond(int64) {}

func (p *heldPath) HeldBack() (int64, time.Duration) { return p.limit, p.held }

func TestATaskThatItsLimitHoldsBackSaysSo(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	task.judgeRate(time.Now(), 1) // there is no path yet
	p := &heldPath{limit: 5000}
	task.rate.limits(p)
	now := time.Now()
	pass := func(seconds int, share float64, lag int64) {
		for range seconds {
			now = now.Add(time.Second)
			p.held += time.Duration(share * float64(time.Second))
			task.judgeRate(now, lag)
		}
	}
	pass(10, 0.9, 100)
	require.Empty(t, codesOf(task), "ten seconds are not over")
	pass(1, 0.9, 100)
	cs := conditionsOf(task, report.RateLimited)
	require.Len(t, cs, 1)
	require.Equal(t, report.Info, cs[0].Severity)
	require.EqualValues(t, 5000, cs[0].Evidence["max_bytes_per_second"])
	require.EqualValues(t, 100, cs[0].Evidence["lag"])
	require.InDelta(t, 0.9, cs[0].Evidence["share_of_time"], 0.001)
	since := cs[0].Since
	pass(5, 0.6, 200)
	require.Equal(t, since, conditionsOf(task, report.RateLimited)[0].Since)
	pass(1, 0.9, 0)
	require.Empty(t, codesOf(task), "nothing waits")
	pass(1, 0.9, 1)
	require.Equal(t, []string{report.RateLimited}, codesOf(task))
	pass(10, 0.2, 1)
	require.Empty(t, codesOf(task), "something else is slow")
	pass(20, 1, 1)
	require.Len(t, codesOf(task), 1)
	require.LessOrEqual(t, len(task.limited.seen), 12)
	p.limit = 0
	pass(1, 0, 1)
	require.Empty(t, codesOf(task))
}

func TestALimitedFlowIsRunningAndTellsWhatHoldsItBack(t *testing.T) {
	t.Parallel()
	w := real(t, "limited")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	for i := range 20 {
		w.produce(w.srcCl, topic, 0, 500*i, 500)
	}
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.MaxBytesPerSecond = 1024
	f := run(t, cfg)
	c := f.untilCondition(report.RateLimited)
	require.EqualValues(t, 1024, c.Evidence["max_bytes_per_second"])
	require.Positive(t, c.Evidence["lag"])
	f.untilState(report.Running)
	f.task.SetMaxBytesPerSecond(0)
	f.untilPosition(topic, 10_000)
	f.until("the condition goes", func(st report.Status) bool { return condition(st, report.RateLimited) == nil })
	f.drain()
}

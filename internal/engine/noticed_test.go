package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestANoticeGoesWhenItsPartitionHasRunWellForAWhile(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	o := observer{task}
	p := hold(t, task, "a", 0, partRunning, 5)
	began := time.Now()
	p.calmSince = began
	for code := range noticeCodes {
		task.board.Set(report.Condition{Code: code, Severity: report.Warning, Subject: p.subject()})
	}
	lasting := report.Condition{Code: report.OpenTransaction, Severity: report.Warning, Subject: p.subject()}
	task.board.Set(lasting)
	task.sweepNotices(began.Add(noticeLasts - time.Second))
	require.Len(t, task.board.List(), len(noticeCodes)+1)

	o.Stopped(p.tp, mirror.Stop{Reason: mirror.StopForeign, Offset: -1})
	after := p.calmSince
	require.True(t, after.After(began), "another one begins the time anew")
	o.Stopped(p.tp, mirror.Stop{Reason: mirror.StopTargetDenied, Retry: true, Offset: -1})
	task.sweepNotices(after.Add(time.Hour))
	require.NotEmpty(t, conditionsOf(task, report.ForeignWrites), "a partition that is stopped does not run well")
	o.Resumed(p.tp)
	task.sweepNotices(p.calmSince.Add(noticeLasts))
	require.Equal(t, []string{report.OpenTransaction}, codesOf(task))
}

func codesOf(task *Task) (out []string) {
	for _, c := range task.board.List() {
		out = append(out, c.Code)
	}
	return out
}

func TestAnOpenTransactionShowsInTimeWhateverTheOtherLeadersDo(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	open, dark := hold(t, task, "a", 0, partRunning, 5), hold(t, task, "a", 1, partRunning, 5)
	open.highWatermark, dark.highWatermark = 9, 9
	behind := []*partition{open, dark}
	answers := func(at int64) map[mirror.TP]listed {
		return map[mirror.TP]listed{open.tp: {offset: at}, dark.tp: {offset: -1, err: errLeftOut}}
	}
	began := time.Now()
	task.judgeTransactions(began, behind, answers(5))
	require.Empty(t, task.board.List())
	// A look takes this long at most: the next but one must tell.
	const look = boundsInterval + transactionsTimeout
	task.judgeTransactions(began.Add(look), behind, answers(5))
	require.Len(t, conditionsOf(task, report.OpenTransaction), 1)
	require.LessOrEqual(t, 2*look, 10*time.Second)

	task.board.Set(openTransaction(dark, 5, 9))
	task.judgeTransactions(began.Add(2*look), behind, answers(9))
	left := conditionsOf(task, report.OpenTransaction)
	require.Len(t, left, 1, "no answer is no end of a transaction")
	require.Equal(t, dark.subject(), left[0].Subject)
}

func TestAPartitionThatAnAnswerLeavesOutHasNoOffset(t *testing.T) {
	t.Parallel()
	w := fakes(t, "leftout")
	topic := w.topic("t")
	w.create(w.tgtAdm, topic, 2, nil)
	w.targetCluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.targetCluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.Offset = 0, 7
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	tps := []mirror.TP{{Topic: topic, Partition: 0}, {Topic: topic, Partition: 1}}
	got, err := listOffsets(w.ctx(), w.tgtCl, tps, atEnd, uncommitted)
	require.NoError(t, err)
	require.Equal(t, listed{offset: 7}, got[tps[0]])
	require.ErrorIs(t, got[tps[1]].err, errLeftOut)
	require.EqualValues(t, -1, got[tps[1]].offset)
	bounds, err := listBounds(w.ctx(), w.tgtCl, tps)
	require.NoError(t, err)
	require.ErrorIs(t, bounds[tps[1]].err, errLeftOut)
}

func TestAPartitionThatCannotBeStoredKeepsNoOtherFromIt(t *testing.T) {
	t.Parallel()
	task, _, m := idle(t)
	bad, good := hold(t, task, "a", 0, partRunning, 5), hold(t, task, "a", 1, partRunning, 6)
	whole := bad.offsets
	bad.offsets = nil
	require.ErrorIs(t, task.save(t.Context()), errNoMap)
	require.EqualValues(t, 6, m.position(good.remote, 1))
	require.EqualValues(t, -1, m.position(bad.remote, 0))
	shown := conditionsOf(task, report.StateFailed)
	require.Len(t, shown, 1)
	require.Equal(t, bad.subject(), shown[0].Subject)
	bad.offsets = whole
	require.NoError(t, task.save(t.Context()))
	require.EqualValues(t, 5, m.position(bad.remote, 0))
	require.Empty(t, task.board.List())
}

func TestOffsetSyncsThatCannotBeWrittenDoNotHoldUpPositions(t *testing.T) {
	t.Parallel()
	w := fakes(t, "slowsyncs")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.create(w.tgtAdm, w.remote(topic), 1, nil)
	m := newMemory()
	var inFlush atomic.Bool
	begun := make(chan struct{}, 100)
	syncs := stubSyncs{onFlush: func(ctx context.Context) error {
		inFlush.Store(true)
		begun <- struct{}{}
		<-ctx.Done()
		inFlush.Store(false)
		return ctx.Err()
	}}
	saved := make(chan struct{}, 1000)
	m.bend(func(context.Context) error {
		if inFlush.Load() {
			saved <- struct{}{}
		}
		return nil
	})
	f := runTask(t, settings(w.name, w.src, w.tgt, topic), stubRooms(&stubPath{}, m, syncs))
	f.untilState(report.Running)
	<-begun
	observer{f.task}.Passed(mirror.TP{Topic: topic}, 3)
	<-saved
}

func TestASideMayBeJudgedWhileItFails(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			task.source.failed("x", errors.New("no"))
			task.source.ok("x")
		}
	}()
	for range 1000 {
		since, err := task.source.current()
		require.True(t, err == nil || !since.IsZero())
	}
	<-done
}

func TestAFlowIsNotRunningBeforeWhatTheFirstRefreshFoundShows(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	// What follows happens between the two looks of a status: at its conditions, and at whether the task is ready.
	task.board.Set(report.Condition{Code: "SOURCE_X", Severity: report.Warning, Subject: report.Flow})
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, _ := found()
		task.reportSelection(d)
		task.statusMu.Lock()
		task.ready = true
		task.statusMu.Unlock()
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		require.NotEqual(t, report.Running, task.status(time.Now(), "").State)
	}
}

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// readToTheEnd are n partitions that run and have nothing to read.
func readToTheEnd(t *testing.T, task *Task, n int) []*partition {
	t.Helper()
	for i := range n {
		p := hold(t, task, fmt.Sprintf("t%02d", i/10), int32(i%10), partRunning, 5)
		p.logStart, p.highWatermark, p.lastStable, p.targetEnd = 0, 5, 5, 5
	}
	return task.parts.all()
}

func TestTheEndsOfIdlePartitionsAreAskedForInTurn(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	parts := readToTheEnd(t, task, 200)
	now := time.Now()
	plan := boundsPlan{every: boundsTurn, at: now}
	asked := map[*partition]int{}
	requests := 0
	for end := now.Add(boundsRound); now.Before(end); {
		now = now.Add(boundsInterval)
		source, target := plan.due(parts, now)
		require.Equal(t, source, target)
		require.Less(t, len(source), 40)
		if len(source) > 0 {
			requests++
		}
		for _, p := range source {
			asked[p]++
		}
	}
	require.Len(t, asked, len(parts), "each once a round")
	require.LessOrEqual(t, requests, int(boundsRound/boundsTurn))
	few := boundsPlan{every: boundsTurn, at: now}
	source, _ := few.due(parts[:3], now.Add(boundsTurn))
	require.Len(t, source, 3)
	source, _ = few.due(nil, now.Add(2*boundsTurn))
	require.Empty(t, source)
}

func TestTheEndsOfPartitionsOfWhichNothingIsHeardAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	parts := readToTheEnd(t, task, 100)
	now := time.Now()
	due := func() (int, int) {
		plan := boundsPlan{every: boundsTurn, at: now}
		source, target := plan.due(parts, now.Add(boundsInterval))
		return len(source), len(target)
	}
	source, target := due()
	require.Zero(t, source+target)

	stopped := parts[3]
	stopped.state = partFailed
	stopped.lastStable, stopped.position = 5, 5
	source, target = due()
	require.Equal(t, []int{1, 1}, []int{source, target}, "one that does not run")
	stopped.state, stopped.targetEnd = partRunning, -1
	source, target = due()
	require.Equal(t, []int{0, 1}, []int{source, target}, "one whose copy's end is not known")
	stopped.targetEnd = 5

	behind := parts[7]
	behind.highWatermark, behind.seen = 9, now.Add(boundsInterval)
	source, _ = due()
	require.Zero(t, source, "the path tells of it")
	behind.seen = now.Add(-time.Second)
	source, _ = due()
	require.Equal(t, 1, source, "it waits for an open transaction")
	behind.lastStable = 9
	source, _ = due()
	require.Len(t, parts, source, "what can be read is not: perhaps nothing is")
}

func TestTheStatusOfAnIdleFlowMakesNothingNew(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	parts := readToTheEnd(t, task, 40)
	first, second := task.status(time.Now(), ""), task.status(time.Now(), "")
	require.Len(t, first.Topics, 4)
	require.Len(t, first.Topics[3].Partitions, 10)
	require.Same(t, &first.Topics[0], &second.Topics[0])

	parts[25].position, parts[25].highWatermark = 7, 9
	third := task.status(time.Now(), "")
	require.EqualValues(t, 5, second.Topics[2].Partitions[5].Position, "what was told before stays as it was")
	require.Equal(t, report.Partition{Partition: 5, LogStart: 0, LogEnd: 9, Position: 7, TargetEnd: 5, Lag: 2, State: partRunning}, third.Topics[2].Partitions[5])
	require.Same(t, &second.Topics[1].Partitions[0], &third.Topics[1].Partitions[0], "only the topic that changed is new")

	for _, p := range parts[10:20] {
		task.parts.remove(p.tp)
	}
	hold(t, task, "t01a", 0, partRunning, 5)
	fourth := task.status(time.Now(), "")
	names := []string{}
	for _, topic := range fourth.Topics {
		names = append(names, topic.Name)
	}
	require.Equal(t, []string{"t00", "t01a", "t02", "t03"}, names)
	require.Len(t, third.Topics, 4)
	for _, p := range task.parts.all() {
		task.parts.remove(p.tp)
	}
	require.Empty(t, task.status(time.Now(), "").Topics)
}

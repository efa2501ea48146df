package stats_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

func sample(ms int, records int64, cpuMs ...int) stats.Sample {
	s := stats.Sample{At: time.Duration(ms) * time.Millisecond, Records: records}
	for _, c := range cpuMs {
		s.CPU = append(s.CPU, time.Duration(c)*time.Millisecond)
	}
	return s
}

func TestTheMiddleIsInterpolatedBetweenSamples(t *testing.T) {
	t.Parallel()
	// Nothing for a second, then 1000 records in two seconds, evenly, and one core of the first process.
	run := []stats.Sample{sample(0, 0, 0, 10), sample(1000, 0, 500, 10), sample(2000, 500, 1500, 20), sample(3000, 1000, 2500, 40)}
	w, ok := stats.Middle(run, 1000, 0.1, 0.9)
	require.True(t, ok)
	require.InDelta(t, 1.2, w.From.Seconds(), 1e-6)
	require.InDelta(t, 2.8, w.To.Seconds(), 1e-6)
	require.InDelta(t, 800, w.Records, 1e-6)
	require.InDelta(t, 1.6, w.CPU[0].Seconds(), 1e-6)
	require.InDelta(t, 0.036-0.012, w.CPU[1].Seconds(), 1e-6)
}

func TestTheMiddleOfARunThatStalledCountsTheStall(t *testing.T) {
	t.Parallel()
	run := []stats.Sample{sample(0, 0), sample(100, 500), sample(5100, 500), sample(5200, 1000)}
	w, ok := stats.Middle(run, 1000, 0.1, 0.9)
	require.True(t, ok)
	require.InDelta(t, 5.16, w.Seconds(), 1e-6)
}

func TestTheEndOfTheMiddleIsWhenItsLevelWasReachedFirst(t *testing.T) {
	t.Parallel()
	run := []stats.Sample{sample(0, 0), sample(100, 900), sample(200, 900), sample(300, 1000)}
	w, ok := stats.Middle(run, 1000, 0.1, 0.9)
	require.True(t, ok)
	require.Equal(t, 100*time.Millisecond, w.To)
}

func TestThereIsNoMiddleWithoutTheRecords(t *testing.T) {
	t.Parallel()
	for name, run := range map[string][]stats.Sample{
		"none":        nil,
		"one sample":  {sample(0, 1000)},
		"not drained": {sample(0, 0), sample(100, 800)},
		"at once":     {sample(100, 1000), sample(100, 1000)},
	} {
		_, ok := stats.Middle(run, 1000, 0.1, 0.9)
		require.False(t, ok, name)
	}
	_, ok := stats.Middle([]stats.Sample{sample(0, 0), sample(1, 1)}, 0, 0.1, 0.9)
	require.False(t, ok, "no total")
}

func TestQuantilesAreNearestRank(t *testing.T) {
	t.Parallel()
	var v []float64
	for i := 1; i <= 1000; i++ {
		v = append(v, float64(i))
	}
	require.Equal(t, 500.0, stats.Quantile(v, 0.5))
	require.Equal(t, 990.0, stats.Quantile(v, 0.99))
	require.Equal(t, 999.0, stats.Quantile(v, 0.999))
	require.Equal(t, 1000.0, stats.Quantile(v, 1))
	require.Equal(t, 1.0, stats.Quantile(v, 0))
	require.Equal(t, 7.0, stats.Quantile([]float64{7}, 0.999))
	require.True(t, math.IsNaN(stats.Quantile(nil, 0.5)))
}

func TestSummariesGiveMedianAndRange(t *testing.T) {
	t.Parallel()
	require.Equal(t, stats.Summary{Median: 2.5, Min: 1, Max: 9, N: 4}, stats.Summarize([]float64{9, 1, 3, 2}))
	require.Equal(t, stats.Summary{Median: 3, Min: 1, Max: 9, N: 3}, stats.Summarize([]float64{9, 1, 3}))
	require.Zero(t, stats.Summarize(nil).N)
}

func TestContestantsRunABBA(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a", "b", "b", "a"}, stats.Order([]string{"a", "b"}, 2))
	require.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, stats.Order([]string{"a", "b"}, 3))
}

func TestThinningKeepsBothEnds(t *testing.T) {
	t.Parallel()
	var run []stats.Sample
	for i := range 1001 {
		run = append(run, sample(i, int64(i)))
	}
	thin := stats.Thin(run, 11)
	require.Len(t, thin, 11)
	require.Equal(t, int64(0), thin[0].Records)
	require.Equal(t, int64(100), thin[1].Records)
	require.Equal(t, int64(1000), thin[10].Records)
	require.Len(t, stats.Thin(run[:5], 11), 5)
}

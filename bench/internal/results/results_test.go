package results_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

func run(engine string, metrics map[string]float64) results.Run {
	return results.Run{Engine: engine, Round: 1, Metrics: metrics}
}

// large is a result of the first case.
func large() results.Result {
	return results.Result{
		Case: "1k-lz4-large", Title: "a title", Scale: 1, Set: &dataset.Set{Partitions: 16}, Loaded: &dataset.Loaded{RawBytes: 2e9},
		Machine: results.Machine{CPUs: 2}, Date: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		Runs: []results.Run{
			run("mm2-tuned", map[string]float64{results.CPUSteady: 24, results.Drain: 60, results.PeakMB: 2000, results.Throughput: 60}),
			run("ours", map[string]float64{results.CPUSteady: 0.3, results.Drain: 3, results.PeakMB: 60, results.Throughput: 180, results.BrokersCores: 1.8, results.DiskRatio: 1.001}),
			run("ours", map[string]float64{results.CPUSteady: 0.5, results.Drain: 4, results.PeakMB: 120, results.Throughput: 180, results.BrokersCores: 1.8, results.DiskRatio: 1.03}),
			run("mm2-tuned", map[string]float64{results.CPUSteady: 26, results.Drain: 62, results.PeakMB: 2200, results.Throughput: 60}),
		},
	}
}

func barOf(t *testing.T, all map[string]results.Result, figure string) string {
	t.Helper()
	for line := range strings.Lines(results.Bars(all)) {
		if strings.Contains(line, figure) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no bar %q", figure)
	return ""
}

func TestBarsCompareMediansAndWorstRuns(t *testing.T) {
	t.Parallel()
	r := large()
	all := map[string]results.Result{r.Case: r}
	require.Equal(t, "| CPU per GB, middle 80 %, 1 KiB lz4, batches ≥ 256 KiB, against tuned MM2 | ≤ 1/50 | 0.400 against 25.0: 1/62.5 | yes |",
		barOf(t, all, "CPU per GB, middle 80 %, 1 KiB lz4"))
	require.Contains(t, barOf(t, all, "start to drained"), "3.50 against 61.0: 1/17.4 | yes |")
	require.Contains(t, barOf(t, all, "peak memory, worst run"), "120 (1k-lz4-large) | **no** |")
	require.Contains(t, barOf(t, all, "peak memory against"), "1/17.5 (1k-lz4-large, mm2-tuned) | **no** |")
	require.Contains(t, barOf(t, all, "bytes on disk"), "1.03 (1k-lz4-large) | **no** |")
	require.Contains(t, barOf(t, all, "throughput of the middle"), "3.00 ×; the brokers took 1.80 of 2 cores | yes |")
	require.Contains(t, barOf(t, all, "with batches of 16 KiB"), "| – | not run |")
}

func TestABarOfMoreIsMetFromItsBoundOn(t *testing.T) {
	t.Parallel()
	wan := func(own float64) map[string]results.Result {
		a, b := run("mm2", map[string]float64{results.Throughput: 0.2}), run("ours", map[string]float64{results.Throughput: own})
		a.Variant, b.Variant = "80 ms", "80 ms"
		return map[string]results.Result{"wan-fresh": {Case: "wan-fresh", Runs: []results.Run{a, b}}}
	}
	require.Contains(t, barOf(t, wan(4.1), "at 80 ms round trip"), "| yes |")
	require.Contains(t, barOf(t, wan(3.9), "at 80 ms round trip"), "| **no** |")
}

func TestTheTableTellsRatiosFailuresAndWhatWasChecked(t *testing.T) {
	t.Parallel()
	r := large()
	r.Runs = append(r.Runs, run("mm2-tuned", map[string]float64{results.CPUSteady: 9999}))
	r.Runs[4].Error = "stands still"
	r.Runs[4].Checked = &dataset.Checked{}
	r.Runs[1].Checked = &dataset.Checked{Records: 500}
	r.Runs[2].Checked = &dataset.Checked{Records: 500, Missing: 1}
	text := results.Table(r)
	require.Contains(t, text, "| | mm2-tuned | ours | mm2-tuned / ours |")
	require.Contains(t, text, "| CPU s per GB, middle 80 % | 25.0 (24.0 … 26.0) | 0.400 (0.300 … 0.500) | 62.5 × |")
	require.Contains(t, text, "| MB/s, middle 80 % | 60.0 | 180 | 3.00 × |", "more is better")
	require.Contains(t, text, "- **mm2-tuned, round 1: stands still**")
	require.Contains(t, text, "1 of 5 runs were compared record by record and are right: 500 records")
	require.NotContains(t, text, "latency")
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), large()
	r.Runs[0].SetSamples([]stats.Sample{
		{At: 20 * time.Millisecond, CPU: []time.Duration{1e9, 2e9, 3e9}},
		{At: 40 * time.Millisecond, Records: 7, CPU: []time.Duration{2e9, 3e9, 4e9}},
	})
	r.Runs[0].SetLatencies([]float64{1, 2, 30}, []float64{1, 2, 3})
	require.Equal(t, [][5]float64{{0.02, 0, 1, 2, 3}, {0.04, 7, 2, 3, 4}}, r.Runs[0].Samples)
	require.Equal(t, 27.0, r.Runs[0].Metrics[results.OverSourceP99])
	require.NoError(t, results.Save(dir, r))
	all, err := results.Load(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]results.Result{r.Case: r}, all)
	none, err := results.Load(dir + "/none")
	require.NoError(t, err)
	require.Empty(t, none)
	report := results.Report(all, []string{"other", r.Case})
	require.Contains(t, report, "## 1k-lz4-large")
	require.Contains(t, report, "| figure | bar | found | met |")
	require.NotContains(t, report, "Tried out")
	r.Scale = 0.1
	require.Contains(t, results.Report(map[string]results.Result{r.Case: r}, []string{r.Case}), "Tried out at 0.1")
	require.Contains(t, results.Bars(map[string]results.Result{r.Case: r}), "only tried out")
	require.NotContains(t, results.Bars(all), "only tried out")
}

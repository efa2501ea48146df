package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

// The whole harness, with real brokers, Postgres, API and worker, on sizes of which the figures say nothing.
func TestATinyCaseRunsFromEndToEnd(t *testing.T) {
	t.Parallel()
	bin, work, found := t.TempDir(), filepath.Join(t.TempDir(), "work"), t.TempDir()
	for name, pkg := range map[string]string{"mirrorflow-api": "api", "mirrorflow-worker": "worker", "mirrorctl": "mirrorctl"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, name), "../../cmd/"+pkg).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	c := runCommand{
		options: options{Engines: lab.Ours, Work: work, Bin: bin, Scale: 0.005, Rounds: 1},
		Cases:   []string{"1k-lz4-large"}, Results: found,
	}
	require.NoError(t, c.Run(t.Context()))
	all, err := results.Load(found)
	require.NoError(t, err)
	r := all["1k-lz4-large"]
	require.Len(t, r.Runs, 1)
	run := r.Runs[0]
	require.Empty(t, run.Error)
	require.NotNil(t, run.Checked)
	require.True(t, run.Checked.Good())
	require.Equal(t, r.Loaded.Records, run.Checked.Records)
	require.Positive(t, run.Metrics[results.Drain])
	require.Positive(t, run.Metrics[results.PeakMB])
	require.NotEmpty(t, run.Samples)
	require.FileExists(t, filepath.Join(found, "README.md"))
	require.NoDirExists(t, work, "nothing is left")
	require.NoError(t, c.Run(t.Context()), "a case that has a result is not run again")
	require.NoDirExists(t, work)
}

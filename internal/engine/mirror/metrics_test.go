package mirror

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

func TestTheTasksOfAFlowShareARegistry(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c := plain("", "127.0.0.1:1")
	for task := range 3 {
		p, err := newMirror(Config{Source: c, Target: c, ClientID: "a->b|f", Flow: "f", Task: task, Registry: registry, Observer: newWatcher()})
		require.NoError(t, err)
		t.Cleanup(p.close)
	}
}

func TestAPathThatCannotBeMadeLeavesNoMetricsBehind(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	good, bad := plain("", "127.0.0.1:1"), plain("", "no address")
	for name, sides := range map[string][2]kafka.Cluster{"source": {bad, good}, "target": {good, bad}} {
		_, err := newMirror(Config{Source: sides[0], Target: sides[1], ClientID: "a->b|f", Flow: "f", Registry: registry, Observer: newWatcher()})
		require.Error(t, err, name)
	}
	p, err := newMirror(Config{Source: good, Target: good, ClientID: "a->b|f", Flow: "f", Registry: registry, Observer: newWatcher()})
	require.NoError(t, err)
	// A second of the same name fails, and takes nothing of the first's away.
	p.metrics.inFlight(7)
	_, err = newMirror(Config{Source: good, Target: good, ClientID: "a->b|f", Flow: "f", Registry: registry, Observer: newWatcher()})
	require.Error(t, err)
	families, err := registry.Gather()
	require.NoError(t, err)
	found := false
	for _, f := range families {
		found = found || f.GetName() == "mirrorflow_in_flight_bytes" && f.GetMetric()[0].GetGauge().GetValue() == 7
	}
	require.True(t, found)
	p.close()
}

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestB95_AThousandMostlyIdleTopicsStartAtOnce(t *testing.T) {
	t.Parallel()
	w := fakes(t, "b95")
	const n = 1000
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("b95-%05d", i))
	}
	rs, err := w.srcAdm.CreateTopics(w.ctx(), 2, 1, nil, names...)
	require.NoError(t, err)
	require.NoError(t, rs.Error())
	busy := names[n/2]
	w.produce(w.srcCl, busy, 1, 0, 100)
	cfg := settings(w.name, w.src, w.tgt, ".*")
	reg := prometheus.NewRegistry()
	cfg.Registry = reg
	began := time.Now()
	f := run(t, cfg)
	st := f.untilState(report.Running)
	require.Len(t, st.Topics, n)
	f.untilPosition(busy, 100)
	require.Less(t, time.Since(began), 15*time.Second, "a fraction of a second on a quiet machine")
	late := "b95-late"
	w.create(w.srcAdm, late, 1, nil)
	w.produce(w.srcCl, late, 0, 0, 10)
	f.untilPosition(late, 10)

	families := map[string]int{}
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range all {
		families[m.GetName()] = len(m.GetMetric())
	}
	require.Contains(t, families, "mirrorflow_record_lag")
	require.LessOrEqual(t, families["mirrorflow_record_lag"], n+1, "no more than one a topic")
	require.Contains(t, families, "mirrorflow_topic_refresh_seconds")
	require.Contains(t, families, "mirrorflow_position_save_errors_total")
	f.drain()
	all, err = reg.Gather()
	require.NoError(t, err)
	require.Empty(t, all, "a task that ended leaves no metrics")

	began = time.Now()
	f = run(t, cfg)
	f.untilState(report.Running)
	require.Less(t, time.Since(began), 15*time.Second)
}

package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestAFlowCopiesATopicSoonAfterItStarts(t *testing.T) {
	w := real(t, "warm") // by itself, since it is about time, and not the first that the brokers ever see
	warm := w.topic("t")
	w.create(w.srcAdm, warm, 1, nil)
	w.produce(w.srcCl, warm, 0, 0, 1)
	g := run(t, settings(w.name, w.src, w.tgt, warm))
	g.untilPosition(warm, 1)
	g.drain()

	w = real(t, "golden")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 3, map[string]string{"retention.ms": "123456789", "cleanup.policy": "compact"})
	for p := range int32(3) {
		w.produce(w.srcCl, topic, p, 0, 100)
	}
	began := time.Now()
	f := run(t, settings(w.name, w.src, w.tgt, topic))
	f.untilPosition(topic, 300)
	// Half a second on a quiet machine; untilPosition bounds it, since brokers and other packages' tests share this one.
	t.Logf("300 records after %s", time.Since(began))
	for p := range int32(3) {
		require.Equal(t, want(p, 0, 100), w.read(w.tgtAdm, w.tgt, w.remote(topic), p))
	}
	v, override := configOf(t, w.tgtAdm, w.remote(topic), "retention.ms")
	require.Equal(t, "123456789", v)
	require.True(t, override)
	st := f.untilState(report.Running)
	require.Equal(t, topic, st.Topics[0].Name)
	require.Equal(t, w.remote(topic), st.Topics[0].RemoteName)
	require.Empty(t, st.Conditions)
	w.produce(w.srcCl, topic, 1, 100, 50)
	f.untilPosition(topic, 350)
	f.drain()

	f = run(t, settings(w.name, w.src, w.tgt, topic))
	w.produce(w.srcCl, topic, 1, 150, 1)
	f.untilPosition(topic, 351)
	require.Equal(t, want(1, 0, 151), w.read(w.tgtAdm, w.tgt, w.remote(topic), 1))
}

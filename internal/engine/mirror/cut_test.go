package mirror

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// untilPipelined waits until so many batches of a partition are under way at a time.
func (b *bench) untilPipelined(tp TP, batches int) {
	b.tb.Helper()
	wait.For(b.tb, 20*time.Second, fmt.Sprintf("%d batches of %v under way", batches, tp), func() error {
		b.path.mu.Lock()
		defer b.path.mu.Unlock()
		t := b.path.parts[tp]
		if t == nil || t.awaiting < batches {
			return fmt.Errorf("%+v", t)
		}
		return nil
	})
}

// middle is a partition with a pipeline over a line of 30 ms.
type middle struct {
	*bench
	source, target *kafkatest.Cluster
	line           *faultnet.Proxy
	topic          string
	tp             TP
}

// inTheMiddle copies batches of 16 KB over the line and calls fault with some of them under way; then all must be there, once
// and in order.
func inTheMiddle(t *testing.T, source, target *kafkatest.Cluster, line *faultnet.Proxy, count int, age time.Duration, fault func(t *testing.T, m *middle)) {
	t.Helper()
	m := &middle{source: source, target: target, line: line, topic: kafkatest.UniqueName(t)}
	m.tp = TP{m.topic, 0}
	keep := map[string]string{"retention.ms": "-1"}
	kafkatest.CreateTopic(t, source, m.topic, 1, keep)
	kafkatest.CreateTopic(t, target, remote(m.topic), 1, keep)
	fill16K(t, source, m.topic, 0, count, time.Now().Add(-age))
	m.far(t)
	m.bench = run(t, batches, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), nil)
	m.assign(m.topic, 1, 0)
	fault(t, m)
	m.until(source, m.topic)
	require.NoError(t, line.Heal())
	requireSame(t, source, target, m.topic)
	m.requireSpans(kafkatest.ReadAll(t, source, m.topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, remote(m.topic), kafkatest.ReadCommitted), m.topic)
	for _, stop := range m.seen.stops[m.tp] {
		require.Equal(t, StopTargetUnavailable, stop.Reason, stop.Message) // a broker may take long to start
	}
	if age == 0 {
		m.path.mu.Lock()
		require.Equal(t, 2*time.Hour, m.path.expiration, "what the broker says")
		m.path.mu.Unlock()
	}
	m.end()
}

func (m *middle) far(t *testing.T) {
	t.Helper()
	require.NoError(t, m.line.Latency(15*time.Millisecond))
}

// cut breaks the connections so often with some batches under way, each time after some progress. Every second time the target
// gets what is sent for a while, and its answers are lost.
func (m *middle) cut(t *testing.T, often, some, more int) {
	t.Helper()
	for i := range often {
		m.untilAt(m.tp, m.seen.position(m.tp)+1)
		m.untilPipelined(m.tp, some)
		if i%2 == 0 {
			require.NoError(t, m.line.Stall(faultnet.Downward))
			stalled := time.Now()
			m.untilPipelined(m.tp, more)
			wait.For(t, 5*time.Second, "what was sent to arrive", func() error {
				if time.Since(stalled) < 100*time.Millisecond {
					return errors.New("a moment")
				}
				return nil
			})
		}
		m.line.Reset()
		require.NoError(t, m.line.Heal())
		m.far(t)
	}
}

func (m *middle) limit(t *testing.T, value string) {
	t.Helper()
	_, err := kafkatest.Admin(t, m.target).AlterTopicConfigs(t.Context(),
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, remote(m.topic))
	require.NoError(t, err)
}

func TestFaultsInTheMiddleOfAPipelineNeitherLoseNorRepeatNorReorder(t *testing.T) {
	t.Parallel()
	for _, version := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			source := kafkatest.Shared(t, kafkatest.V39)
			// The broker cleans its table of producers often, as long-running ones do at times.
			target, line := farTarget(t, version, map[string]string{
				"producer.id.expiration.check.interval.ms": "500", "producer.id.expiration.ms": "7200000",
			})
			t.Run("the connection is cut", func(t *testing.T) {
				inTheMiddle(t, source, target, line, 3000, 0, func(t *testing.T, m *middle) { m.cut(t, 8, 5, 15) })
			})
			t.Run("the connection is cut, and the records are too old for the broker to remember who wrote them", func(t *testing.T) {
				inTheMiddle(t, source, target, line, 2000, 30*24*time.Hour, func(t *testing.T, m *middle) { m.cut(t, 6, 1, 1) })
			})
			t.Run("the topic's limit is lowered", func(t *testing.T) {
				inTheMiddle(t, source, target, line, 1000, 0, func(t *testing.T, m *middle) {
					m.untilPipelined(m.tp, 5)
					m.limit(t, "9000")
					m.untilAt(m.tp, 6000) // at one batch for each answer of the source
					m.limit(t, "1048588")
				})
			})
			t.Run("the right to write ends", func(t *testing.T) {
				var gone atomic.Bool
				topic := kafkatest.UniqueName(t)
				kafkatest.CreateTopic(t, source, topic, 1, nil)
				kafkatest.CreateTopic(t, target, remote(topic), 1, nil)
				fill16K(t, source, topic, 0, 10, time.Now())
				b := run(t, batches, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), func(c *Config) {
					c.MayWrite = func() bool { return !gone.Load() }
				})
				b.assign(topic, 1, 0)
				b.until(source, topic)
				before := line.Resets()
				gone.Store(true)
				b.end()
				wait.For(t, 10*time.Second, "a reset: what the broker has not read yet is dropped", func() error {
					if line.Resets() == before {
						return errors.New("none")
					}
					return nil
				})
			})
			t.Run("the leader is killed", func(t *testing.T) {
				inTheMiddle(t, source, target, line, 2000, 0, func(t *testing.T, m *middle) {
					m.untilPipelined(m.tp, 5)
					target.Kill(t)
					target.Restart(t)
				})
			})
		})
	}
}

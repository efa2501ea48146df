package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// TestAWorkerThatJoinsTakesItsShareUnderLoad runs three tasks of a flow on one worker while records arrive. Two more
// workers join: each gets a task by a clean hand-over, so that everything is there once, in order.
func TestAWorkerThatJoinsTakesItsShareUnderLoad(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 9, nil)
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}, "tasksMax": 3})

	ctx, stop := context.WithCancel(t.Context())
	produced := make(chan uint64, 1)
	go func() {
		var next uint64
		for ctx.Err() == nil {
			next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 900, Partitions: 9, FirstID: next, Plain: true})
		}
		produced <- next
	}()
	t.Cleanup(stop)
	waitRecords(t, target, p.remote(topic), 5000, 60*time.Second)

	shares := func(want map[string]int) time.Duration {
		began := time.Now()
		wait.For(t, 30*time.Second, fmt.Sprint("shares ", want), func() error {
			got := map[string]int{}
			st := s.status(flow)
			for _, task := range st.Tasks {
				got[task.Worker]++
			}
			if !maps.Equal(got, want) || st.State != "RUNNING" {
				return fmt.Errorf("they are %v, state %s", got, st.State)
			}
			return nil
		})
		return time.Since(began)
	}
	shares(map[string]int{"w1": 3})
	s.startWorker()
	second := shares(map[string]int{"w1": 2, "w2": 1})
	s.startWorker()
	third := shares(map[string]int{"w1": 1, "w2": 1, "w3": 1})
	t.Logf("the second worker had its share after %s, the third after %s", second, third)
	require.LessOrEqual(t, max(second, third), 15*time.Second, "a few seconds; this machine may be busy")

	stop()
	next := <-produced
	waitRecords(t, target, p.remote(topic), int64(next), 60*time.Second)
	s.waitIdle(flow, 30*time.Second)
	a := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.True(t, a.Exact(), a.String())
	t.Logf("%d records, once each", next)
}

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// TestSeveralTasksShareAFlowAndTheirNumberMayChange runs a flow as three tasks on two workers, then as one, then as four,
// while records arrive: everything once, in order.
func TestSeveralTasksShareAFlowAndTheirNumberMayChange(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 2)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 8, nil)
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 20_000, Partitions: 8, Plain: true})
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}, "tasksMax": 3})
	tasks := func(n int) {
		wait.For(t, 30*time.Second, fmt.Sprintf("%d tasks", n), func() error {
			if st := s.status(flow); len(st.Tasks) != n {
				return fmt.Errorf("tasks %+v, state %s, conditions %+v", st.Tasks, st.State, st.Conditions)
			}
			return nil
		})
	}
	tasks(3)
	for _, n := range []int{1, 4} {
		next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 20_000, Partitions: 8, FirstID: next, Plain: true})
		s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"tasksMax": n})
		next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 20_000, Partitions: 8, FirstID: next, Plain: true})
		tasks(n)
	}
	waitRecords(t, target, p.remote(topic), int64(next), 60*time.Second)
	s.waitIdle(flow, 30*time.Second)
	a := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.True(t, a.Exact(), a.String())
}

// TestAFlowMadeAgainGoesOnWhereItWas deletes a flow whose lease went through several hands and makes it again; with
// forget=true it begins anew.
func TestAFlowMadeAgainGoesOnWhereItWas(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 2, nil)
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2, Plain: true})
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}})
	s.waitIdle(flow, 30*time.Second)
	offOn := func() {
		s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": false})
		s.waitState(flow, "STOPPED", 10*time.Second)
		s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": true})
		s.waitIdle(flow, 30*time.Second)
	}
	for range 3 { // the lease epoch of the first flow grows beyond that of the second
		offOn()
	}
	for range 2 {
		s.want(http.StatusNoContent, http.MethodDelete, "/replications/"+flow, nil)
		next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2, FirstID: next, Plain: true})
		flow = p.flow(object{"topics": []string{topic}})
		s.waitIdle(flow, 30*time.Second)
		offOn()
	}
	source1 := kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted)
	a := kafkatest.Reconcile(source1, kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.True(t, a.Exact(), a.String())

	s.want(http.StatusNoContent, http.MethodDelete, "/replications/"+flow+"?forget=true", nil)
	flow = p.flow(object{"topics": []string{topic}})
	waitRecords(t, target, p.remote(topic), int64(2*next), 30*time.Second)
	s.waitIdle(flow, 30*time.Second)
	a = kafkatest.Reconcile(source1, kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.Equal(t, int(next), a.Duplicate, "forgotten positions: everything is copied once more")
	require.Zero(t, a.Missing)
}

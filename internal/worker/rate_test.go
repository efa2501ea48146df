package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestARateIsFollowedWithoutAStop(t *testing.T) {
	const limit = 10_000
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(func(s *flows.FlowSpec) { s.Flow.TasksMax = 3; s.Flow.MaxBytesPerSecond = new(int64(limit)) })
		b.start()
		e := b.engine(0)
		require.EqualValues(t, 3334, e.rate(), "the share of task 0")
		set := func(change func(*flows.FlowSpec)) {
			b.store.change(key.FlowID, func(s *flows.FlowSpec) { change(s); s.Flow.Revision++ })
			pass(2 * time.Second)
		}
		set(func(s *flows.FlowSpec) { s.Flow.MaxBytesPerSecond = new(int64(3 * limit)) })
		require.EqualValues(t, limit, e.rate())
		set(func(s *flows.FlowSpec) { s.Flow.MaxBytesPerSecond = nil })
		require.Zero(t, e.rate())
		// Service facts that need no restart by themselves do not need one together with a rate.
		set(func(s *flows.FlowSpec) {
			s.Source.KafkaClusterID, s.Flow.MaxBytesPerSecond = "now known", new(int64(3*limit))
			s.Flow.UpdatedAt = time.Now()
		})
		require.EqualValues(t, limit, e.rate())
		require.False(t, e.wasDrained())
		require.Equal(t, 1, b.made())

		// With anything else it takes a new engine, which begins with the rate.
		set(func(s *flows.FlowSpec) { s.Flow.MaxBytesPerSecond, s.Flow.Topics = new(int64(limit)), []string{"new"} })
		require.True(t, e.wasDrained())
		require.EqualValues(t, 3334, b.engine(1).cfg.MaxBytesPerSecond)
	})
}

func TestWhatARunningEngineDoesNotKnowTakesANewOneEvenWhenOnlyTheRateChanged(t *testing.T) {
	for name, change := range map[string]func(*flows.FlowSpec){
		"aliases":      func(s *flows.FlowSpec) { s.KnownAliases = []string{"dst", "new", "src"} },
		"addresses":    func(s *flows.FlowSpec) { s.Target.BootstrapServers = []string{"127.0.0.1:3"} },
		"protocol":     func(s *flows.FlowSpec) { s.Target.Security.Protocol = "SSL" },
		"cluster ids":  func(s *flows.FlowSpec) { s.Source.KafkaClusterID = "another" },
		"another pair": func(s *flows.FlowSpec) { s.Source.ID = otherFlow },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				key := b.lease(func(s *flows.FlowSpec) { s.Source.KafkaClusterID = "one" })
				b.start()
				e := b.engine(0)
				// Known in the process, and not to the engine: news without a revision reach the next one.
				b.store.change(key.FlowID, change)
				b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
				pass(2 * time.Second)
				require.False(t, e.wasDrained())
				b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.MaxBytesPerSecond = new(int64(5000)); s.Flow.Revision++ })
				pass(2 * time.Second)
				require.True(t, e.wasDrained())
				require.EqualValues(t, 5000, b.engine(1).cfg.MaxBytesPerSecond)
			})
		})
	}
}

func TestARateSetWhileTheEngineIsMadeReachesIt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		making, made := make(chan struct{}), make(chan struct{})
		b.make = func(*fakeEngine) error { close(making); <-made; return nil }
		key := b.lease(nil)
		b.start()
		<-making
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.MaxBytesPerSecond = new(int64(5000)); s.Flow.Revision++ })
		b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
		pass(100 * time.Millisecond)
		close(made)
		require.EqualValues(t, 5000, b.engine(0).rate())
		pass(3 * time.Second)
		require.False(t, b.engine(0).wasDrained())
		require.Equal(t, 1, b.made())
	})
}

func TestARateOfTheAPIReachesAllTasksWithinTwoSecondsWithoutAStop(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	f.join("b")
	_, _, in := f.pair()
	in.TasksMax = 3
	flow := f.create(in, "orders")
	for n := range 3 {
		require.Zero(t, f.run(flow.ID, n).cfg.MaxBytesPerSecond)
	}
	o := flow.Options
	o.MaxBytesPerSecond = new(int64(100_001))
	_, err := f.manager.UpdateFlow(t.Context(), f.project, flow.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	wait.For(t, 2*time.Second, "the rate", func() error {
		var sum int64
		for _, r := range f.runsOf(flow.ID) {
			sum += r.rate.Load()
		}
		if sum != 100_001 {
			return errors.New(fmt.Sprint("sum is ", sum))
		}
		return nil
	})
	require.Len(t, f.runsOf(flow.ID), 3, "none was started again")
}

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// gate is a sink whose events wait to be let in.
type gate struct {
	*sink
	entered chan struct{}
	leave   chan struct{}
}

func newGate() *gate {
	return &gate{sink: newSink(), entered: make(chan struct{}, 8), leave: make(chan struct{})}
}

func (g *gate) Event(ctx context.Context, e report.Event) error {
	g.entered <- struct{}{}
	<-g.leave
	return g.sink.Event(ctx, e)
}

func TestEventsGoOnceAndInOrderHoweverManyHandThemOver(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		g, o := newGate(), newOutbox()
		for i := range n {
			require.True(t, o.add(report.Event{Code: "E", Message: string(rune('A' + i))}))
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- o.flush(context.Background(), g) }()
		<-g.entered
		hurried, cancel := context.WithCancel(context.Background())
		cancel()
		go func() { second <- o.flush(hurried, g) }()
		select {
		case err := <-second:
			require.ErrorIs(t, err, context.Canceled)
		case <-g.entered:
			require.Fail(t, "an event that is under way was handed over again")
		}
		close(g.leave)
		require.NoError(t, <-first)
		require.NoError(t, o.flush(context.Background(), g))
		var got string
		for _, e := range g.eventsOf("E") {
			got += e.Message
		}
		require.Equal(t, "ABC"[:n], got)
	}
}

func TestAnOutboxThatIsFullTakesNoMore(t *testing.T) {
	t.Parallel()
	o := newOutbox()
	for range outboxLimit {
		require.True(t, o.add(report.Event{}))
	}
	require.False(t, o.add(report.Event{}))
	require.NoError(t, o.flush(t.Context(), newSink()))
	require.True(t, o.add(report.Event{}))
}

func TestAnEventThatTakesLongDoesNotHoldUpTheStatus(t *testing.T) {
	t.Parallel()
	w := fakes(t, "slowevent")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	cfg := settings(w.name, w.src, w.tgt, topic)
	g := newGate()
	cfg.Sink = g
	task, err := newTask(cfg, stubRooms(&stubPath{}, newMemory(), stubSyncs{}))
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx) }()
	task.tell(report.Event{Code: "E"})
	<-g.entered
	for range 3 {
		<-g.wake // a status came
	}
	close(g.leave)
	stop(ErrLeaseLost)
	require.ErrorIs(t, <-done, ErrLeaseLost)
}

// bursting panics when it runs.
type bursting struct{}

func (bursting) Run(context.Context) error { panic("hunter2") }

// burstingSink panics at its first status.
type burstingSink struct{ *sink }

func (burstingSink) Status(report.Status) { panic("hunter2") }

func TestAPanicAnywhereIsTheTasksFaultAndNobodyElses(t *testing.T) {
	t.Parallel()
	burst := func(context.Context) error { panic("hunter2") }
	tests := map[string]struct {
		rooms func() rooms
		sink  Sink
	}{
		"in the data path": {rooms: func() rooms {
			return stubRooms(&stubPath{onRun: burst}, newMemory(), stubSyncs{})
		}},
		"beside": {rooms: func() rooms {
			return stubRooms(&stubPath{}, newMemory(), stubSyncs{}, bursting{})
		}},
		"in the offset syncs": {rooms: func() rooms {
			m := newMemory()
			return stubRooms(&stubPath{}, m, stubSyncs{onFlush: burst})
		}},
		"while positions are stored": {rooms: func() rooms {
			m := newMemory()
			m.bend(burst)
			return stubRooms(&stubPath{}, m, stubSyncs{})
		}},
		"in the refresh": {rooms: func() rooms {
			return stubRooms(&stubPath{onAssign: func([]mirror.Assignment) { panic("hunter2") }}, newMemory(), stubSyncs{})
		}},
		"in the status": {sink: burstingSink{newSink()}, rooms: func() rooms {
			return stubRooms(&stubPath{}, newMemory(), stubSyncs{})
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fakes(t, "panic")
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 1, nil)
			cfg := settings(w.name, w.src, w.tgt, topic)
			cfg.Sink = tt.sink
			if cfg.Sink == nil {
				cfg.Sink = newSink()
			}
			task, err := newTask(cfg, tt.rooms())
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- task.Run(context.Background()) }()
			err = <-done
			var p *report.PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "hunter2", p.Value)
			require.NotContains(t, err.Error(), "hunter2", "the value may be anything, and the error is shown")
		})
	}
}

// stubborn does not end when it should.
type stubborn struct{ released chan struct{} }

func (s stubborn) Run(context.Context) error {
	<-s.released
	return nil
}

func TestAfterAPanicNobodyIsWaitedForForEver(t *testing.T) {
	t.Parallel()
	w := fakes(t, "wreck")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	s := stubborn{make(chan struct{})} // as one that waits for a lock which the panic left behind
	defer close(s.released)
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.Sink = newSink()
	task, err := newTask(cfg, stubRooms(&stubPath{}, newMemory(), stubSyncs{}, s, bursting{}))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- task.Run(context.Background()) }()
	select {
	case err := <-done:
		var p *report.PanicError
		require.ErrorAs(t, err, &p)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the task does not end")
	}
}

func TestAnOverdueDrainStoresWhatWasAcknowledgedAndProducesNoMore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		throughRun bool
		stuck      bool // the target does not take the position either
	}{
		"told to the drain":               {},
		"told to the run":                 {throughRun: true},
		"with a target that is not there": {stuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fakes(t, "overdue")
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 1, nil)
			w.produce(w.srcCl, topic, 0, 0, 10)
			var task *Task
			ended, draining := make(chan struct{}), make(chan struct{})
			path := &stubPath{
				onRun: func(ctx context.Context) error {
					<-ctx.Done()
					close(ended)
					return nil
				},
				onDrain: func(ctx context.Context) error { // something under way is never acknowledged
					close(draining)
					<-ctx.Done()
					return ctx.Err()
				},
			}
			assigned := make(chan mirror.Assignment, 1)
			path.onAssign = func(as []mirror.Assignment) { assigned <- as[0] }
			m := newMemory()
			m.bend(func(ctx context.Context) error {
				select {
				case <-ended:
				default:
					return errors.New("not now") // nothing is stored before the stop
				}
				if tt.stuck {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			cfg := settings(w.name, w.src, w.tgt, topic)
			cfg.Sink = newSink()
			task, err := newTask(cfg, stubRooms(path, m, stubSyncs{}))
			require.NoError(t, err)
			ctx, cut := context.WithCancelCause(context.Background())
			defer cut(nil)
			done := make(chan error, 1)
			go func() { done <- task.Run(ctx) }()
			a := <-assigned
			require.NotZero(t, a.TargetTopicID, "the path keeps to the topic that the start was decided for")
			observer{task}.Mirrored(a.Source, []mirror.Span{{Source: 0, Target: 0, Count: 7}}, mirror.Point{Source: 7, Target: 7, ProducerID: -1})
			observer{task}.Passed(a.Source, 7)
			dctx, hurry := context.WithCancelCause(context.Background())
			defer hurry(nil)
			drained := make(chan error, 1)
			go func() { drained <- task.Drain(dctx) }()
			<-draining
			began := time.Now()
			if tt.throughRun {
				cut(ErrDrainOverdue)
			} else {
				hurry(ErrDrainOverdue)
			}
			require.ErrorIs(t, <-done, ErrDrainOverdue)
			require.ErrorIs(t, <-drained, ErrDrainOverdue)
			require.Less(t, time.Since(began), 2*time.Second)
			if !tt.stuck {
				require.EqualValues(t, 7, m.position(w.remote(topic), 0))
			}
		})
	}
}

func TestARunThatIsOverdueFromTheStartOfItsStopEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := fakes(t, "overdue2")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	f := runTask(t, settings(w.name, w.src, w.tgt, topic), stubRooms(&stubPath{}, newMemory(), stubSyncs{}))
	f.untilState(report.Running)
	f.over = true
	f.stop(ErrDrainOverdue)
	require.ErrorIs(t, <-f.done, ErrDrainOverdue)
}

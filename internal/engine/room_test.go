package engine

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// memory is a store in memory whose saves a test can bend.
type memory struct {
	mu      sync.Mutex
	entries map[state.Key]state.Entry
	notes   map[string][]byte
	onSave  func(context.Context) error // called without the lock before each Save
	load    error
}

func newMemory() *memory {
	return &memory{entries: map[state.Key]state.Entry{}, notes: map[string][]byte{}}
}

func (m *memory) Load(context.Context) (map[state.Key]state.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.entries), m.load
}

func (m *memory) Save(ctx context.Context, entries map[state.Key]state.Entry) error {
	m.mu.Lock()
	f := m.onSave
	m.mu.Unlock()
	if f != nil {
		if err := f(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.entries, entries)
	return nil
}

func (m *memory) bend(f func(context.Context) error) {
	m.mu.Lock()
	m.onSave = f
	m.mu.Unlock()
}

func (m *memory) position(remote string, partition int32) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.entries[state.Key{RemoteTopic: remote, Partition: partition}]; ok {
		return e.Position
	}
	return -1
}

func (m *memory) Forget(context.Context, []state.Key) error { return nil }
func (m *memory) Check(context.Context) error               { return nil }
func (m *memory) Close()                                    {}

func (m *memory) Note(name string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.notes[name]
	return v, ok
}

func (m *memory) SaveNote(_ context.Context, name string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[name] = value
	return nil
}

// stubPath is a path that copies nothing.
type stubPath struct {
	mu         sync.Mutex
	assigned   []mirror.Assignment
	unassigned []mirror.TP
	onRun      func(context.Context) error // default: waits for the end of its context
	onAssign   func([]mirror.Assignment)
	onDrain    func(context.Context) error
}

func (p *stubPath) Run(ctx context.Context) error {
	if p.onRun != nil {
		return p.onRun(ctx)
	}
	<-ctx.Done()
	return nil
}

func (p *stubPath) Assign(as []mirror.Assignment) {
	p.mu.Lock()
	p.assigned = append(p.assigned, as...)
	p.mu.Unlock()
	if p.onAssign != nil {
		p.onAssign(as)
	}
}

func (p *stubPath) Unassign(_ context.Context, tps []mirror.TP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unassigned = append(p.unassigned, tps...)
	return nil
}

func (p *stubPath) Drain(ctx context.Context) error {
	if p.onDrain != nil {
		return p.onDrain(ctx)
	}
	return nil
}

func (p *stubPath) InFlight() int64 { return 0 }

// stubSyncs are offset syncs that go nowhere.
type stubSyncs struct {
	onFlush func(context.Context) error
}

func (s stubSyncs) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func (s stubSyncs) Observe(string, int32, []mirror.Span) {}
func (s stubSyncs) Forget(string, int32)                 {}

func (s stubSyncs) Flush(ctx context.Context) error {
	if s.onFlush != nil {
		return s.onFlush(ctx)
	}
	return nil
}

// stubRooms are rooms of the test's; the topics room is the real one.
func stubRooms(p mirror.Path, m *memory, s stubSyncs, beside ...runner) rooms {
	return rooms{
		path:   func(*Task) (mirror.Path, error) { return p, nil },
		store:  func(*Task) (store, error) { return m, nil },
		syncs:  func(*Task) (offsetSyncs, error) { return s, nil },
		beside: func(*Task) ([]runner, error) { return beside, nil },
	}
}

// idle is a task that does not run, for its parts to be called one by one.
func idle(t *testing.T, change ...func(*Config)) (*Task, *stubPath, *memory) {
	t.Helper()
	cfg := settings("idle", "127.0.0.1:1", "127.0.0.1:2", ".*")
	cfg.Sink = newSink()
	for _, f := range change {
		f(&cfg)
	}
	p, m := &stubPath{}, newMemory()
	task, err := newTask(cfg, stubRooms(p, m, stubSyncs{}))
	require.NoError(t, err)
	t.Cleanup(task.close)
	task.path, task.store, task.syncs = p, m, stubSyncs{}
	return task, p, m
}

// hold gives a task a partition as if it had been started, at a position.
func hold(t *testing.T, task *Task, topic string, number int32, as string, position int64) *partition {
	t.Helper()
	p := newPartition(mirror.TP{Topic: topic, Partition: number}, "idle.src."+topic)
	p.state, p.redecide, p.position, p.targetNext = as, false, position, position
	p.offsets = mapOf(t, [3]int64{0, 0, position})
	p.sourceTopicID, p.targetTopicID = [16]byte{1}, [16]byte{2}
	p.touch()
	task.parts.add(p)
	return p
}

// found is a discovery of topics, with three partitions each, and what the target has of them.
func found(names ...string) (topics.Discovery, topics.Target) {
	d := topics.Discovery{Unclear: map[string]bool{}}
	d.Undecided = map[string]error{}
	have := topics.Target{Topics: map[string]topics.TargetTopic{}, Errors: map[string]error{}}
	for _, name := range names {
		s := topics.Selected{Topic: topics.SourceTopic{Name: name, ID: [16]byte{1}, Partitions: 3}, Remote: "idle.src." + name}
		d.Topics = append(d.Topics, s)
		have.Topics[s.Remote] = topics.TargetTopic{ID: [16]byte{2}, Partitions: 3, Leaders: true}
	}
	return d, have
}

func stateOfPartition(p *partition) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.redecide
}

func conditionsOf(task *Task, code string) []report.Condition {
	var out []report.Condition
	for _, c := range task.board.List() {
		if c.Code == code {
			out = append(out, c)
		}
	}
	return out
}

package groups

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

type suite struct{ m *testing.M }

func (s suite) Run() int { return kafkatest.Run(s.m) }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(suite{m})
}

const (
	sourceAlias = "k3x9f0a2b.kafka-1f6c02aa" // contains the separator
	targetAlias = "t7.kafka-00"
)

// prefixed matches the groups of one test on a shared cluster.
type prefixed string

func (p prefixed) Matches(name string) (bool, error) { return strings.HasPrefix(name, string(p)), nil }

// shift translates by a fixed distance for each partition, as far as it is told to be acknowledged.
type shift struct {
	mu    sync.Mutex
	by    map[partition]int64
	acked map[partition]int64 // next source offset to be acknowledged; absent: all is
	ids   map[string][16]byte // of the target's topics, by source topic
}

func (s *shift) Translate(topic string, id int32, offset int64) (Translation, bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by, ok := s.by[partition{topic, id}]
	if !ok {
		return Translation{}, false, "nothing is mirrored yet"
	}
	if acked, ok := s.acked[partition{topic, id}]; ok && offset > acked {
		return Translation{Target: acked + by, Bound: offset - acked, TopicID: s.ids[topic]}, true, ""
	}
	return Translation{Target: offset + by, Exact: true, TopicID: s.ids[topic]}, true, ""
}

func (s *shift) set(topic string, id int32, by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[partition{topic, id}] = by
}

// belong says that the translations of a topic belong to one of that id on the target.
func (s *shift) belong(topic string, id [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = map[string][16]byte{topic: id}
}

func (s *shift) ack(topic string, id int32, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked[partition{topic, id}] = next
}

// world is one flow's groups between two real clusters.
type world struct {
	t              *testing.T
	source, target *kafkatest.Cluster
	from, to       *kadm.Client
	topic, remote  string
	prefix         string
	alias          string
	translator     *shift
	board          *report.Board
	cfg            Config
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, source: kafkatest.Shared(t, kafkatest.V39), target: kafkatest.Shared(t, kafkatest.V43),
		topic: kafkatest.UniqueName(t), board: report.NewBoard(time.Now),
		translator: &shift{by: map[partition]int64{}, acked: map[partition]int64{}},
	}
	w.prefix = w.topic + "-"
	// Each test has its own checkpoints topic.
	w.alias = sourceAlias + "-" + w.topic
	policy, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	w.remote = policy.FormatRemoteTopic(w.alias, w.topic)
	kafkatest.CreateTopic(t, w.source, w.topic, 3, nil)
	kafkatest.CreateTopic(t, w.target, w.remote, 3, nil)
	w.from, w.to = kafkatest.Admin(t, w.source), kafkatest.Admin(t, w.target)
	w.warm()
	for id := range int32(3) {
		w.translator.set(w.topic, id, 0)
	}
	w.cfg = Config{
		Source: kafkatest.Client(t, w.source), Target: kafkatest.Client(t, w.target, kgo.RecordPartitioner(kgo.ManualPartitioner())),
		Policy: policy, SourceAlias: w.alias, TargetAlias: targetAlias,
		GroupFilter: mm2.NewGroupFilter([]mm2.Matcher{prefixed(w.prefix)}, nil),
		TopicFilter: func(topic string) bool { return topic == w.topic },
		Translator:  w.translator, SyncGroupOffsets: true, SyncInterval: time.Second, CheckpointInterval: time.Second,
		RefreshInterval: time.Second, ReplicationFactor: -1, Board: w.board, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&w.cfg)
	}
	return w
}

// warm waits until both clusters have their group coordinators, which a new cluster makes at the first commit.
func (w *world) warm() {
	w.t.Helper()
	for admin, topic := range map[*kadm.Client]string{w.from: w.topic, w.to: w.remote} {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, 0, -1)
		wait.For(w.t, time.Minute, "the group coordinators", func() error {
			return admin.CommitAllOffsets(w.t.Context(), "warm-"+topic, offsets)
		})
	}
}

func (w *world) room() *Room {
	w.t.Helper()
	r, err := New(w.cfg)
	require.NoError(w.t, err)
	return r
}

// run runs a new room until the test or the returned function ends it.
func (w *world) run() (r *Room, stop func()) {
	w.t.Helper()
	r = w.room()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(stop)
	return r, stop
}

func (w *world) group(name string) string { return w.prefix + name }

func (w *world) commit(group string, offsets map[int32]int64) {
	w.t.Helper()
	kafkatest.Commit(w.t, w.source, group, w.topic, offsets)
}

func (w *world) committed(group string) map[int32]int64 {
	w.t.Helper()
	return kafkatest.Committed(w.t, w.target, group, w.remote)
}

func (w *world) want(group string, offsets map[int32]int64) error {
	if got := w.committed(group); !maps.Equal(got, offsets) {
		return fmt.Errorf("the target has %v, not %v", got, offsets)
	}
	return nil
}

// condition returns a group's condition of a code.
func (w *world) condition(code, group string) (report.Condition, bool) {
	for _, c := range w.board.List() {
		if c.Code == code && c.Subject.Group == group {
			return c, true
		}
	}
	return report.Condition{}, false
}

// checkpoints are all records of the checkpoints topic, oldest first.
func (w *world) checkpoints() []mm2.Checkpoint {
	w.t.Helper()
	var all []mm2.Checkpoint
	topic := w.cfg.Policy.CheckpointsTopic(w.alias)
	if there, err := w.to.ListTopics(w.t.Context(), topic); err != nil || !there.Has(topic) {
		require.NoError(w.t, err)
		return nil
	}
	for id, records := range kafkatest.ReadAll(w.t, w.target, topic, kafkatest.ReadCommitted) {
		for _, rec := range records {
			require.Zero(w.t, id, "readers look at partition 0 only")
			c, err := mm2.DecodeCheckpoint(rec.Key, rec.Value)
			require.NoError(w.t, err)
			all = append(all, c)
		}
	}
	return all
}

// shown returns what the status says about a group's partition.
func shown(r *Room, group string, id int32) (report.GroupOffset, bool) {
	for _, g := range r.Groups() {
		if g.Group != group {
			continue
		}
		for _, o := range g.Offsets {
			if o.Partition == id {
				return o, true
			}
		}
	}
	return report.GroupOffset{}, false
}

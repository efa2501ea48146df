package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func TestMain(m *testing.M) {
	code := kafkatest.Run(m)
	if code == 0 {
		// The pattern engine's clock ends by itself.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// sink records what a task tells.
type sink struct {
	mu     sync.Mutex
	last   report.Status
	states []report.State
	events []report.Event
	wake   chan struct{}
	refuse error
}

func newSink() *sink { return &sink{wake: make(chan struct{}, 1)} }

func (s *sink) Status(st report.Status) {
	s.mu.Lock()
	s.last = st
	if n := len(s.states); n == 0 || s.states[n-1] != st.State {
		s.states = append(s.states, st.State)
	}
	s.mu.Unlock()
	signal(s.wake)
}

func (s *sink) Event(_ context.Context, e report.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	s.events = append(s.events, e)
	return nil
}

func (s *sink) status() report.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *sink) eventsOf(code string) []report.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []report.Event
	for _, e := range s.events {
		if e.Code == code {
			out = append(out, e)
		}
	}
	return out
}

func condition(st report.Status, code string) *report.Condition {
	for i, c := range st.Conditions {
		if c.Code == code {
			return &st.Conditions[i]
		}
	}
	return nil
}

// flow is a running task.
type flow struct {
	tb   testing.TB
	task *Task
	sink *sink
	stop context.CancelCauseFunc
	done chan error
	over bool
}

func cluster(bootstrap ...string) kafka.Cluster {
	return kafka.Cluster{BootstrapServers: bootstrap, Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"})}
}

// settings are a flow's between two clusters with quick intervals; change what matters to the test.
func settings(name, source, target string, patterns ...string) Config {
	level := slog.LevelError + 4
	if os.Getenv("ENGINE_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return Config{
		Identity: Identity{FlowID: "flow-" + name, Tasks: 1, Worker: "w", LeaseEpoch: 1},
		Source:   cluster(source), Target: cluster(target),
		SourceAlias: name + ".src", TargetAlias: name + ".tgt", Separator: ".",
		Topics: patterns, GroupExcludeList: []string{`.*`}, ReplicationFactor: -1, OffsetLagMax: 100,
		RefreshTopicsInterval: 500 * time.Millisecond, EmitCheckpointsInterval: time.Second, RefreshGroupsInterval: time.Second,
		SyncInterval: time.Second, EmitHeartbeatsInterval: 500 * time.Millisecond, SyncTopicConfigs: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
}

// run starts a flow that ends with the test at the latest.
func run(tb testing.TB, cfg Config) *flow {
	tb.Helper()
	return runTask(tb, cfg, defaultRooms())
}

// runTask is run with rooms of the test's.
func runTask(tb testing.TB, cfg Config, r rooms) *flow {
	tb.Helper()
	f := &flow{tb: tb, sink: newSink(), done: make(chan error, 1)}
	if s, ok := cfg.Sink.(*sink); ok {
		f.sink = s
	}
	cfg.Sink = f.sink
	var err error
	f.task, err = newTask(cfg, r)
	require.NoError(tb, err)
	ctx, stop := context.WithCancelCause(context.Background())
	f.stop = stop
	go func() { f.done <- f.task.Run(ctx) }()
	tb.Cleanup(func() {
		if !f.over {
			f.kill()
		}
		if tb.Failed() {
			tb.Logf("last status: %+v", f.sink.status())
		}
	})
	return f
}

// ownStore opens a task's state with a client of its own.
func ownStore(t *Task) (*state.TopicStore, error) {
	cfg := t.stateConfig()
	cfg.Target, cfg.ClientID = t.cfg.Target, "test"
	return state.Open(cfg)
}

// kill ends the flow as a lost lease does: nothing is stored.
func (f *flow) kill() {
	f.tb.Helper()
	f.over = true
	f.stop(ErrLeaseLost)
	require.ErrorIs(f.tb, <-f.done, ErrLeaseLost)
}

// drain ends the flow cleanly.
func (f *flow) drain() {
	f.tb.Helper()
	f.over = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(f.tb, f.task.Drain(ctx))
	require.NoError(f.tb, <-f.done)
}

// until waits for a status that satisfies ok.
func (f *flow) until(what string, ok func(report.Status) bool) report.Status {
	f.tb.Helper()
	limit := time.After(30 * time.Second)
	for {
		if st := f.sink.status(); ok(st) {
			return st
		}
		select {
		case <-f.sink.wake:
		case err := <-f.done:
			f.over = true
			require.Failf(f.tb, "the task ended", "%v while waiting until %s", err, what)
		case <-limit:
			require.Failf(f.tb, "waited too long", "until %s; status %+v", what, f.sink.status())
		}
	}
}

// untilPosition waits until the positions of a topic add up to n and all is acknowledged.
func (f *flow) untilPosition(topic string, n int64) {
	f.tb.Helper()
	f.until(fmt.Sprintf("%s is at %d", topic, n), func(st report.Status) bool {
		sum := int64(-1)
		for _, t := range st.Topics {
			if t.Name == topic {
				sum = 0
				for _, p := range t.Partitions {
					sum += max(0, p.Position)
				}
			}
		}
		return sum == n
	})
}

func (f *flow) untilState(want report.State) report.Status {
	f.tb.Helper()
	return f.until("state "+string(want), func(st report.Status) bool { return st.State == want })
}

func (f *flow) untilCondition(code string) report.Condition {
	f.tb.Helper()
	st := f.until("condition "+code, func(st report.Status) bool { return condition(st, code) != nil })
	return *condition(st, code)
}

// eventually polls what another process does.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			require.Failf(tb, "waited too long", "until %s", what)
		}
	}
}

// world is a source and a target with clients.
type world struct {
	tb           testing.TB
	name         string
	src, tgt     string // bootstrap addresses
	srcAdm       *kadm.Client
	tgtAdm       *kadm.Client
	srcCl, tgtCl *kgo.Client

	targetCluster *kfake.Cluster // of fakes only
}

// real is Kafka 3.9 as source and 4.3 as target, shared by the tests of the package.
func real(tb testing.TB, name string) *world {
	tb.Helper()
	s, t := kafkatest.Shared(tb, kafkatest.V39), kafkatest.Shared(tb, kafkatest.V43)
	w := &world{tb: tb, name: name, src: s.Bootstrap(), tgt: t.Bootstrap()}
	w.clients()
	return w
}

func (w *world) clients() {
	client := func(addr string) *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.MetadataMinAge(20*time.Millisecond), kgo.UnknownTopicRetries(-1))
		require.NoError(w.tb, err)
		w.tb.Cleanup(cl.Close)
		return cl
	}
	w.srcCl, w.tgtCl = client(w.src), client(w.tgt)
	w.srcAdm, w.tgtAdm = kadm.NewClient(w.srcCl), kadm.NewClient(w.tgtCl)
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	w.tb.Cleanup(cancel)
	return ctx
}

// topic names a topic of the test.
func (w *world) topic(name string) string { return w.name + "-" + name }

// remote is the topic's name on the target under settings' aliases and the default policy.
func (w *world) remote(topic string) string { return w.name + ".src." + topic }

func (w *world) create(adm *kadm.Client, topic string, partitions int32, configs map[string]string) {
	w.tb.Helper()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	resp, err := adm.CreateTopic(w.ctx(), partitions, 1, values, topic)
	require.NoError(w.tb, err)
	require.NoError(w.tb, resp.Err)
	// The controller knows of it before the broker that is asked next.
	eventually(w.tb, topic+" shows", func() bool {
		ts, err := adm.ListTopics(w.ctx(), topic)
		return err == nil && ts.Error() == nil && len(ts[topic].Partitions) == int(partitions)
	})
}

// produce writes n records to a partition whose values go on from base, and waits for them.
func (w *world) produce(cl *kgo.Client, topic string, partition int32, base, n int) {
	w.tb.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", (base+i)%7), Value: fmt.Appendf(nil, "%d/%d", partition, base+i)}
	}
	// A client of its own: one that knew the topic before would not see new partitions, or a topic made anew, at once.
	own, err := kgo.NewClient(append(cl.Opts(), kgo.ClientID("test"))...)
	require.NoError(w.tb, err)
	defer own.Close()
	require.NoError(w.tb, own.ProduceSync(w.ctx(), recs...).FirstErr())
}

// read returns the values of a partition, from its start to its end now.
func (w *world) read(adm *kadm.Client, addr, topic string, partition int32) []string {
	w.tb.Helper()
	var out []string
	for _, r := range w.records(adm, addr, topic, partition) {
		out = append(out, string(r.Value))
	}
	return out
}

func (w *world) records(adm *kadm.Client, addr, topic string, partition int32) []*kgo.Record {
	w.tb.Helper()
	ends, err := adm.ListEndOffsets(w.ctx(), topic)
	require.NoError(w.tb, err)
	end, ok := ends.Lookup(topic, partition)
	require.Truef(w.tb, ok, "%s-%d does not exist", topic, partition)
	known := w.srcCl
	if addr == w.tgt {
		known = w.tgtCl
	}
	cl, err := kgo.NewClient(append(known.Opts(), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))...)
	require.NoError(w.tb, err)
	defer cl.Close()
	starts, err := adm.ListStartOffsets(w.ctx(), topic)
	require.NoError(w.tb, err)
	start, _ := starts.Lookup(topic, partition)
	var out []*kgo.Record
	for next := start.Offset; next < end.Offset; {
		fetches := cl.PollFetches(w.ctx())
		require.NoError(w.tb, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < end.Offset && !r.Attrs.IsControl() {
				out = append(out, r)
			}
			next = r.Offset + 1
		})
	}
	return out
}

// want are the values that produce wrote from base on.
func want(partition int32, base, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%d/%d", partition, base+i)
	}
	return out
}

func configOf(tb testing.TB, adm *kadm.Client, topic, key string) (value string, override bool) {
	tb.Helper()
	rcs, err := adm.DescribeTopicConfigs(context.Background(), topic)
	require.NoError(tb, err)
	rc, err := rcs.On(topic, nil)
	require.NoError(tb, err)
	require.NoError(tb, rc.Err)
	for _, c := range rc.Configs {
		if c.Key == key {
			return c.MaybeValue(), int8(c.Source) == 1
		}
	}
	return "", false
}

package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestMain(m *testing.M) {
	code := kafkatest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// watcher is an Observer that keeps everything and checks the order of calls.
type watcher struct {
	mu          sync.Mutex
	spans       map[TP][]Span
	passed      map[TP]int64
	ends        map[TP]Ends
	stops       map[TP][]Stop
	open        map[TP]*Stop // not resumed
	connections []string
	idempotence []error
	faults      []string
}

func newWatcher() *watcher {
	return &watcher{spans: map[TP][]Span{}, passed: map[TP]int64{}, ends: map[TP]Ends{}, stops: map[TP][]Stop{}, open: map[TP]*Stop{}}
}

func (w *watcher) Mirrored(tp TP, spans []Span, _ Point) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range spans {
		all := w.spans[tp]
		if n := len(all); n > 0 && s.Source < all[n-1].Source+all[n-1].Count {
			w.faults = append(w.faults, fmt.Sprintf("%v: span %+v after %+v", tp, s, all[n-1]))
		}
		w.spans[tp] = append(all, s)
	}
}

func (w *watcher) Passed(tp TP, next int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if next < w.passed[tp] {
		w.faults = append(w.faults, fmt.Sprintf("%v: passed %d after %d", tp, next, w.passed[tp]))
	}
	w.passed[tp] = next
}

func (w *watcher) Seen(tp TP, e Ends) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[tp] = e
}

func (w *watcher) Stopped(tp TP, s Stop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops[tp] = append(w.stops[tp], s)
	w.open[tp] = &s
}

func (w *watcher) Resumed(tp TP) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[tp] = nil
}

func (w *watcher) Connection(side string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connections = append(w.connections, fmt.Sprintf("%s %v", side, err))
}

func (w *watcher) Idempotence(denied error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idempotence = append(w.idempotence, denied)
}

// forget drops what is known of a partition, before it is assigned anew at an older offset.
func (w *watcher) forget(tp TP) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.spans, tp)
	delete(w.passed, tp)
	delete(w.open, tp)
}

func (w *watcher) position(tp TP) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed[tp]
}

func (w *watcher) stopped(tp TP) *Stop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[tp]
}

func (w *watcher) stopCount(tp TP) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stops[tp])
}

// bench is a path between two clusters.
type bench struct {
	tb   testing.TB
	path *mirror
	seen *watcher
	end  func()
}

func plain(side string, bootstraps ...string) kafka.Cluster {
	return kafka.Cluster{
		Side: side, BootstrapServers: bootstraps, Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"}),
	}
}

// way is how records are moved.
type way string

const (
	records way = "records" // every batch put together anew
	batches way = "batches" // batches pass where they may
)

// onBothPaths runs a test of what a Path promises either way.
func onBothPaths(t *testing.T, test func(t *testing.T, on way)) {
	t.Helper()
	for _, on := range []way{records, batches} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}

// run starts a path that ends with the test, or when end is called.
func run(tb testing.TB, on way, source, target kafka.Cluster, change func(*Config)) *bench {
	tb.Helper()
	seen := newWatcher()
	cfg := Config{
		Source: source, Target: target, ClientID: "s->t|flow-0", Flow: "flow", Observer: seen, Registry: prometheus.NewRegistry(),
		PassThrough: on == batches, Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})), RetryMin: 200 * time.Millisecond, RetryMax: time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	path, err := newMirror(cfg)
	require.NoError(tb, err)
	return start(tb, path, seen)
}

// start is run with a path that is made already.
func start(tb testing.TB, path *mirror, seen *watcher) *bench {
	tb.Helper()
	b := &bench{tb: tb, path: path, seen: seen}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.path.Run(ctx) }()
	b.end = sync.OnceFunc(func() {
		cancel()
		require.NoError(tb, <-done)
		require.Zero(tb, b.path.InFlight(), "bytes in flight after the end")
		require.Empty(tb, b.seen.faults)
	})
	tb.Cleanup(b.end)
	return b
}

// shared runs a path between the two brokers that all tests use.
func shared(tb testing.TB, on way, change func(*Config)) (s, t *kafkatest.Cluster, b *bench) {
	tb.Helper()
	s, t = kafkatest.Shared(tb, kafkatest.V39), kafkatest.Shared(tb, kafkatest.V43)
	return s, t, run(tb, on, plain("source", s.Bootstrap()), plain("target", t.Bootstrap()), change)
}

// assign gives the path all partitions of a topic from start on; the copy has the name remote(topic).
func (b *bench) assign(topic string, partitions int32, start int64) {
	var as []Assignment
	for p := range partitions {
		as = append(as, Assignment{Source: TP{topic, p}, Target: TP{remote(topic), p}, Start: start})
	}
	b.path.Assign(as)
}

func remote(topic string) string { return "s." + topic }

// until waits until every partition's position is at the end that a consumer of the given isolation could reach.
func (b *bench) until(source *kafkatest.Cluster, topic string) {
	b.tb.Helper()
	ends := logEnds(b.tb, source, topic)
	wait.For(b.tb, 40*time.Second, "positions of "+topic+" at the log end", func() error {
		for p, end := range ends {
			// A marker may follow after the end was listed.
			if at := b.seen.position(TP{topic, p}); at < end {
				return fmt.Errorf("partition %d is at %d of %d, stop %+v", p, at, end, b.seen.stopped(TP{topic, p}))
			}
		}
		return nil
	})
}

func logEnds(tb testing.TB, c *kafkatest.Cluster, topic string) map[int32]int64 {
	tb.Helper()
	listed, err := kafkatest.Admin(tb, c).ListEndOffsets(context.Background(), topic)
	require.NoError(tb, errors.Join(err, listed.Error()))
	ends := map[int32]int64{}
	listed.Each(func(o kadmOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// untilStopped waits for a stop of the given reason.
func (b *bench) untilStopped(tp TP, reason Reason) Stop {
	b.tb.Helper()
	var got Stop
	wait.For(b.tb, 30*time.Second, fmt.Sprintf("stop %s of %v", reason, tp), func() error {
		if s := b.seen.stopped(tp); s != nil && s.Reason == reason {
			got = *s
			return nil
		}
		return fmt.Errorf("stop %+v, position %d", b.seen.stopped(tp), b.seen.position(tp))
	})
	return got
}

// requireSpans checks that the spans reported say where the records lie: pairing the topics through them gives equal records.
func (b *bench) requireSpans(source, target map[int32][]kafkatest.Record, topic string) {
	b.tb.Helper()
	for p, records := range source {
		spans := b.seen.spans[TP{topic, p}]
		at := map[int64]int64{}
		for _, s := range spans {
			for i := range s.Count {
				at[s.Source+i] = s.Target + i
			}
		}
		require.Len(b.tb, at, len(records), "records in the spans of partition %d", p)
		for i, r := range records {
			require.Equal(b.tb, target[p][i].Offset, at[r.Offset], "target offset of source offset %d in partition %d", r.Offset, p)
		}
	}
}

func (b *bench) connections() []string {
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	return slices.Clone(b.seen.connections)
}

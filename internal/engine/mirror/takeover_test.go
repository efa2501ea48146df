package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// ledger keeps points as a state topic would: what was stored before the end is what a successor knows.
type ledger struct {
	mu     sync.Mutex
	points map[TP]Point
	fails  error
}

func (l *ledger) anchor(_ context.Context, points map[TP]Point) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails != nil {
		return l.fails
	}
	if l.points == nil {
		l.points = map[TP]Point{}
	}
	maps.Copy(l.points, points)
	return nil
}

func (l *ledger) stored(tp TP) (Point, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.points[tp]
	return at, ok
}

// successor assigns the partitions of a topic at their stored points.
func (b *bench) successor(l *ledger, topic string, partitions int32) {
	var as []Assignment
	for p := range partitions {
		a := Assignment{Source: TP{topic, p}, Target: TP{remote(topic), p}}
		if at, ok := l.stored(a.Source); ok {
			a.Start, a.Point = at.Source, &at
		}
		as = append(as, a)
	}
	b.path.Assign(as)
}

func create(t *testing.T, source, target *kafkatest.Cluster, partitions int32) string {
	t.Helper()
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, partitions, nil)
	kafkatest.CreateTopic(t, target, remote(topic), partitions, nil)
	return topic
}

func requireCopied(t *testing.T, source, target *kafkatest.Cluster, topic string) {
	t.Helper()
	kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadUncommitted))
}

// TestASuccessorWritesNothingTwice lets runs end in the middle, each with nothing stored but what was before its first record, and
// the next go on.
func TestASuccessorWritesNothingTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		const partitions = 3
		l := &ledger{}
		source, target, b := shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		topic := create(t, source, target, partitions)
		next := uint64(0)
		for range 5 {
			next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 2000, Partitions: partitions, FirstID: next})
			before := total(t, target, remote(topic))
			b.successor(l, topic, partitions)
			wait.For(t, 30*time.Second, "some records more", func() error {
				if n := total(t, target, remote(topic)); n < before+100 {
					return fmt.Errorf("%d records", n)
				}
				return nil
			})
			b.end() // in the middle, perhaps; what the path told is not stored
			_, _, b = shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		}
		b.successor(l, topic, partitions)
		b.until(source, topic)
		requireCopied(t, source, target, topic)
		for p := range int32(partitions) {
			at, ok := l.stored(TP{topic, p})
			require.True(t, ok)
			require.Zero(t, at.Source, "the first run's point still counts")
			require.Zero(t, at.Epoch, "the producer went on")
		}
		// The spans of the last run begin at the point, so its map is whole.
		records := map[int32][]kafkatest.Record{}
		copied := map[int32][]kafkatest.Record{}
		maps.Copy(records, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted))
		maps.Copy(copied, kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadUncommitted))
		b.requireSpans(records, copied, topic)
	})
}

// TestASuccessorGoesOnWithinABatchAndBehindOthersRecords has an earlier run's records end in the middle of a source batch, with
// records of somebody else between and behind them.
func TestASuccessorGoesOnWithinABatchAndBehindOthersRecords(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		l := &ledger{}
		source, target, b := shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		topic := create(t, source, target, 1)
		tp := TP{topic, 0}
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10, Plain: true})
		b.successor(l, topic, 1)
		b.until(source, topic)
		b.end()
		foreign := &kgo.Record{Topic: remote(topic), Value: []byte("somebody else's")}
		kafkatest.Produce(t, target, remote(topic), foreign)
		at, ok := l.stored(tp)
		require.True(t, ok)

		// The earlier run had not come to the end of a batch of 40 when it ended: what it had written is cut to the part before.
		_, _, b = shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		b.successor(l, topic, 1)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 30, Plain: true, FirstID: 100})
		b.until(source, topic)
		b.end()
		// As if no more than the first seven of the source's batch of ten had been known as one batch.
		at.Source, at.Target, at.Sequence = 7, 7, 7
		l.points[tp] = at
		_, _, b = shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		b.successor(l, topic, 1)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 5, Plain: true, FirstID: 200})
		b.until(source, topic)
		got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadUncommitted)[0]
		require.Len(t, got, 46, "45 records of ours, each once, and one of somebody else")
	})
}

// TestAPointIsStoredBeforeAnythingIsSent has the storing fail.
func TestAPointIsStoredBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	l := &ledger{fails: errors.New("the state topic is away")}
	source, target, b := shared(t, batches, func(c *Config) { c.Anchor, c.AnchorPatience = l.anchor, time.Hour })
	topic := create(t, source, target, 1)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10})
	b.successor(l, topic, 1)
	wait.For(t, 20*time.Second, "records that wait", func() error {
		if n := b.path.InFlight(); n == 0 {
			return errors.New("none")
		}
		return nil
	})
	require.Zero(t, total(t, target, remote(topic)))
	l.mu.Lock()
	l.fails = nil
	l.mu.Unlock()
	b.until(source, topic)
	requireCopied(t, source, target, topic)
	at, ok := l.stored(TP{topic, 0})
	require.True(t, ok)
	require.Equal(t, Point{ProducerID: at.ProducerID}, at)
}

// TestWithoutAPointCopyingGoesOnAfterAWhile: a target that lets no state be kept is copied to all the same.
func TestWithoutAPointCopyingGoesOnAfterAWhile(t *testing.T) {
	t.Parallel()
	l := &ledger{fails: errors.New("the state topic is denied")}
	source, target, b := shared(t, batches, func(c *Config) { c.Anchor, c.AnchorPatience = l.anchor, time.Second })
	topic := create(t, source, target, 2)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Partitions: 2})
	b.successor(l, topic, 2)
	b.until(source, topic)
	requireCopied(t, source, target, topic)
}

// TestWhatAnEarlierRunWroteAfterItWasTakenOverIsNotWrittenTwice has two runs live, as when a worker stood still for longer
// than its lease.
func TestWhatAnEarlierRunWroteAfterItWasTakenOverIsNotWrittenTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		l := &ledger{}
		source, target, former := shared(t, records, func(c *Config) { c.Anchor = l.anchor }) // with batches of its own size
		topic := create(t, source, target, 2)
		next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 2000, Partitions: 2})
		former.successor(l, topic, 2)
		former.until(source, topic)
		_, _, later := shared(t, on, func(c *Config) { c.Anchor = l.anchor })
		later.successor(l, topic, 2)
		for range 5 { // both see them at once
			next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2, FirstID: next})
		}
		later.until(source, topic)
		former.end()
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2, FirstID: next})
		later.until(source, topic)
		requireCopied(t, source, target, topic)
	})
}

// total is how many records a topic holds.
func total(t *testing.T, c *kafkatest.Cluster, topic string) (n int64) {
	t.Helper()
	for _, end := range logEnds(t, c, topic) {
		n += end
	}
	return n
}

// TestWhatIsNotTheSourcesIsNoPartOfACount has a source that holds other records than those that were copied, as after it lost
// its log's end and was written to again.
func TestWhatIsNotTheSourcesIsNoPartOfACount(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	source, target, b := shared(t, batches, func(c *Config) { c.Anchor = l.anchor })
	topic := create(t, source, target, 1)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10, Plain: true})
	b.successor(l, topic, 1)
	b.until(source, topic)
	b.end()
	at, ok := l.stored(TP{topic, 0})
	require.True(t, ok)

	other := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, other, 1, nil)
	kafkatest.Fill(t, source, other, kafkatest.FillOptions{Records: 12, Plain: true, FirstID: 500})
	_, _, b = shared(t, batches, nil)
	b.path.Assign([]Assignment{{Source: TP{other, 0}, Target: TP{remote(topic), 0}, Point: &at}})
	b.until(source, other)
	b.end()
	got := kafkatest.IDs(t, target, remote(topic), kafkatest.ReadUncommitted)[0]
	require.Len(t, got, 22)
	require.EqualValues(t, 500, got[10])
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	require.Len(t, b.seen.stops[TP{other, 0}], 1, "it is told")
	require.Contains(t, b.seen.stops[TP{other, 0}][0].Message, "from offset 0 to 9")
}

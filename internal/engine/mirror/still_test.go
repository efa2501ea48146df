package mirror

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// still is a path that does not run, with a partition whose leaders are known, so that a test chooses what comes when.
type still struct {
	*mirror
	tb   testing.TB
	part *part
	seen *watcher
}

func newStill(t *testing.T, change func(*Config)) *still {
	t.Helper()
	seen := newWatcher()
	cfg := Config{
		Source: plain("source", "127.0.0.1:1"), Target: plain("target", "127.0.0.1:1"), ClientID: "c", Observer: seen, PassThrough: true,
		RetryMin: time.Hour,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := newMirror(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.group.Wait()
		p.locked(func() { p.remove(p.order...) })
		require.Zero(t, p.InFlight())
		p.close()
	})
	p.life = t.Context()
	p.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 0}})
	s := &still{mirror: p, tb: t, part: p.parts[first], seen: seen}
	s.part.src.leader, s.part.tgt.leader = 0, 0
	s.part.id, s.part.hasID = identity{1, 0, 0}, true
	return s
}

// unit is one batch of four records.
func (s *still) unit(base int64) *unit {
	raw := at(encoded(s.tb, samples(0), identity{-1, -1, -1}), base)
	buf := s.pool.Get(len(raw))
	copy(buf.Bytes(), raw)
	return &unit{pool: s.pool, buf: buf, b: batch.Batch(buf.Bytes()), base: base, next: base + 4}
}

// read puts n batches into the partition's queue.
func (s *still) read(n int) {
	s.locked(func() {
		for range n {
			s.part.queue.add(&unpacked{units: []*unit{s.unit(s.part.fetchOffset)}})
			s.part.fetchOffset += 4
		}
		s.account(s.part)
	})
}

// sent has the next n batches under way without an answer.
func (s *still) sent(n int) (all []*sending) {
	s.locked(func() {
		for range n {
			b := s.take(s.part, time.Now())
			b.stage = awaited
			s.part.awaiting++
			all = append(all, b)
		}
	})
	return all
}

// answer is the target's for a batch.
func (s *still) answer(b *sending, code *kerr.Error) {
	w := written{leader: -1}
	if code != nil {
		w.code = code.Code
	} else {
		w.base = b.unit.base
	}
	s.locked(func() { s.produced(produceSend{part: s.part, batch: b}, w, nil) })
}

// next is the batch that the partition sends when its pauses are over.
func (s *still) next() (b *sending) {
	s.locked(func() { b = s.nextBatch(s.tb.Context(), s.part, &lane{}, time.Now().Add(time.Hour)) })
	return b
}

func (s *still) requireFlows() {
	s.tb.Helper()
	s.locked(func() {
		require.Empty(s.tb, s.part.under)
		require.False(s.tb, s.part.broken || s.part.describe || s.part.unread, "an empty pipeline flows")
	})
}

// A task that has ended must not write any more, though its request waited for its turn on a connection that others use.
func TestNothingIsWrittenAfterTheEndOfThePath(t *testing.T) {
	t.Parallel()
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	s := newStill(t, func(c *Config) { c.Target = plain("target", target.ListenAddrs()...) })
	s.target.cluster.SetBroker(0, target.ListenAddrs()[0])
	conn, err := s.target.cluster.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	s.read(1)
	b := s.sent(1)[0]
	j := &produceJob{began: time.Now(), sends: []produceSend{{part: s.part, batch: b, tp: s.part.asg.Target}}}
	ctx, end := context.WithCancel(t.Context())
	end()
	l := &lane{busy: 1}
	require.False(t, s.send(ctx, l, conn, j))
	_, err = conn.Request(t.Context(), kmsg.NewPtrApiVersionsRequest()) // is answered behind all that was written
	require.NoError(t, err)
	require.Zero(t, target.PartitionInfo(remote(topic), 0).HighWatermark)
	require.Zero(t, l.busy)
	require.Zero(t, s.part.awaiting)
	require.Equal(t, made, b.stage)
}

// What failed while another batch of the pipeline was awaited is gone into when that was not sent after all.
func TestARequestThatIsNotSentIsTheLastOneAwaited(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(2)
	all := s.sent(2)
	s.answer(all[0], kerr.NotEnoughReplicas)
	require.True(t, s.part.broken)
	s.locked(func() { s.withhold(&lane{busy: 1}, &produceJob{sends: []produceSend{{part: s.part, batch: all[1]}}}) })
	require.False(t, s.part.broken)
	require.Equal(t, all[0], s.next())
}

func TestAPartitionGoesOnThoughItStoppedWhileARefusalWasLookedInto(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(1)
	s.answer(s.sent(1)[0], kerr.MessageTooLarge)
	require.True(t, s.part.broken && s.part.describe)
	s.part.busy = true // the settings are being read
	s.locked(func() { s.stopPart(s.part, Stop{Reason: StopTargetDenied, Retry: true}) })
	s.requireFlows()
	s.understand(t.Context(), s.part, s.part.gen)
	s.locked(func() {
		s.retry(s.part)
		s.part.tgt.leader = 0
	})
	s.read(1)
	require.NotNil(t, s.next())
}

func TestADrainEndsWhenWhatIsUnderWayIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(1)
	b := s.sent(1)[0]
	s.part.failures = 2
	s.suspended = true // others need the memory
	idle := make(chan struct{})
	s.part.state, s.part.idle = closing, idle
	s.answer(b, kerr.NotEnoughReplicas)
	s.requireFlows()
	select {
	case <-idle:
	default:
		require.Fail(t, "nobody says that nothing is under way")
	}
}

func TestATimeOutLeavesTheConnectionOfOthersAlone(t *testing.T) {
	t.Parallel()
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	s := newStill(t, func(c *Config) { c.Target = plain("target", target.ListenAddrs()...) })
	s.target.cluster.SetBroker(0, target.ListenAddrs()[0])
	conn, err := s.target.cluster.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	s.read(3)
	all := s.sent(3)
	s.part.conn = conn
	s.answer(all[0], kerr.RequestTimedOut)
	require.NoError(t, conn.Err())
	require.True(t, s.part.broken, "nothing follows before the other answers")
	s.answer(all[1], kerr.RequestTimedOut)
	require.False(t, s.part.unread)
	s.answer(all[2], kerr.RequestTimedOut)
	require.True(t, s.part.unread)
}

func TestNoEventOfAnAssignmentIsToldAfterANewerOne(t *testing.T) {
	t.Parallel()
	for name, underWay := range map[string]int{"nothing under way": 0, "a request under way": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStill(t, nil)
			s.read(underWay)
			all := s.sent(underWay)
			s.locked(func() { s.tell(s.part, func(o Observer, tp TP) { o.Passed(tp, 999) }) })
			over, end := context.WithCancel(t.Context())
			end()
			require.ErrorIs(t, s.Unassign(over, []TP{first}), context.Canceled)
			if underWay > 0 { // it is kept until the answer
				s.events.run(over)
				require.Zero(t, s.seen.position(first))
			}
			s.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 5}})
			s.events.run(over)
			require.Zero(t, s.seen.position(first))
			for _, b := range all {
				s.answer(b, kerr.NotEnoughReplicas)
			}
		})
	}
}

// The batches of a former assignment lie in memory that is being sent, whatever happens to the partition meanwhile.
func TestWhatWaitsForTheAnswersOfAFormerAssignmentStaysWhenThePartitionStops(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(1)
	b := s.sent(1)[0]
	s.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 0}})
	s.locked(func() { s.stopPart(s.part, Stop{Reason: StopTargetDenied, Retry: true}) })
	require.NotNil(t, b.unit.buf, "its memory is given back while the request is on its way")
	s.answer(b, kerr.NotEnoughReplicas)
	s.requireFlows()
	s.locked(func() {
		s.retry(s.part)
		s.part.tgt.leader = 0
	})
	s.read(1)
	s.part.id, s.part.hasID = identity{1, 0, 0}, true
	require.NotNil(t, s.next())
}

// Where batches carry no producer, nothing refuses the second of two, so that what a broker still has in hand is waited for.
func TestWithoutAProducerWhatABrokerHasInHandIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.part.id, s.part.appendTime = identity{-1, -1, -1}, true
	s.read(1)
	b := s.sent(1)[0]
	began := time.Now()
	s.answer(b, kerr.NetworkException)
	require.True(t, s.part.unread)
	require.WithinRange(t, s.part.notBefore, began.Add(inHand), time.Now().Add(inHand))
}

func TestWhatTheTargetHasTakenKeepsItsNumbersWhenOthersGetNewOnes(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(3)
	all := s.sent(3)
	s.answer(all[0], kerr.OutOfOrderSequenceNumber)
	s.answer(all[1], nil)
	s.locked(func() {
		all[2].stage = made
		s.part.id = identity{2, 0, 0}
		s.renumber(s.part)
	})
	require.Equal(t, identity{2, 0, 0}, all[0].id)
	require.Equal(t, identity{1, 0, 4}, all[1].id)
	require.Equal(t, identity{2, 0, 4}, all[2].id)
}

// A request that waited behind those of other paths on the connection is not to blame for it.
func TestOnlyThePartitionsOfARequestThatTookLongItselfAreSlow(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	other := &part{}
	l, now := &lane{limit: requestBytes}, time.Now()
	alone := &produceJob{began: now.Add(-time.Minute), sends: []produceSend{{part: s.part}}}
	together := &produceJob{began: now.Add(-time.Minute), sends: []produceSend{{part: s.part}, {part: other}}}
	s.locked(func() { s.laneWorked(l, alone, time.Second, 0, now) })
	require.Zero(t, s.part.slow)
	s.locked(func() { s.laneWorked(l, together, time.Second, 0, now) })
	require.False(t, s.part.suspect || other.suspect)
	s.locked(func() { s.laneWorked(l, together, 3*time.Second, 0, now) })
	require.True(t, s.part.suspect && other.suspect)
	s.locked(func() { s.laneWorked(l, alone, 3*time.Second, 0, now) })
	require.Equal(t, slowAcks, s.part.slow)
	require.False(t, s.part.suspect)
}

func TestEveryForeignWriteIsToldAtOnceOrWithOthers(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.locked(func() {
		s.foreign(s.part, 10, 12)
		s.foreign(s.part, 20, 23)
		s.foreign(s.part, 30, 34)
		s.foreign(s.part, 50, 40) // of another kind: not behind the others
	})
	over, end := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() {
		defer close(running)
		s.events.run(over)
	}()
	require.NoError(t, s.events.flush(t.Context()))
	require.Equal(t, 2, s.seen.stopCount(first))
	s.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 0}}) // does not make it forget
	s.locked(func() { s.tellAllOdd(s.order) })
	end()
	<-running
	stops := s.seen.stops[first]
	require.Len(t, stops, 3)
	require.Equal(t, map[string]any{"expected_target_offset": int64(10), "target_offset": int64(12)}, stops[0].Evidence)
	require.Equal(t, map[string]any{"expected_target_offset": int64(50), "target_offset": int64(40)}, stops[1].Evidence)
	require.Equal(t, map[string]any{
		"expected_target_offset": int64(20), "target_offset": int64(34), "times": 2, "records": int64(7), "ranges": [][2]int64{{20, 23}, {30, 34}},
	}, stops[2].Evidence)
}

func TestThatManyForeignWritesAreCountedThoughNotNamed(t *testing.T) {
	t.Parallel()
	var o oddities
	for i := range int64(1000) {
		o.add(10*i, 10*i+1, 0, "")
	}
	require.Len(t, o.ranges, oddityRanges)
	require.EqualValues(t, 1000, o.found)
	require.EqualValues(t, 1000, o.records)
	require.Equal(t, [2]int64{310, 9991}, o.ranges[oddityRanges-1])
}

func TestRecordsThatComeTwiceBehindARefusedOneAreTold(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	s.read(3)
	all := s.sent(3)
	s.answer(all[0], kerr.InvalidRecord)
	s.answer(all[1], nil)
	s.answer(all[2], kerr.OutOfOrderSequenceNumber)
	require.True(t, s.part.unread || s.part.describe)
	s.locked(func() {
		all[2].looked, all[0].answer.limits = true, map[string]string{}
		s.part.unread, s.part.describe = false, false
		s.decide(s.part)
	})
	s.requireFlows()
	over, end := context.WithCancel(t.Context())
	end()
	s.events.run(over)
	stops := s.seen.stops[first]
	require.Len(t, stops, 2)
	require.Contains(t, stops[0].Message, "accepted records behind")
	require.Equal(t, map[string]any{"repeated_from": int64(4), "repeated_to": int64(8)}, stops[1].Evidence)
}

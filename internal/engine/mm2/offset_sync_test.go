package mm2_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

var tp0 = mm2.TopicPartition{Topic: "t", Partition: 0}

func sync(u, d int64) mm2.OffsetSync {
	return mm2.OffsetSync{Topic: tp0.Topic, Partition: tp0.Partition, Upstream: u, Downstream: d}
}

// sent takes everything that is due and reports it done.
func sent(w *mm2.OffsetSyncWriter) (out []mm2.OffsetSync) {
	for batch := w.Take(); len(batch) > 0; batch = w.Take() {
		for _, s := range batch {
			out = append(out, s)
			w.Done()
		}
	}
	return out
}

func TestOffsetSyncsAreEmittedWhenMM2EmitsThem(t *testing.T) {
	t.Parallel()
	type step struct {
		u, d int64
		emit bool
	}
	for _, tc := range []struct {
		name  string
		lag   int64
		steps []step
	}{
		{"first record, stale, gap, truncation", 50, []step{
			{0, 100, true},    // first of this life
			{2, 102, true},    // a gap upstream
			{3, 152, false},   // 152 - 103 = 49
			{4, 153, true},    // 153 - 103 = 50
			{5, 154, false},   //
			{6, 203, false},   // 203 - 154 = 49
			{7, 204, true},    // stale again
			{2, 206, true},    // upstream rewind
			{3, 207, false},   //
			{4, 208, false},   //
			{5, 3, true},      // target truncated
			{6, 4, false},     //
			{1000, 53, true},  // gap
			{1001, 54, false}, //
		}},
		{"lag 0 writes each", 0, []step{{0, 0, true}, {1, 1, true}, {2, 2, true}, {3, 3, true}}},
	} {
		w := mm2.NewOffsetSyncWriter(tc.lag)
		for _, s := range tc.steps {
			w.Acked(tp0, s.u, s.d)
			got := sent(w)
			if !s.emit {
				require.Empty(t, got, "%s: %d/%d", tc.name, s.u, s.d)
				continue
			}
			require.Equal(t, []mm2.OffsetSync{sync(s.u, s.d)}, got, "%s: %d/%d", tc.name, s.u, s.d)
		}
	}
}

func TestASteadyStreamHasASyncEach101Records(t *testing.T) {
	t.Parallel()
	w := mm2.NewOffsetSyncWriter(mm2.DefaultOffsetLagMax)
	var at []int64
	for i := range int64(400) {
		w.Acked(tp0, i, i+7)
		for _, s := range sent(w) {
			at = append(at, s.Upstream)
		}
	}
	require.Equal(t, []int64{0, 101, 202, 303}, at)
	w.Promote()
	require.Equal(t, []mm2.OffsetSync{sync(399, 406)}, sent(w), "the last record gets its sync at the next promotion")
	w.Promote()
	require.Empty(t, sent(w))
}

func TestAtMostTenSyncsAreInFlightAndTheNewestOfAPartitionWins(t *testing.T) {
	t.Parallel()
	w := mm2.NewOffsetSyncWriter(0)
	for i := range int32(12) {
		w.Acked(mm2.TopicPartition{Topic: "t", Partition: i}, 1, 1)
	}
	first := w.Take()
	require.Len(t, first, mm2.MaxOutstandingOffsetSyncs)
	require.Equal(t, 2, w.Pending())
	w.Acked(mm2.TopicPartition{Topic: "t", Partition: 11}, 2, 2)
	require.Empty(t, w.Take())
	w.Done()
	w.Done()
	require.Equal(t, []mm2.OffsetSync{
		{Topic: "t", Partition: 10, Upstream: 1, Downstream: 1},
		{Topic: "t", Partition: 11, Upstream: 2, Downstream: 2},
	}, w.Take())
	w.Forget(tp0)
	w.Acked(tp0, 5, 5)
	require.Equal(t, 1, w.Pending(), "a forgotten partition begins anew")
}

func TestARunHasTheEffectOfItsRecordsOneByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lag := rapid.Int64Range(0, 7).Draw(t, "lag")
		one, all := mm2.NewOffsetSyncWriter(lag), mm2.NewOffsetSyncWriter(lag)
		u, d := int64(0), int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "runs") {
			u = max(u+rapid.Int64Range(-2, 2).Draw(t, "du"), 0)
			d = max(d+rapid.Int64Range(-2, 9).Draw(t, "dd"), 0)
			n := rapid.Int64Range(0, 20).Draw(t, "n")
			all.AckedRun(tp0, u, d, n)
			for i := range n {
				one.Acked(tp0, u+i, d+i)
			}
			u, d = u+n, d+n
			if rapid.Bool().Draw(t, "take") {
				if rapid.Bool().Draw(t, "promote") {
					one.Promote()
					all.Promote()
				}
				require.Equal(t, sent(one), sent(all))
			}
		}
		one.Promote()
		all.Promote()
		require.Equal(t, sent(one), sent(all))
	})
}

func upstreams(s *mm2.OffsetSyncStore) (out []int64) {
	for _, sync := range s.Syncs(tp0) {
		out = append(out, sync.Upstream)
	}
	return out
}

func TestOffsetSyncStoreHoldsWhatKafkasUnitTestExpects(t *testing.T) {
	t.Parallel()
	batch := func(s *mm2.OffsetSyncStore, from, to int64) {
		for u := from; u <= to; u += 10 {
			s.Add(sync(u, u))
		}
	}
	s := mm2.NewOffsetSyncStore(true)
	batch(s, 0, 1000)
	s.Started()
	batch(s, 1010, 10000)
	require.Equal(t, []int64{10000, 9990, 9970, 9940, 9880, 9640, 9160, 8680, 6760, 4840, 1000}, upstreams(s))
	for _, v := range [][3]int64{{999, -1}, {1000, 1000}, {10000, 10000}, {10001, 10001}} {
		got, ok := s.TranslateDownstream(tp0, v[0])
		require.True(t, ok)
		require.Equal(t, v[1], got)
	}

	s = mm2.NewOffsetSyncStore(false)
	batch(s, 0, 1000)
	require.Equal(t, []int64{1000, 990, 960, 900, 840, 720, 480, 0}, upstreams(s))
	s.Started()
	batch(s, 1000, 10000)
	require.Equal(t, []int64{10000, 9990, 9960, 9900, 9840, 9600, 9120, 8640, 7680, 3840, 0}, upstreams(s))
}

func TestOffsetsAreTranslatedAsMM2TranslatesThem(t *testing.T) {
	t.Parallel()
	s := mm2.NewOffsetSyncStore(true)
	_, ok := s.TranslateDownstream(tp0, 0)
	require.False(t, ok, "nothing before the start")
	s.Add(sync(0, 0))
	_, ok = s.TranslateDownstream(tp0, 0)
	require.False(t, ok, "nothing before the start")

	s = mm2.NewOffsetSyncStore(false)
	s.Started()
	_, ok = s.TranslateDownstream(tp0, 5)
	require.False(t, ok, "nothing without a sync")
	check := func(g, want int64) {
		t.Helper()
		got, ok := s.TranslateDownstream(tp0, g)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	s.Add(sync(100, 200))
	check(150, 201)
	s.Add(sync(150, 251))
	check(150, 251)
	check(5, -1)
	s.Add(sync(200, 10))
	check(200, 10)
	s.Add(sync(20, 20))
	check(20, 20)

	s = mm2.NewOffsetSyncStore(true)
	for u := int64(0); u <= 1000; u += 10 {
		s.Add(sync(u, u))
	}
	s.Add(sync(1500, 11000))
	s.Started()
	check(1499, -1)
	check(1500, 11000)
	check(2000, 11001)
}

// The invariants A to D of the Java class, for syncs in any order and at any distance.
func TestOffsetSyncStoreKeepsJavasInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mm2.NewOffsetSyncStore(rapid.Bool().Draw(t, "must read to end"))
		if rapid.Bool().Draw(t, "start first") {
			s.Started()
		}
		u, oldest := int64(0), int64(0)
		bits := rapid.IntRange(0, 40).Draw(t, "bits")
		for i := range rapid.IntRange(1, 200).Draw(t, "syncs") {
			// One source offset has one sync, but for rewinds.
			step := rapid.Int64Range(1, int64(1)<<bits).Draw(t, "step")
			if u > 0 && rapid.IntRange(0, 50).Draw(t, "rewind") == 50 {
				step = -min(u, step)
			}
			u += step
			if u < 0 || u > math.MaxInt64/2 {
				u = 0
			}
			s.Add(sync(u, int64(i)))
			if i == 0 || step < 0 {
				oldest = u
			}
			held := s.Syncs(tp0)
			require.Equal(t, u, held[0].Upstream, "A: the newest sync comes first")
			require.GreaterOrEqual(t, held[len(held)-1].Upstream, oldest, "D: nothing from before the rewind")
			for k := 1; k < len(held); k++ {
				require.Greater(t, held[k-1].Upstream, held[k].Upstream-1, "ordered")
			}
			require.LessOrEqual(t, len(held), mm2.SyncsPerPartition)
		}
		s.Started()
		// Translation never passes the copy of a record at or behind the position.
		g := rapid.Int64Range(0, u+5).Draw(t, "g")
		got, ok := s.TranslateDownstream(tp0, g)
		require.True(t, ok)
		for _, held := range s.Syncs(tp0) {
			if held.Upstream >= g {
				require.LessOrEqual(t, got, held.Downstream)
			}
		}
	})
}

func TestCheckpointsAreWrittenOnlyWhenMoreRecent(t *testing.T) {
	t.Parallel()
	c := func(u, d int64) mm2.Checkpoint {
		return mm2.Checkpoint{Group: "g", Topic: "A.t", Upstream: u, Downstream: d}
	}
	for _, tc := range []struct {
		name       string
		last, next mm2.Checkpoint
		want       bool
	}{
		{"target goes on", c(10, 10), c(11, 11), true},
		{"source goes on, target does not", c(10, 10), c(11, 10), false},
		{"the same", c(10, 10), c(10, 10), false},
		{"source rewinds", c(10, 10), c(9, 9), true},
		{"source goes on, target would go back", c(10, 10), c(11, 9), false},
	} {
		require.Equal(t, tc.want, mm2.MoreRecent(tc.last, tc.next), tc.name)
	}
	s := mm2.NewCheckpointStore()
	require.True(t, s.ShouldEmit(c(0, 0)), "the first, even at 0")
	require.False(t, s.ShouldEmit(c(5, -1)))
	// Restart: stored checkpoints decide (250->201, then 370 suppressed, 400->376).
	s.Load(c(250, 201))
	require.False(t, s.ShouldEmit(c(370, 201)))
	require.True(t, s.ShouldEmit(c(400, 376)))
	s.Load(c(400, 376))
	got, ok := s.Get("g", mm2.TopicPartition{Topic: "A.t"})
	require.True(t, ok)
	require.Equal(t, c(400, 376), got)
	require.Len(t, s.Group("g"), 1)
	require.Empty(t, s.Group("other"))
}

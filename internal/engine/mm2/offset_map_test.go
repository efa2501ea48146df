package mm2_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

func exact(offset int64) mm2.Translation {
	return mm2.Translation{Offset: offset, OK: true, Exact: true}
}

func TestRunsTranslateExactlyInBothDirections(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(0)
	require.Equal(t, mm2.Translation{Reason: mm2.NothingMirrored}, m.Translate(5, 0))
	require.NoError(t, m.AddRun(10, 100, 5)) // 10..14 -> 100..104
	require.NoError(t, m.Add(15, 105))
	require.NoError(t, m.AddRun(20, 106, 2))  // a hole on the source
	require.NoError(t, m.AddRun(22, 110, 10)) // a hole on the target
	require.Equal(t, []mm2.Run{
		{Source: 10, Target: 100, SourceLen: 6, TargetLen: 6, Exact: true},
		{Source: 20, Target: 106, SourceLen: 2, TargetLen: 2, Exact: true},
		{Source: 22, Target: 110, SourceLen: 10, TargetLen: 10, Exact: true},
	}, m.Runs())
	for g, want := range map[int64]mm2.Translation{
		9:  {Reason: mm2.BeforeFirst, Offset: 100},
		10: exact(100), 12: exact(102), 16: exact(106), 18: exact(106), 20: exact(106), 21: exact(107), 22: exact(110), 31: exact(119),
		32: exact(120), 40: exact(120),
		41: {Offset: 120, OK: true, Bound: 1}, 50: {Offset: 120, OK: true, Bound: 10},
	} {
		require.Equal(t, want, m.Translate(g, 40), "%d", g)
	}
	for d, want := range map[int64]mm2.Translation{
		99:  {Reason: mm2.BeforeFirst, Offset: 10},
		100: exact(10), 105: exact(15), 106: exact(20), 108: exact(22), 109: exact(22), 110: exact(22), 120: exact(32),
		125: {Offset: 32, OK: true, Bound: 5},
	} {
		require.Equal(t, want, m.TranslateBack(d), "%d", d)
	}
	s, d, ok := m.End()
	require.True(t, ok)
	require.Equal(t, []int64{32, 120}, []int64{s, d})
	s, d, ok = m.First()
	require.True(t, ok)
	require.Equal(t, []int64{10, 100}, []int64{s, d})
}

func TestPositionsTranslateBeforeAnyRecordOnceTheStartIsKnown(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(0)
	require.NoError(t, m.Begin(0, 0))
	require.Equal(t, exact(0), m.Translate(0, 0))
	require.Equal(t, exact(0), m.Translate(7, 7))
	require.NoError(t, m.Add(7, 3))
	require.Equal(t, exact(0), m.Translate(5, 8), "in front of the first record, behind the start")
	require.Equal(t, exact(3), m.Translate(7, 8))
	require.Equal(t, exact(4), m.Translate(8, 8))

	m = mm2.NewOffsetMap(0)
	require.NoError(t, m.Begin(0, 0))
	require.NoError(t, m.AddRun(0, 0, 5))
	require.Equal(t, 1, m.Len(), "the start melts into the first run")
}

func TestRewindsAndTruncationsDropWhatTheyMakeVoid(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(0)
	require.NoError(t, m.AddRun(0, 0, 100))
	require.NoError(t, m.AddRun(40, 100, 10)) // the source was read again from 40 on
	require.Equal(t, exact(39), m.Translate(39, 50))
	require.Equal(t, exact(100), m.Translate(40, 50))
	require.Equal(t, exact(110), m.Translate(50, 50))
	require.Equal(t, mm2.Translation{Offset: 110, OK: true, Bound: 10}, m.Translate(60, 50))

	require.NoError(t, m.AddRun(50, 20, 5)) // the target lost all from 20 on
	require.Equal(t, exact(19), m.Translate(19, 55))
	require.Equal(t, exact(20), m.Translate(30, 55), "what the target lost is not there to be read")
	require.Equal(t, exact(22), m.Translate(52, 55))

	m.TruncateSource(10)
	s, d, _ := m.End()
	require.Equal(t, []int64{10, 10}, []int64{s, d})
	m.TruncateTarget(4)
	s, d, _ = m.End()
	require.Equal(t, []int64{4, 4}, []int64{s, d})
	m.TruncateSource(0)
	require.Equal(t, exact(0), m.Translate(0, 0), "the start stays known")
}

func TestAStretchWhoseMapWasLostIsBounded(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(0)
	require.NoError(t, m.AddRun(0, 0, 10))
	require.NoError(t, m.Resume(30, 25)) // at most 15 records lie between
	require.NoError(t, m.AddRun(30, 25, 5))
	require.Equal(t, exact(10), m.Translate(10, 35))
	require.Equal(t, mm2.Translation{Offset: 10, OK: true, Bound: 10}, m.Translate(20, 35))
	require.Equal(t, mm2.Translation{Offset: 10, OK: true, Bound: 15}, m.Translate(29, 35))
	require.Equal(t, exact(25), m.Translate(30, 35))
	require.ErrorIs(t, m.Resume(34, 40), mm2.ErrOffsetRange)
}

func TestImpossibleOffsetsAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(0)
	require.NoError(t, m.AddRun(5, 5, 5))
	for _, bad := range [][3]int64{{-1, 0, 1}, {0, -1, 1}, {0, 0, 0}, {0, 0, -3}, {math.MaxInt64, 0, 2}, {0, math.MaxInt64, 2}} {
		require.ErrorIs(t, m.AddRun(bad[0], bad[1], bad[2]), mm2.ErrOffsetRange)
	}
	require.Equal(t, 1, m.Len())
}

func TestMemoryIsBoundedAndTheNewestHalfStaysExact(t *testing.T) {
	t.Parallel()
	m := mm2.NewOffsetMap(64)
	for i := range int64(10000) {
		require.NoError(t, m.Add(2*i, i)) // a marker behind each record
		require.LessOrEqual(t, m.Len(), 64)
	}
	for i := int64(9990); i < 10000; i++ {
		require.Equal(t, exact(i), m.Translate(2*i, 20000))
	}
	old := m.Translate(5001, 20000)
	require.True(t, old.OK)
	require.False(t, old.Exact)
	require.LessOrEqual(t, old.Offset, int64(2501))
	require.GreaterOrEqual(t, old.Offset+old.Bound, int64(2501))
	data, err := m.MarshalBinary()
	require.NoError(t, err)
	require.Less(t, len(data), 64*10)
}

// model is the naive map: every record by itself.
type model struct{ src, dst []int64 }

func (m *model) add(s, d int64) {
	keep := len(m.src)
	for keep > 0 && (m.src[keep-1] >= s || m.dst[keep-1] >= d) {
		keep--
	}
	m.src, m.dst = append(m.src[:keep], s), append(m.dst[:keep], d)
}

// judge checks an answer for position g by from -> to: no record at or behind g is missed, and those from before g that
// are read again are within the bound.
func judge(t *rapid.T, from, to []int64, g int64, tr mm2.Translation) {
	again := int64(0)
	for i := range from {
		if from[i] >= g {
			require.GreaterOrEqual(t, to[i], tr.Offset, "the answer for %d misses record %d", g, from[i])
		} else if to[i] >= tr.Offset {
			again++
		}
	}
	require.LessOrEqual(t, again, tr.Bound, "the bound for %d", g)
	require.Equal(t, tr.Exact, tr.Bound == 0)
	if tr.Exact {
		for i := range from {
			if from[i] == g && to[i] != tr.Offset {
				// Only a hole on the other side may stand between the answer and the record.
				for j := range to {
					require.False(t, to[j] >= tr.Offset && to[j] < to[i])
				}
			}
		}
	}
}

func TestTheOffsetMapAgreesWithANaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := mm2.NewOffsetMap(rapid.SampledFrom([]int{8, 9, 12, 33, 0}).Draw(t, "max runs"))
		var naive model
		s, d := rapid.Int64Range(0, 20).Draw(t, "s"), rapid.Int64Range(0, 20).Draw(t, "d")
		holes := rapid.Int64Range(0, 4).Draw(t, "holes")
		for range rapid.IntRange(1, 120).Draw(t, "runs") {
			s += rapid.Int64Range(0, holes).Draw(t, "source hole")
			d += rapid.Int64Range(0, holes).Draw(t, "target hole")
			switch rapid.IntRange(0, 40).Draw(t, "event") {
			case 0:
				s = max(s-rapid.Int64Range(1, 30).Draw(t, "rewind"), 0)
			case 1:
				d = max(d-rapid.Int64Range(1, 30).Draw(t, "truncation"), 0)
			}
			n := rapid.Int64Range(1, 5).Draw(t, "n")
			require.NoError(t, m.AddRun(s, d, n))
			for i := range n {
				naive.add(s+i, d+i)
			}
			s, d = s+n, d+n
			if rapid.IntRange(0, 20).Draw(t, "store") == 0 {
				data, err := m.MarshalBinary()
				require.NoError(t, err)
				before := m.Runs()
				m, err = mm2.UnmarshalOffsetMap(data, 0)
				require.NoError(t, err)
				require.Equal(t, before, m.Runs())
			}
		}
		first, _, _ := m.First()
		_, firstTarget, _ := m.First()
		for g := int64(0); g <= s+3; g++ {
			tr := m.Translate(g, s)
			if g < first {
				require.Equal(t, mm2.BeforeFirst, tr.Reason)
				require.False(t, tr.OK)
				continue
			}
			require.True(t, tr.OK)
			if g > s {
				require.Equal(t, mm2.Translation{Offset: d, OK: true, Bound: g - s}, tr)
				continue
			}
			judge(t, naive.src, naive.dst, g, tr)
		}
		for g := firstTarget; g <= d; g++ {
			judge(t, naive.dst, naive.src, g, m.TranslateBack(g))
		}
	})
}

func TestWithoutThinningEveryAnswerIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := mm2.NewOffsetMap(0)
		var s, d int64
		for range rapid.IntRange(1, 200).Draw(t, "records") {
			s += rapid.Int64Range(0, 2).Draw(t, "source hole")
			require.NoError(t, m.Add(s, d))
			s, d = s+1, d+1
		}
		for g := int64(0); g <= s; g++ {
			if tr := m.Translate(g, s); tr.OK {
				require.True(t, tr.Exact)
			}
		}
	})
}

func FuzzUnmarshalOffsetMap(f *testing.F) {
	m := mm2.NewOffsetMap(8)
	for i := range int64(40) {
		require.NoError(f, m.AddRun(3*i, 4*i, 1+i%3))
	}
	data, err := m.MarshalBinary()
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := mm2.UnmarshalOffsetMap(data, 1<<20)
		if err != nil {
			require.ErrorIs(t, err, mm2.ErrOffsetMap)
			return
		}
		again, err := m.MarshalBinary()
		require.NoError(t, err)
		m2, err := mm2.UnmarshalOffsetMap(again, 1<<20)
		require.NoError(t, err)
		require.Equal(t, m.Runs(), m2.Runs())
		s, d, _ := m.End()
		for _, g := range []int64{0, 1, s / 2, s, d} {
			tr := m.Translate(g, s)
			require.GreaterOrEqual(t, tr.Bound, int64(0))
			_ = m.TranslateBack(g)
		}
	})
}

package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// holed builds a map of n runs with gaps of uneven lengths between them.
func holed(tb testing.TB, n int) *mm2.OffsetMap {
	tb.Helper()
	m := mm2.NewOffsetMap(0)
	require.NoError(tb, m.Begin(0, 0))
	source, target := int64(0), int64(0)
	for i := range n {
		length := int64(1 + i%300*7)
		require.NoError(tb, m.AddRun(source, target, length))
		source, target = source+length+1+int64(i%5), target+length
	}
	return m
}

var writer = stamp{term{generation: 4, epoch: 9}, "flow"}

func full(m *mm2.OffsetMap) Entry {
	return Entry{
		SourceTopic: "orders", SourceTopicID: [16]byte{1, 2}, TargetTopicID: [16]byte{3}, Position: 1 << 40, TargetNext: 77, Map: m, LeaseEpoch: 9,
	}
}

func TestEntrySurvivesEncoding(t *testing.T) {
	t.Parallel()
	known := full(nil)
	known.Producer = &Producer{ID: 1 << 40, Epoch: 32766, Sequence: 1<<31 - 1, Target: 1 << 50}
	for name, e := range map[string]Entry{
		"producer": known, "no map": full(nil), "empty map": full(mm2.NewOffsetMap(0)), "short map": full(holed(t, 3)), "map of many blocks": full(holed(t, 8000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, blocks, err := encodeEntry(e, writer)
			require.NoError(t, err)
			require.Less(t, len(value), 64<<10)
			h, err := parseHead(value)
			require.NoError(t, err)
			bare := map[blockID][]byte{}
			for hash, b := range blocks {
				require.LessOrEqual(t, len(b), blockBytes+1)
				bare[blockID{writer.term, hash}], err = parseBlock(b)
				require.NoError(t, err)
			}
			got, complete := h.entry(bare)
			require.True(t, complete)
			if e.Map != nil {
				require.Equal(t, e.Map.Runs(), got.Map.Runs())
			}
			e.Map, got.Map = nil, nil
			require.Equal(t, e, got)
		})
	}
}

func TestMapThatGrowsAtItsEndLeavesItsBlocksAlone(t *testing.T) {
	t.Parallel()
	m := holed(t, 8000)
	_, before, err := encodeEntry(full(m), writer)
	require.NoError(t, err)
	require.NotEmpty(t, before)
	source, target, _ := m.End()
	require.NoError(t, m.AddRun(source+3, target, 10))
	_, after, err := encodeEntry(full(m), writer)
	require.NoError(t, err)
	for hash := range before {
		require.Contains(t, after, hash)
	}
}

func TestMapOfWhichABlockIsMissingIsGivenUpButThePositionStands(t *testing.T) {
	t.Parallel()
	value, _, err := encodeEntry(full(holed(t, 8000)), writer)
	require.NoError(t, err)
	h, err := parseHead(value)
	require.NoError(t, err)
	e, complete := h.entry(nil)
	require.False(t, complete)
	require.Nil(t, e.Map)
	require.EqualValues(t, 1<<40, e.Position)
}

func TestNewerVersionIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	value, _, err := encodeEntry(full(nil), writer)
	require.NoError(t, err)
	value[0] = headVersion + 1
	_, err = parseHead(value)
	require.ErrorIs(t, err, ErrVersion)
	key := headKey(Key{"a.t", 1})
	key[len(keyMagic)] = blockKeyVersion + 1
	_, _, _, err = parseKey(key)
	require.ErrorIs(t, err, ErrVersion)
}

func TestAHeadOutranksAnotherByGenerationThenByTheEpochOfItsFlow(t *testing.T) {
	t.Parallel()
	of := func(generation, epoch int64, flow string) stamp { return stamp{term{generation, epoch}, flow} }
	for name, c := range map[string]struct {
		later, earlier stamp
		want           bool
	}{
		"a higher generation, whatever the epoch":          {of(3, 1, "f"), of(2, 7, "f"), true},
		"a lower generation, whatever the epoch":           {of(2, 7, "f"), of(3, 1, "f"), false},
		"the same generation and a higher epoch":           {of(3, 6, "f"), of(3, 5, "f"), true},
		"the same generation and a lower epoch":            {of(3, 4, "f"), of(3, 5, "f"), false},
		"the same writer":                                  {of(3, 5, "f"), of(3, 5, "f"), true},
		"the same generation, the lower epoch of another":  {of(3, 1, "g"), of(3, 5, "f"), true},
		"a first generation after one without generations": {of(1, 1, "g"), of(0, 9, ""), true},
	} {
		require.Equal(t, c.want, c.later.outranks(c.earlier), name)
	}
}

func FuzzKeysNeverPanicAndRoundTrip(f *testing.F) {
	f.Add(headKey(Key{"a.t", 1}))
	f.Add(blockKey(Key{"a.t", 1}, blockID{hash: 77}))
	f.Add(blockKey(Key{"a.t", 1}, blockID{term{3, 2}, 77}))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, k, id, err := parseKey(b)
		if err != nil {
			return
		}
		if kind == kindHead {
			require.Equal(t, b, headKey(k))
		} else {
			require.Equal(t, b, blockKey(k, id))
		}
	})
}

func FuzzValuesNeverPanic(f *testing.F) {
	value, blocks, err := encodeEntry(full(holed(f, 8000)), writer)
	require.NoError(f, err)
	f.Add(value)
	small, _, err := encodeEntry(full(holed(f, 3)), writer)
	require.NoError(f, err)
	f.Add(small)
	bare := map[blockID][]byte{}
	for hash, b := range blocks {
		bare[blockID{writer.term, hash}] = b[1:]
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		e, _ := h.entry(bare)
		_, _, err = encodeEntry(e, writer)
		require.NoError(t, err)
	})
}

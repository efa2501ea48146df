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

func full(m *mm2.OffsetMap) Entry {
	return Entry{
		SourceTopic: "orders", SourceTopicID: [16]byte{1, 2}, TargetTopicID: [16]byte{3}, Position: 1 << 40, TargetNext: 77, Map: m, LeaseEpoch: 9,
	}
}

func TestEntrySurvivesEncoding(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Entry{
		"no map": full(nil), "empty map": full(mm2.NewOffsetMap(0)), "short map": full(holed(t, 3)), "map of many blocks": full(holed(t, 8000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, blocks, err := encodeEntry(e)
			require.NoError(t, err)
			require.Less(t, len(value), 64<<10)
			h, err := parseHead(value)
			require.NoError(t, err)
			bare := map[uint64][]byte{}
			for hash, b := range blocks {
				require.LessOrEqual(t, len(b), blockBytes+1)
				bare[hash], err = parseBlock(b)
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
	_, before, err := encodeEntry(full(m))
	require.NoError(t, err)
	require.NotEmpty(t, before)
	source, target, _ := m.End()
	require.NoError(t, m.AddRun(source+3, target, 10))
	_, after, err := encodeEntry(full(m))
	require.NoError(t, err)
	for hash := range before {
		require.Contains(t, after, hash)
	}
}

func TestMapOfWhichABlockIsMissingIsGivenUpButThePositionStands(t *testing.T) {
	t.Parallel()
	value, _, err := encodeEntry(full(holed(t, 8000)))
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
	value, _, err := encodeEntry(full(nil))
	require.NoError(t, err)
	value[0] = codecVersion + 1
	_, err = parseHead(value)
	require.ErrorIs(t, err, ErrVersion)
	key := headKey(Key{"a.t", 1})
	key[len(keyMagic)] = codecVersion + 1
	_, _, _, err = parseKey(key)
	require.ErrorIs(t, err, ErrVersion)
}

func FuzzKeysNeverPanicAndRoundTrip(f *testing.F) {
	f.Add(headKey(Key{"a.t", 1}))
	f.Add(blockKey(Key{"a.t", 1}, 77))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, k, hash, err := parseKey(b)
		if err != nil {
			return
		}
		if kind == kindHead {
			require.Equal(t, b, headKey(k))
		} else {
			require.Equal(t, b, blockKey(k, hash))
		}
	})
}

func FuzzValuesNeverPanic(f *testing.F) {
	value, blocks, err := encodeEntry(full(holed(f, 8000)))
	require.NoError(f, err)
	f.Add(value)
	small, _, err := encodeEntry(full(holed(f, 3)))
	require.NoError(f, err)
	f.Add(small)
	bare := map[uint64][]byte{}
	for hash, b := range blocks {
		bare[hash] = b[1:]
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		e, _ := h.entry(bare)
		_, _, err = encodeEntry(e)
		require.NoError(t, err)
	})
}

package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartitionsShareAnAnswer(t *testing.T) {
	t.Parallel()
	ask := func(partitions int, s sizes) int32 {
		p := &mirror{order: make([]*part, partitions)}
		return p.answerBytes(&part{sizes: s})
	}
	require.EqualValues(t, answerShare, ask(1, sizes{}), "a single one gets all")
	require.EqualValues(t, answerShare/16, ask(16, sizes{}))
	require.EqualValues(t, leastShare, ask(1000, sizes{}))
	// Whole batches, which may be a little larger than the largest so far.
	require.EqualValues(t, 3*80_000+5_000, ask(16, sizes{largest: 80_000}))
	require.EqualValues(t, 2*300_000+300_000/16, ask(16, sizes{largest: 300_000}), "two, however small the share is")
	require.EqualValues(t, 8*80_000+5_000, ask(16, sizes{largest: 80_000, batches: 8}))
	require.EqualValues(t, 3_000_000+3_000_000/16, ask(16, sizes{largest: 3_000_000}), "one, if two are more than any answer")
	require.EqualValues(t, partitionBytes, ask(16, sizes{largest: 5 << 20}), "the broker sends one batch whole, whatever is asked for")
}

func TestMoreBatchesAreAskedForWhereMuchIsCutOff(t *testing.T) {
	t.Parallel()
	var s sizes
	s.learn(200_000, 0, 70_000)
	require.Equal(t, sizes{70_000, 2}, s)
	for _, want := range []int32{4, 8, 16, 32, 32} {
		s.learn(200_000, 50_000, 70_000)
		require.Equal(t, want, s.batches)
	}
	s.learn(200_000, 5_000, 70_000)
	require.EqualValues(t, 32, s.batches, "neither much nor little")
	s.learn(200_000, 2_000, 1_000)
	require.EqualValues(t, 31, s.batches)
	require.EqualValues(t, 61_250, s.largest, "the size of the largest fades")
	s.learn(0, 0, 0)
	require.EqualValues(t, 30, s.batches)
}

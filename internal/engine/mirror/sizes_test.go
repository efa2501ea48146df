package mirror

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPartitionsThatAreBehindShareAnAnswer(t *testing.T) {
	t.Parallel()
	// ask is what is asked for of one of so many partitions, of which some are behind.
	ask := func(all, behind int, s sizes) int32 {
		p := &mirror{}
		for i := range all {
			p.order = append(p.order, &part{ends: Ends{HighWatermark: 1, LastStable: pick[int64](i < behind, 1, 0)}})
		}
		return p.answerBytes(&part{sizes: s})
	}
	known := sizes{largest: 10_000}
	whole := func(share int) int32 { return int32(share/10_000*10_000 + 10_000/64) }
	require.Equal(t, whole(answerShare), ask(1, 1, known), "a single one gets all")
	require.Equal(t, whole(answerShare), ask(200, 1, known), "those that have nothing take nothing from it")
	require.Equal(t, whole(answerShare), ask(200, 0, known))
	require.Equal(t, whole(answerShare/12), ask(16, 12, known))
	require.Equal(t, whole(leastShare), ask(1000, 1000, known))
	require.EqualValues(t, usualBytes, ask(1000, 1000, sizes{}), "nothing is known of the batches: a share may be less than one")
	// Whole batches, which may be a little larger than the largest so far.
	require.EqualValues(t, 3*80_000+80_000/64, ask(16, 16, sizes{largest: 80_000}))
	require.EqualValues(t, 2*300_000+300_000/64, ask(16, 16, sizes{largest: 300_000}), "two, however small the share is")
	require.EqualValues(t, 8*80_000+80_000/64, ask(16, 16, sizes{largest: 80_000, batches: 8}))
	require.EqualValues(t, 3_000_000+3_000_000/64, ask(16, 16, sizes{largest: 3_000_000}), "one, if two are more than any answer")
	require.EqualValues(t, partitionBytes, ask(16, 16, sizes{largest: 5 << 20}), "the broker sends one batch whole, whatever is asked for")
}

func TestAShareIsNoSmallerWhereOneBatchAtATimeGoesOverALongLine(t *testing.T) {
	t.Parallel()
	p := &mirror{cfg: Config{}, lanes: map[laneKey]*lane{}, spreads: map[int32]*spread{}, expiration: defaultExpiration}
	one := &part{sizes: sizes{largest: 10_000}}
	for range 64 {
		p.order = append(p.order, &part{ends: Ends{HighWatermark: 1, LastStable: 1}})
	}
	require.EqualValues(t, leastShare/10_000*10_000+10_000/64, p.answerBytes(one))
	p.lanes[p.laneOf(one)] = &lane{line: line{trip: farAway}}
	require.EqualValues(t, rebuiltBytes/10_000*10_000+10_000/64, p.answerBytes(one))
}

func TestARateBoundsAnswersWhateverTheNumberOfPartitions(t *testing.T) {
	t.Parallel()
	p := &mirror{rate: bucket{rate: 10_000_000}}
	for range 32 {
		p.order = append(p.order, &part{ends: Ends{HighWatermark: 1, LastStable: 1}})
	}
	require.EqualValues(t, 3*300_000, p.answerBytes(&part{sizes: sizes{largest: 300_000}}))
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
	s.learn(0, 0, 100_000)
	require.EqualValues(t, 30, s.batches)
	require.EqualValues(t, 100_000, s.largest, "of a batch that came in part the size is known, too")
}

func TestTheNumberOfThoseBehindIsCountedNowAndThen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := &part{ends: Ends{HighWatermark: 1, LastStable: 1}}
	p := &mirror{order: []*part{one, {}, {state: stopped, ends: Ends{HighWatermark: 1, LastStable: 1}}}}
	require.Equal(t, 1, p.lagging(now))
	one.fetchOffset = 1
	require.Equal(t, 1, p.lagging(now.Add(behindFor/2)))
	require.Equal(t, 0, p.lagging(now.Add(behindFor)))
}

package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartitionsShareOneLaneWhileRequestsAreSmall(t *testing.T) {
	t.Parallel()
	p := &mirror{spreads: map[int32]*spread{}}
	one := &part{lane: 1, pipeline: pipeline{}}
	l := &lane{laneKey: laneKey{broker: 0, index: 0}}
	send := func(n int, bytes int64) {
		for range n {
			p.widen(l, bytes)
		}
	}
	require.Equal(t, laneKey{0, 0}, p.laneOf(one))
	send(100, 128<<10)
	require.Equal(t, laneKey{0, 0}, p.laneOf(one))
	send(100, 4<<20)
	require.Equal(t, laneKey{0, 1}, p.laneOf(one))
	send(100, 512<<10) // neither small nor large: as it was
	require.Equal(t, laneKey{0, 1}, p.laneOf(one))
	send(100, 64<<10)
	require.Equal(t, laneKey{0, 0}, p.laneOf(one))

	one.slow = 1
	require.Equal(t, laneKey{0, slowLane}, p.laneOf(one))
	l.index = slowLane
	send(100, 4<<20)
	one.slow = 0
	require.Equal(t, laneKey{0, 0}, p.laneOf(one), "what goes through the slow lane says nothing")
}

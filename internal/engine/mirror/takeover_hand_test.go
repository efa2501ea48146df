package mirror

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// heir is a path with one partition, at offset 0, that found records of an earlier run on the target. It does not run.
func heir(t *testing.T, left legacy) (*mirror, *part) {
	t.Helper()
	p, one := standing(t, Assignment{Point: &Point{ProducerID: 7}})
	p.locked(func() { p.inherit(one, *one.point, left, nil) })
	return p, one
}

// plainUnit is a batch of n records from a source offset on, without contents: what is there was not read.
func plainUnit(t *testing.T, base int64, n int32) *unit {
	t.Helper()
	b := make([]byte, batch.HeaderLen)
	binary.BigEndian.PutUint32(b[8:], batch.HeaderLen-12)
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	binary.BigEndian.PutUint32(b[57:], uint32(n))
	parsed, err := batch.Parse(b)
	require.NoError(t, err)
	return &unit{b: parsed, base: base, next: base + int64(n)}
}

func (t *part) reads(p *mirror, u *unpacked) {
	p.locked(func() { p.enqueue(t, u) })
}

func TestNothingMovesThePositionWhileRecordsAreCounted(t *testing.T) {
	t.Parallel()
	p, one := heir(t, legacy{there: []stretch{{0, 100}}, next: 100, end: 100, alive: true})
	skip := func() (done bool) {
		p.locked(func() { done = p.caughtUp(t.Context(), one, &lane{}) })
		return done
	}
	one.reads(p, &unpacked{units: []*unit{plainUnit(t, 0, 50)}, upTo: 50})
	require.False(t, skip())
	one.reads(p, &unpacked{upTo: 60}) // an aborted transaction fills an answer
	require.Zero(t, one.position, "what was counted so far would be counted again from here")
	p.locked(func() { p.dropQueue(one) }) // whatever for
	require.Zero(t, one.fetchOffset)

	one.reads(p, &unpacked{units: []*unit{plainUnit(t, 0, 50)}, upTo: 50})
	require.False(t, skip())
	one.reads(p, &unpacked{upTo: 60})
	one.reads(p, &unpacked{units: []*unit{plainUnit(t, 60, 80)}, upTo: 140})
	require.True(t, skip())
	require.EqualValues(t, 110, one.position)
	require.EqualValues(t, 110, one.fetchOffset, "the rest of the batch comes again")
	require.EqualValues(t, 100, one.id.seq)
	require.EqualValues(t, 100, one.expect)
}

func TestASourceThatStoppedWhileItsRecordsAreCountedIsTold(t *testing.T) {
	t.Parallel()
	p, one := heir(t, legacy{there: []stretch{{0, 50}}, next: 50, end: 50, alive: true})
	one.reads(p, &unpacked{units: []*unit{plainUnit(t, 0, 50)}, upTo: 50})
	p.locked(func() { p.stopSide(one, true, Stop{Reason: StopSourceMissing}) })
	require.Nil(t, one.stop)
	p.locked(func() { p.caughtUp(t.Context(), one, &lane{}) })
	require.NotNil(t, one.stop)
}

func TestASourceWithFewerRecordsThanWereCopiedIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	p, one := heir(t, legacy{there: []stretch{{0, 100}}, next: 100, end: 100, alive: true})
	one.ends = Ends{0, 50, 50}
	one.reads(p, &unpacked{units: []*unit{plainUnit(t, 0, 50)}, upTo: 50})
	p.locked(func() { p.caughtUp(t.Context(), one, &lane{}) })
	now := time.Now()
	at := func(after time.Duration) {
		p.locked(func() { p.runShort(one, now.Add(after)) })
	}
	at(0)
	at(shortFor - 1)
	require.Len(t, one.left, 1)
	one.ends = Ends{0, 60, 60}
	at(shortFor)
	one.ends = Ends{0, 50, 50}
	at(shortFor + 1)
	require.Len(t, one.left, 1, "it had more for a moment")
	at(2*shortFor + 1)
	require.Empty(t, one.left)
	require.Zero(t, one.fetchOffset, "what was copied is copied again")
	require.False(t, one.hasID, "under another identity")
	require.EqualValues(t, 100, one.expect)
}

func TestALookThatFailsIsToldInTheEnd(t *testing.T) {
	t.Parallel()
	p, one := heir(t, legacy{})
	fails := errUnsettled
	p.locked(func() {
		one.point = &Point{ProducerID: 7}
		p.inherit(one, *one.point, legacy{}, fails)
		require.Nil(t, one.stop)
		one.failingSince = one.failingSince.Add(-unavailableAfter)
		p.inherit(one, *one.point, legacy{}, fails)
	})
	require.NotNil(t, one.stop)
	require.Equal(t, StopTargetUnavailable, one.stop.Reason)
	require.NotNil(t, one.point, "it is looked again")
	p.locked(func() { p.inherit(one, *one.point, legacy{}, nil) })
	require.Nil(t, one.stop)
	require.Nil(t, one.point)
}

func TestWhatCannotBeComparedIsNotReliedOn(t *testing.T) {
	t.Parallel()
	_, one := heir(t, legacy{there: []stretch{{0, 50}}, next: 50, end: 50, alive: true, doubt: errors.New("too large")})
	require.Empty(t, one.left)
	require.False(t, one.hasID)
	require.EqualValues(t, 50, one.expect)
}

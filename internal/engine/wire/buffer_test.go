package wire

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuffersHaveClassesThatWasteLittle(t *testing.T) {
	t.Parallel()
	before, beforeSize := -1, 0
	for _, n := range []int{0, 1, smallest, smallest + 1, 5120, 5121, 6144, 7168, 8191, 8192, 8193, 1<<20 - 1, 1 << 20, 1<<20 + 1, 9 << 20, 1 << 30, 1<<31 - 1} {
		class, size := classOf(n)
		require.GreaterOrEqual(t, size, n)
		require.True(t, n <= smallest || size*4 <= n*5+4, "%d takes %d", n, size)
		same, again := classOf(size)
		require.Equal(t, class, same, "the class of a buffer of its own size, %d", n)
		require.Equal(t, size, again)
		require.GreaterOrEqual(t, class, before)
		require.True(t, class > before || size == beforeSize)
		require.Less(t, class, classes)
		before, beforeSize = class, size
	}
}

func TestABufferReturnsWithItsLastUser(t *testing.T) {
	t.Parallel()
	p := NewPool(1 << 20)
	b := p.Get(100_000)
	require.Len(t, b.Bytes(), 100_000)
	size := int64(b.Size())
	b.Retain()
	b.Release()
	require.Equal(t, size, p.InUse())
	require.NotSame(t, b, p.Get(100_000))
	b.Release()
	require.Equal(t, size, p.InUse())
	require.Same(t, b, p.Get(99_000))
	b.Release()
	require.Panics(t, b.Release)
	require.Panics(t, b.Retain)
}

func TestAPoolKeepsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	p := NewPool(3 << 20)
	var all []*Buffer
	for range 5 {
		all = append(all, p.Get(1<<20))
	}
	for _, b := range all {
		b.Release()
	}
	require.EqualValues(t, 3<<20, p.idle)
	require.Zero(t, p.InUse())
	// What is idle and too small makes room for what is needed now.
	two := p.Get(2 << 20)
	require.EqualValues(t, 1<<20, p.idle)
	require.EqualValues(t, 2<<20, p.InUse())
	two.Release()
	require.EqualValues(t, 3<<20, p.idle)
}

func TestALargerIdleBufferIsBetterThanANewOne(t *testing.T) {
	t.Parallel()
	p := NewPool(8 << 20)
	b := p.Get(2 << 20)
	b.Release()
	require.Same(t, b, p.Get(1<<20+1))
	require.EqualValues(t, 2<<20, p.InUse(), "in use is what the buffer takes, not what was asked for")
	b.Release()
	require.NotSame(t, b, p.Get(1<<20), "twice the size")
}

func TestWhoHasNoMoreInUseThanAPoolKeepsGetsNoNewMemory(t *testing.T) { // not parallel: it counts allocations
	p := NewPool(32 << 20)
	sizes := []int{3 << 20, 4<<20 - 1, 4 << 20, 3<<20 + 5, 1 << 20, 700 << 10}
	round := func() {
		var all []*Buffer
		for _, n := range sizes {
			all = append(all, p.Get(n))
		}
		for _, b := range all {
			b.Release()
		}
	}
	round()
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for _, n := range sizes {
			p.Get(n).Release()
		}
	}))
}

func TestBuffersAreSafeForManyUsers(t *testing.T) {
	t.Parallel()
	p := NewPool(1 << 20)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 500 {
				b := p.Get(1 + (i*k)%20_000)
				b.Bytes()[0] = byte(i)
				b.Retain()
				wg.Go(b.Release)
				b.Release()
			}
		})
	}
	wg.Wait()
	require.Zero(t, p.InUse())
}

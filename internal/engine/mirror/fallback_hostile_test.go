package mirror

import (
	"bytes"
	"compress/gzip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// allocated is how many bytes f allocates. Nothing else may run, so tests that use it are not parallel.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestAnOldMessageThatWouldFillTheMemoryIsRefused(t *testing.T) {
	u, pool := unpackers(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range 512 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.Less(t, packed.Len(), 1<<20)
	before := old{magic: 1, ts: 5, value: []byte("v")}
	bomb := old{magic: 1, attrs: 1, offset: 1, ts: 5, value: packed.Bytes()}
	var got *unpacked
	var err error
	n := allocated(func() { got, err = u.all(0, unlimited(), nil, before.encode(), bomb.encode()) })
	require.ErrorIs(t, err, batch.ErrTooLarge)
	require.Equal(t, []int64{0}, got.sources(), "what came before it is kept")
	require.EqualValues(t, 1, got.next())
	// It is tried twice, the second time alone.
	require.LessOrEqual(t, n, int64(2*3*maxOld))
	got.drop()
	require.Zero(t, pool.InUse())
}

// FuzzUnpackMemory unpacks an answer of batches and old messages, among them some whose checksum is right: memory follows
// what they really hold, which is at most 40,000 times their size, and is bounded.
func FuzzUnpackMemory(f *testing.F) {
	for n := range int8(5) {
		f.Add(encoded(f, samples(n), identity{}), true)
	}
	m := old{magic: 1, ts: 5, key: []byte("k"), value: []byte("v")}
	f.Add(m.encode(), false)
	f.Add(append(m.encode(), encoded(f, samples(3), identity{})...), false)
	u, pool := unpackers(f)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) > batch.HeaderLen && b[16] == 2 {
			b = change(b, func([]byte) {})
		}
		var out *unpacked
		n := allocated(func() { out, _ = u.all(0, unlimited(), nil, b, b) })
		out.drop()
		require.Zero(t, pool.InUse())
		require.LessOrEqual(t, n, int64(32<<20+6*min(batch.DefaultMaxDecompressed, 40_000*len(b))))
	})
}

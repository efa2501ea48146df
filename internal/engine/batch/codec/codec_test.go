package codec_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
)

var kgoCodecs = []kgo.CompressionCodec{
	kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
}

func sample(n int) []byte {
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.IntN(7))
	}
	return b
}

func TestPayloadsAreUnderstoodBothWaysByTheClientLibrary(t *testing.T) {
	t.Parallel()
	c, err := codec.New()
	require.NoError(t, err)
	theirs := kgo.DefaultDecompressor()
	for id := range int8(5) {
		compressor, err := kgo.DefaultCompressor(kgoCodecs[id])
		require.NoError(t, err)
		for _, n := range []int{1, 100, 32 << 10, 70_000, 3 << 20} {
			raw := sample(n)
			packed, err := c.Compress([]byte("head"), raw, id)
			require.NoError(t, err)
			require.Equal(t, "head", string(packed[:4]))
			back, err := theirs.Decompress(packed[4:], kgo.CompressionCodecType(id))
			require.NoError(t, err)
			require.True(t, bytes.Equal(raw, back), "codec %d, %d bytes", id, n)

			var buf bytes.Buffer
			out, used := raw, kgo.CompressionCodecType(id)
			if id > 0 {
				out, used = compressor.Compress(&buf, raw)
			}
			require.EqualValues(t, id, used)
			for _, limit := range []int{n, n + 1, 1 << 30} {
				got, err := c.Decompress([]byte("head"), out, id, limit)
				require.NoError(t, err, "codec %d, %d bytes", id, n)
				require.Equal(t, "head", string(got[:4]))
				require.True(t, bytes.Equal(raw, got[4:]))
			}
			for _, limit := range []int{n - 1, n / 2, 0, -1} {
				if n > 0 {
					_, err := c.Decompress(nil, out, id, limit)
					require.ErrorIs(t, err, batch.ErrTooLarge, "codec %d, %d bytes, limit %d", id, n, limit)
				}
			}
		}
	}
	_, err = c.Compress(nil, nil, 5)
	require.Error(t, err)
	_, err = c.Decompress(nil, nil, 7, 10)
	require.Error(t, err)
}

func TestZstdOfUnknownSizeOfManyFramesAndOfHugeRatio(t *testing.T) {
	t.Parallel()
	c, err := codec.New()
	require.NoError(t, err)
	raw := sample(3 << 20)
	var stream bytes.Buffer
	w, err := zstd.NewWriter(&stream) // as the Java client: the size stands nowhere
	require.NoError(t, err)
	_, err = w.Write(raw)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	got, err := c.Decompress(nil, stream.Bytes(), batch.CodecZstd, len(raw))
	require.NoError(t, err)
	require.True(t, bytes.Equal(raw, got))
	_, err = c.Decompress(nil, stream.Bytes(), batch.CodecZstd, len(raw)-1)
	require.ErrorIs(t, err, batch.ErrTooLarge)

	one := w.EncodeAll(raw[:1000], nil)
	two := w.EncodeAll(raw[1000:3000], append([]byte(nil), one...))
	got, err = c.Decompress([]byte("x"), two, batch.CodecZstd, 3000)
	require.NoError(t, err)
	require.True(t, bytes.Equal(raw[:3000], got[1:]))

	zeros := make([]byte, 64<<20)
	bomb := w.EncodeAll(zeros, nil)
	require.Less(t, len(bomb), 64<<10)
	_, err = c.Decompress(nil, bomb, batch.CodecZstd, 1<<20)
	require.ErrorIs(t, err, batch.ErrTooLarge)
	got, err = c.Decompress(nil, bomb, batch.CodecZstd, len(zeros))
	require.NoError(t, err)
	require.Len(t, got, len(zeros))
}

func FuzzDecompress(f *testing.F) {
	c, err := codec.New()
	require.NoError(f, err)
	for id := range int8(5) {
		packed, err := c.Compress(nil, sample(300), id)
		require.NoError(f, err)
		f.Add(uint8(id), packed)
	}
	f.Fuzz(func(t *testing.T, id uint8, in []byte) {
		const limit = 1 << 16
		var out []byte
		var err error
		got := allocated(func() { out, err = c.Decompress([]byte("head"), in, int8(id%6), limit) })
		require.LessOrEqual(t, got, int64(slack+4*limit+4*len(in)))
		require.Equal(t, "head", string(out[:4]))
		require.LessOrEqual(t, len(out), 4+limit)
		if err == nil {
			return
		}
		require.Len(t, out, 4)
	})
}

func BenchmarkDecompress(b *testing.B) {
	c, err := codec.New()
	require.NoError(b, err)
	raw := sample(1 << 20)
	for id := range int8(5) {
		packed, err := c.Compress(nil, raw, id)
		require.NoError(b, err)
		b.Run(fmt.Sprint(id), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			var out []byte
			for b.Loop() {
				if out, err = c.Decompress(out[:0], packed, id, 1<<21); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// allocated is how many bytes f allocates. Nothing else may run, so tests that use it are not parallel.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// slack is what the decoders keep for themselves: for LZ4 a block of 4 MiB in and out.
const slack = 9 << 20

func TestHostilePayloadsAllocateLittleMoreThanTheLimit(t *testing.T) {
	const limit = 1 << 20
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
	require.NoError(t, err)
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd}
	window := func(log byte) []byte { return append(bytes.Clone(frame), 0, (log-10)<<3) }
	sized := func(size uint64) []byte {
		return binary.LittleEndian.AppendUint64(append(bytes.Clone(frame), 7<<5), size)
	}
	raw := []byte{1 | 1<<3, 0, 0, 'x'} // the last block, of one byte
	repeated := func(head []byte, blocks int) []byte {
		for range blocks {
			head = append(head, 0x02, 0x00, 0x10, 'x') // 128 KiB of it
		}
		return append(head, raw...)
	}
	bomb := func(id int8) []byte {
		c, err := codec.New()
		require.NoError(t, err)
		packed, err := c.Compress(nil, make([]byte, 64<<20), id)
		require.NoError(t, err)
		return packed
	}
	for name, p := range map[string]struct {
		id    int8
		in    []byte
		holds int // -1: refused
	}{
		"a window of 128 MiB for one byte":           {4, append(window(27), raw...), 1},
		"a window of 2 TiB":                          {4, append(window(41), raw...), -1},
		"a size of 1 MiB for one byte":               {4, append(sized(limit), raw...), -1},
		"a size of 2^63":                             {4, append(sized(1<<63), raw...), -1},
		"many bytes from few":                        {4, repeated(window(21), 1000), -1},
		"as many as allowed from few":                {4, repeated(window(21), 7), 7*128<<10 + 1},
		"cut off":                                    {4, append(window(27), 0xfc, 0xff, 0xff), -1},
		"zeros by gzip":                              {1, bomb(1), -1},
		"zeros by snappy":                            {2, bomb(2), -1},
		"zeros by lz4":                               {3, bomb(3), -1},
		"zeros by zstd":                              {4, w.EncodeAll(make([]byte, 64<<20), nil), -1},
		"a snappy block that claims 4 GiB":           {2, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'x'}, -1},
		"a snappy block that claims 1 MiB":           {2, []byte{0x80, 0x80, 0x40, 0, 'x'}, -1},
		"a snappy stream whose block is not there":   {2, append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}, 0x7f, 0xff, 0xff, 0xff), -1},
		"an lz4 frame of 4 MiB blocks for one byte":  {3, lz4Frame(t, []byte("x")), 1},
		"an lz4 frame whose block is not there":      {3, append(lz4Frame(t, []byte("x"))[:7], 0, 0, 0x40, 0), -1},
		"a gzip header and nothing":                  {1, []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}, -1},
		"a gzip header with a name that has no end":  {1, append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255}, bytes.Repeat([]byte{'n'}, 1<<16)...), -1},
		"a gzip stream with an extra field too long": {1, []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 0xff, 0xff}, -1},
	} {
		c, err := codec.New()
		require.NoError(t, err)
		var out []byte
		got := allocated(func() { out, err = c.Decompress(nil, p.in, p.id, limit) })
		if p.holds < 0 {
			require.Error(t, err, name)
		} else {
			require.NoError(t, err, name)
			require.Len(t, out, p.holds, name)
		}
		require.LessOrEqual(t, got, int64(slack+4*limit+4*len(p.in)), name)
	}
}

func lz4Frame(t *testing.T, content []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := lz4.NewWriter(&buf)
	require.NoError(t, w.Apply(lz4.BlockSizeOption(lz4.Block4Mb)))
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

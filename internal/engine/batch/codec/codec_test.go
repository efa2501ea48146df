package codec_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
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
		out, err := c.Decompress([]byte("head"), in, int8(id%6), limit)
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

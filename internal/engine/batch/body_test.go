package batch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

const bodyLimit = 1 << 20

func TestABodyIsTheSameInWhateverBatch(t *testing.T) {
	t.Parallel()
	c := codecs(t)
	all := records(5, 30)
	plain := spec{base: 5, records: all}.make(t)
	for codec := range int8(5) {
		b := spec{base: 900, codec: codec, records: all[1:], pid: 7}.make(t)
		for i := range 4 {
			want, err := batch.Body(plain, i+1, bodyLimit, c)
			require.NoError(t, err)
			got, err := batch.Body(b, i, bodyLimit, c)
			require.NoError(t, err)
			require.Equal(t, want, got, "record %d, codec %d", i, codec)
			other, err := batch.Body(plain, i, bodyLimit, c)
			require.NoError(t, err)
			require.NotEqual(t, other, got)
		}
		for _, none := range []int{-1, 4} {
			_, err := batch.Body(b, none, bodyLimit, c)
			require.ErrorIs(t, err, batch.ErrCorrupt)
		}
	}
}

func FuzzBody(f *testing.F) {
	for codec := range int8(5) {
		b := spec{base: 5, codec: codec, records: records(3, 30)}.make(f)
		f.Add(uint8(codec), int32(3), int32(2), 2, b.Payload())
	}
	c := codecs(f)
	f.Fuzz(func(t *testing.T, attrs uint8, count, last int32, i int, payload []byte) {
		b := append(append(batch.Batch(nil), spec{base: 5, records: records(1, 1)}.make(t)[:61]...), payload...)
		putHeader(b, attrs, count, last)
		parsed, err := batch.Parse(b)
		if err != nil {
			return
		}
		got := allocated(func() { _, err = batch.Body(parsed, i, 1<<16, c) })
		require.LessOrEqual(t, got, int64(codecSlack+64*(1<<16+len(payload))))
	})
}

package batch_test

import (
	"encoding/binary"
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

// FuzzPath walks over an answer of which list says what was aborted, 16 bytes an entry: whatever stands there, the walk
// goes forward, ends, and takes no memory but for the list.
func FuzzPath(f *testing.F) {
	one := spec{base: 10, records: records(3, 20), pid: 3, attrs: txn}.make(f)
	list := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 3), 10)
	f.Add(list, join(one, marker(f, 13, 3, false), spec{base: 14, records: records(1, 9), attrs: appendTime}.make(f)), int64(11), uint8(0), 0)
	f.Add(append(list, list...), []byte(spec{base: 14, records: records(5, 9), codec: 4}.make(f)), int64(0), uint8(0xff), 20)
	var aborted batch.Aborted
	f.Fuzz(func(t *testing.T, list, in []byte, want int64, flags uint8, limit int) {
		var entries []batch.AbortedTransaction
		for ; len(list) >= 16; list = list[16:] {
			entries = append(entries, batch.AbortedTransaction{
				ProducerID: int64(binary.BigEndian.Uint64(list)), FirstOffset: int64(binary.BigEndian.Uint64(list[8:])),
			})
		}
		target := batch.Target{
			MaxBatchBytes: limit, AppendTime: flags&1 != 0, Recompress: flags&2 != 0, NoZstd: flags&4 != 0, LooksInside: flags&8 != 0,
			Codec: batch.TopicCodec(flags>>4) - 1,
		}
		seen, backwards := 0, 0
		got := allocated(func() {
			aborted.Reset(entries)
			s := batch.Slice(in)
			for s.Next() {
				seen += len(s.Raw())
				if s.Magic() < 2 {
					continue
				}
				b := s.Batch()
				aborted.Covers(b)
				next := b.NextOffset()
				if next <= b.BaseOffset() {
					backwards++
				}
				switch v, _ := batch.Judge(b, want, target); v {
				case batch.Pass:
					batch.Patch(b, batch.Anonymous)
				case batch.PassAppendTime:
					batch.PatchAppendTime(b, batch.Anonymous)
				}
			}
		})
		require.LessOrEqual(t, seen, len(in))
		require.Zero(t, backwards)
		require.LessOrEqual(t, got, int64(1<<16+128*len(entries)))
	})
}

// FuzzAddRecord gives a builder records that were decoded elsewhere.
func FuzzAddRecord(f *testing.F) {
	f.Add(int64(4), int64(-1), batch.AppendBody(nil, []byte("k"), nil), int8(0))
	f.Add(int64(-4), int64(1<<62), batch.AppendBody(nil, nil, []byte("v")), int8(4))
	f.Add(int64(4), int64(7), []byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}, int8(1))
	c := codecs(f)
	w := batch.NewBuilder(c)
	f.Fuzz(func(t *testing.T, offset, timestamp int64, body []byte, of int8) {
		of &= 7
		w.Reset(batch.Options{Want: -1 << 62})
		if err := w.AddRecord(offset, timestamp, body, of); err != nil {
			require.ErrorIs(t, err, batch.ErrCorrupt)
			return
		}
		var built []batch.Built
		var err error
		got := allocated(func() { _, built, err = w.Build(nil) })
		require.LessOrEqual(t, got, int64(codecSlack+16*len(body)))
		if of > batch.CodecZstd {
			require.Error(t, err, "no such codec")
			return
		}
		require.NoError(t, err)
		for _, b := range built {
			require.True(t, b.Batch.Intact())
			rs := read(t, b.Batch)
			require.Len(t, rs, 1)
			require.Equal(t, timestamp, b.Batch.MaxTimestamp())
		}
	})
}

// codecSlack is what the codecs keep for themselves: LZ4 blocks and the tables of zstd and gzip encoders.
const codecSlack = 16 << 20

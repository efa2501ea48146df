package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// build adds all batches and builds.
func build(tb testing.TB, o batch.Options, in ...batch.Batch) []batch.Built {
	tb.Helper()
	w := batch.NewBuilder(codecs(tb))
	w.Reset(o)
	for _, b := range in {
		require.NoError(tb, w.Add(b))
	}
	_, built, err := w.Build([]byte("kept"))
	require.NoError(tb, err)
	return built
}

// sources are the source offsets of built batches, in order.
func sources(built []batch.Built) (offsets []int64) {
	for _, b := range built {
		for _, s := range b.Spans {
			for i := range int64(s.Count) {
				offsets = append(offsets, s.Source+i)
			}
		}
	}
	return offsets
}

// requireSame checks that built holds the records of in from want on: key, value, headers, timestamp, in valid batches.
func requireSame(tb testing.TB, want int64, in []batch.Batch, built []batch.Built) {
	tb.Helper()
	var expected []*kgo.Record
	for _, r := range read(tb, in...) {
		if r.Offset >= want && !r.Attrs.IsControl() {
			expected = append(expected, r)
		}
	}
	at := sources(built)
	require.Len(tb, at, len(expected))
	var got []*kgo.Record
	for _, b := range built {
		v, _ := batch.Judge(b.Batch, 0, batch.Target{Codec: batch.ProducerCodec})
		require.Equal(tb, batch.Pass, v)
		require.Equal(tb, batch.Anonymous, batch.Producer{ID: b.Batch.ProducerID(), Epoch: b.Batch.ProducerEpoch(), Sequence: b.Batch.BaseSequence()})
		require.Zero(tb, b.Batch.BaseOffset())
		require.Equal(tb, len(b.Batch), cap(b.Batch))
		rs := read(tb, b.Batch)
		maxTime := rs[0].Timestamp
		for i, r := range rs {
			require.EqualValues(tb, i, r.Offset)
			if r.Timestamp.After(maxTime) {
				maxTime = r.Timestamp
			}
		}
		require.Equal(tb, maxTime.UnixMilli(), b.Batch.MaxTimestamp())
		got = append(got, rs...)
	}
	for i, e := range expected {
		require.Equal(tb, e.Offset, at[i])
		require.Equal(tb, e.Key, got[i].Key)
		require.Equal(tb, e.Value, got[i].Value)
		require.Equal(tb, e.Headers, got[i].Headers)
		require.Equal(tb, e.Timestamp, got[i].Timestamp)
	}
}

// numbered are n batches of per records each; records have headers, null keys and null values among them.
func numbered(tb testing.TB, codec int8, n, per, size int) (bs []batch.Batch) {
	for i := range n {
		rs := records(per, size)
		rs[0].hdrs = []kmsg.Header{{Key: "a", Value: []byte("b")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}}
		rs[per-1].key, rs[per-1].value = nil, nil
		rs[per/2].value = []byte{}
		rs[per/2].ts -= 1_000_000
		bs = append(bs, spec{base: int64(1000 + i*per), codec: codec, records: rs, pid: 9, sequence: 4, attrs: txn}.make(tb))
	}
	return bs
}

func TestSmallBatchesAreMergedIntoOneOfTheirCodec(t *testing.T) {
	t.Parallel()
	for codec := range int8(5) {
		t.Run(fmt.Sprint(codec), func(t *testing.T) {
			t.Parallel()
			in := numbered(t, codec, 40, 3, 200)
			built := build(t, batch.Options{}, in...)
			require.Len(t, built, 1)
			require.Equal(t, codec, built[0].Batch.Codec())
			require.Equal(t, []batch.Span{{Source: 1000, Count: 120}}, built[0].Spans)
			require.Less(t, len(built[0].Batch), len(join(in...)))
			requireSame(t, 0, in, built)
		})
	}
}

func TestBatchesBelowTheWantedOffsetAndControlBatchesAreLeftOut(t *testing.T) {
	t.Parallel()
	in := append(numbered(t, 3, 3, 10, 50), marker(t, 1030, 9, true), spec{base: 1031, last: 3}.make(t), spec{base: 1035, records: records(2, 5)}.make(t))
	built := build(t, batch.Options{Want: 1014}, in...)
	require.Len(t, built, 1)
	require.Equal(t, []batch.Span{{Source: 1014, Count: 16}, {Source: 1035, Count: 2}}, built[0].Spans)
	requireSame(t, 1014, append(in[:4:4], in[5]), built)
}

func TestHolesCloseOrSplitAsAsked(t *testing.T) {
	t.Parallel()
	rs := records(10, 30)
	in := []batch.Batch{
		spec{base: 100, last: 12, codec: 4, records: []rec{rs[1], rs[2], rs[5], rs[9]}}.make(t),
		spec{base: 113, codec: 4, records: records(2, 30)}.make(t),
	}
	built := build(t, batch.Options{}, in...)
	require.Len(t, built, 1)
	spans := []batch.Span{{Source: 101, Count: 2}, {Source: 105, Count: 1}, {Source: 109, Count: 1}, {Source: 113, Count: 2}}
	require.Equal(t, spans, built[0].Spans)
	requireSame(t, 0, in, built)
	built = build(t, batch.Options{SplitAtHoles: true}, in...)
	require.Len(t, built, 4)
	for i, s := range spans {
		require.Equal(t, []batch.Span{s}, built[i].Spans)
	}
	requireSame(t, 0, in, built)
}

func TestABatchIsCutAtOffsets(t *testing.T) {
	t.Parallel()
	in := numbered(t, 2, 2, 10, 30)
	built := build(t, batch.Options{Cuts: []int64{900, 1000, 1003, 1004, 1010, 1500}}, in...)
	require.Len(t, built, 4)
	for i, s := range []batch.Span{{Source: 1000, Count: 3}, {Source: 1003, Count: 1}, {Source: 1004, Count: 6}, {Source: 1010, Count: 10}} {
		require.Equal(t, []batch.Span{s}, built[i].Spans)
	}
	requireSame(t, 0, in, built)
}

func TestALargeBatchIsSplitToTheLimit(t *testing.T) {
	t.Parallel()
	for codec := range int8(5) {
		in := []batch.Batch{spec{base: 7, codec: codec, records: records(500, 1000)}.make(t)}
		built := build(t, batch.Options{MaxBatchBytes: 20_000}, in...)
		require.Greater(t, len(built), 10, "codec %d", codec)
		for _, b := range built {
			require.LessOrEqual(t, len(b.Batch), 20_000)
			require.False(t, b.Oversize)
			require.Equal(t, codec, b.Batch.Codec())
		}
		require.Less(t, len(built), 500*1000/5000)
		requireSame(t, 0, in, built)
	}
}

func TestARecordThatFitsNowhereStandsAlone(t *testing.T) {
	t.Parallel()
	rs := append(append(records(5, 100), records(1, 60_000)...), records(4, 100)...)
	for i := range rs {
		rs[i].delta = int32(i)
	}
	in := []batch.Batch{spec{base: 50, codec: 1, records: rs}.make(t)}
	built := build(t, batch.Options{MaxBatchBytes: 10_000}, in...)
	over := 0
	for _, b := range built {
		if b.Oversize {
			over++
			require.Equal(t, []batch.Span{{Source: 55, Count: 1}}, b.Spans)
		} else {
			require.LessOrEqual(t, len(b.Batch), 10_000)
		}
	}
	require.Equal(t, 1, over)
	requireSame(t, 0, in, built)
}

func TestMergedBatchesStayWithinRawBytesAndRecords(t *testing.T) {
	t.Parallel()
	in := numbered(t, 0, 30, 10, 100)
	for _, o := range []batch.Options{{RawBytes: 5000}, {MaxRecords: 37}} {
		built := build(t, o, in...)
		require.Greater(t, len(built), 4)
		for _, b := range built {
			require.LessOrEqual(t, len(b.Batch), 61+5000)
			require.LessOrEqual(t, b.BodyBytes, int64(5000))
		}
		requireSame(t, 0, in, built)
	}
}

func TestCodecsOfMergedBatches(t *testing.T) {
	t.Parallel()
	rs := records(2, 500)
	at := func(base int64, codec int8) batch.Batch { return spec{base: base, codec: codec, records: rs}.make(t) }
	in := []batch.Batch{at(0, 0), at(2, 3), at(4, 0), at(6, 4), at(8, 4), at(10, 3)}
	built := build(t, batch.Options{}, in...)
	var got []int8
	for _, b := range built {
		got = append(got, b.Batch.Codec())
	}
	require.Equal(t, []int8{3, 4, 3}, got)
	require.EqualValues(t, 6, built[0].Batch.Count())
	requireSame(t, 0, in, built)

	built = build(t, batch.Options{Recompress: true, TopicCodec: batch.TopicCodec(batch.CodecZstd)}, in...)
	require.Len(t, built, 1)
	require.Equal(t, batch.CodecZstd, built[0].Batch.Codec())
	requireSame(t, 0, in, built)

	// What does not shrink stays as it is.
	short := []batch.Batch{spec{codec: 4, records: []rec{{ts: 5, value: []byte{1}}}}.make(t)}
	built = build(t, batch.Options{}, short...)
	require.Equal(t, batch.CodecNone, built[0].Batch.Codec())
	requireSame(t, 0, short, built)
}

func TestAppendTimeBecomesTheRecordsTime(t *testing.T) {
	t.Parallel()
	in := []batch.Batch{
		spec{base: 4, attrs: appendTime, codec: 3, records: records(5, 50), maxTime: 1_800_000_000_000}.make(t),
		spec{base: 9, attrs: appendTime, records: records(2, 50), maxTime: 1_800_000_000_700}.make(t),
	}
	built := build(t, batch.Options{}, in...)
	require.Len(t, built, 1)
	requireSame(t, 0, in, built)
	rs := read(t, built[0].Batch)
	require.EqualValues(t, 1_800_000_000_000, rs[0].Timestamp.UnixMilli())
	require.EqualValues(t, 1_800_000_000_700, rs[6].Timestamp.UnixMilli())
}

func TestAddRefusesDamageAndKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	good := spec{base: 0, codec: 3, records: records(4, 40)}.make(t)
	w := batch.NewBuilder(codecs(t))
	w.Reset(batch.Options{MaxDecompressed: 100_000})
	require.NoError(t, w.Add(good))
	flipped := append(batch.Batch(nil), spec{base: 4, records: records(1, 10)}.make(t)...)
	flipped[70] ^= 1
	require.ErrorIs(t, w.Add(flipped), batch.ErrCorrupt)
	require.ErrorIs(t, w.Add(spec{base: 2, records: records(1, 10)}.make(t)), batch.ErrCorrupt, "offsets go backwards")
	require.ErrorIs(t, w.Add(spec{base: 4, records: records(2, 10), overCount: -1}.make(t)), batch.ErrCorrupt)
	require.ErrorIs(t, w.Add(spec{base: 4, last: 9, records: records(2, 10), overCount: 1}.make(t)), batch.ErrCorrupt)
	require.ErrorIs(t, w.Add(spec{base: 4, last: 9, records: []rec{{delta: 3}, {delta: 3}}}.make(t)), batch.ErrCorrupt)
	require.Error(t, w.Add(spec{base: 4, records: records(2, 10), attrs: 2}.make(t)), "plain bytes said to be snappy")
	for codec := int8(1); codec < 5; codec++ {
		err := w.Add(spec{base: 4, codec: codec, records: records(200, 1000)}.make(t))
		require.ErrorIs(t, err, batch.ErrTooLarge, "codec %d", codec)
	}
	require.NoError(t, w.Add(spec{base: 4, codec: 3, records: records(1, 10)}.make(t)))
	_, built, err := w.Build(nil)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2, 3, 4}, sources(built))
	requireSame(t, 0, []batch.Batch{good, spec{base: 4, records: records(1, 10)}.make(t)}, built)
	// Build may be repeated, and the builder used again.
	_, again, err := w.Build(nil)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2, 3, 4}, sources(again))
	w.Reset(batch.Options{})
	require.Zero(t, w.Records())
	out, none, err := w.Build(nil)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Empty(t, out)
}

var errNoCodec = errors.New("no codec")

type broken struct{}

func (broken) Decompress(dst, _ []byte, _ int8, _ int) ([]byte, error) { return dst, errNoCodec }
func (broken) Compress(dst, _ []byte, _ int8) ([]byte, error)          { return dst, errNoCodec }

func TestErrorsOfTheCodecArePassedOn(t *testing.T) {
	t.Parallel()
	w := batch.NewBuilder(broken{})
	w.Reset(batch.Options{})
	require.ErrorIs(t, w.Add(spec{codec: 1, records: records(1, 1)}.make(t)), errNoCodec)
	require.NoError(t, w.AddRecord(3, 4, batch.AppendBody(nil, nil, []byte("v")), 1))
	_, _, err := w.Build(nil)
	require.ErrorIs(t, err, errNoCodec)
}

func TestRecordsDecodedElsewhereAreAdded(t *testing.T) {
	t.Parallel()
	w := batch.NewBuilder(codecs(t))
	w.Reset(batch.Options{Want: 4})
	require.NoError(t, w.AddRecord(3, 99, batch.AppendBody(nil, []byte("k"), nil), 0))
	require.NoError(t, w.AddRecord(5, 100, batch.AppendBody(nil, []byte("k"), nil), 0))
	require.NoError(t, w.AddRecord(6, -1, batch.AppendBody(nil, nil, []byte("v")), 0))
	require.ErrorIs(t, w.AddRecord(7, 1, []byte{1, 2}, 0), batch.ErrCorrupt)
	_, built, err := w.Build(nil)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 6}, sources(built))
	rs := read(t, built[0].Batch)
	require.Equal(t, "k", string(rs[0].Key))
	require.Nil(t, rs[0].Value)
	require.Nil(t, rs[1].Key)
	require.EqualValues(t, -1, rs[1].Timestamp.UnixMilli())
}

func TestAnyCutKeepsTheRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var in []batch.Batch
		base := int64(10)
		for range rapid.IntRange(1, 8).Draw(r, "batches") {
			var rs []rec
			delta := rapid.Int32Range(0, 2).Draw(r, "first")
			for range rapid.IntRange(1, 20).Draw(r, "records") {
				rs = append(rs, rec{
					delta: delta, ts: rapid.Int64Range(-1, 1<<42).Draw(r, "ts"), key: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(r, "key"),
					value: bytes.Repeat([]byte("x"), rapid.IntRange(0, 300).Draw(r, "size")),
				})
				delta += rapid.SampledFrom([]int32{1, 1, 1, 2, 5}).Draw(r, "step")
			}
			b := spec{base: base, last: delta, records: rs, codec: rapid.SampledFrom([]int8{0, 1, 2, 3, 4}).Draw(r, "codec")}.make(t)
			base = b.NextOffset() + rapid.Int64Range(0, 3).Draw(r, "gap")
			in = append(in, b)
		}
		o := batch.Options{
			Want: rapid.Int64Range(0, base).Draw(r, "want"), SplitAtHoles: rapid.Bool().Draw(r, "split"),
			MaxBatchBytes: rapid.SampledFrom([]int{0, 100, 500, 2000}).Draw(r, "max"), RawBytes: rapid.SampledFrom([]int{0, 1, 700}).Draw(r, "raw"),
			MaxRecords: rapid.IntRange(0, 9).Draw(r, "max records"),
		}
		built := build(t, o, in...)
		requireSame(t, o.Want, in, built)
		for _, b := range built {
			require.True(r, o.MaxBatchBytes == 0 || b.Oversize && b.Batch.Count() == 1 || len(b.Batch) <= o.MaxBatchBytes)
			require.True(r, !o.SplitAtHoles || len(b.Spans) == 1)
		}
	})
}

// FuzzBuilder feeds payloads with a right checksum, as a hostile broker would.
func FuzzBuilder(f *testing.F) {
	for codec := range int8(5) {
		b := spec{base: 5, codec: codec, records: records(3, 30)}.make(f)
		f.Add(uint8(codec), int32(3), int32(2), b.Payload())
	}
	c := codecs(f)
	f.Fuzz(func(t *testing.T, attrs uint8, count, last int32, payload []byte) {
		b := append(append(batch.Batch(nil), spec{base: 5, records: records(1, 1)}.make(t)[:61]...), payload...)
		putHeader(b, attrs, count, last)
		parsed, err := batch.Parse(b)
		if err != nil {
			return
		}
		const limit = 1 << 16
		w := batch.NewBuilder(c)
		var out []byte
		var built []batch.Built
		var refused error
		got := allocated(func() {
			w.Reset(batch.Options{MaxDecompressed: limit, MaxBatchBytes: 1000})
			if refused = w.Add(parsed); refused == nil {
				out, built, err = w.Build(nil)
			}
		})
		require.LessOrEqual(t, got, int64(codecSlack+64*(limit+len(payload))))
		if refused != nil {
			require.Zero(t, w.Records())
			return
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(out), 100*(limit+len(payload)))
		for _, x := range built {
			require.True(t, x.Batch.Intact())
			v, _ := batch.Judge(x.Batch, 0, batch.Target{Codec: batch.ProducerCodec})
			require.Equal(t, batch.Pass, v)
			again := batch.NewBuilder(c)
			again.Reset(batch.Options{})
			require.NoError(t, again.Add(x.Batch))
			require.EqualValues(t, x.Batch.Count(), again.Records())
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	for codec := range int8(5) {
		for _, size := range []int{100, 1000} {
			in := numbered(b, codec, 100, 10, size)
			b.Run(fmt.Sprintf("%d/%d", codec, size), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(1000 * size))
				w := batch.NewBuilder(codecs(b))
				var out []byte
				for b.Loop() {
					w.Reset(batch.Options{})
					for _, x := range in {
						if err := w.Add(x); err != nil {
							b.Fatal(err)
						}
					}
					var err error
					if out, _, err = w.Build(out[:0]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestHostileBatchesAllocateLittleMoreThanTheLimit(t *testing.T) {
	const limit = 1 << 18
	// As many records as fit, all of them empty, from a few kilobytes that decompress to far more than is allowed, or to just
	// what is allowed.
	for _, n := range []int{limit / 8, 2 * limit} {
		rs := make([]rec, n)
		for i := range rs {
			rs[i].delta = int32(i)
		}
		b := spec{codec: 4, records: rs}.make(t)
		c := codecs(t)
		got := allocated(func() {
			w := batch.NewBuilder(c)
			w.Reset(batch.Options{MaxDecompressed: limit, MaxBatchBytes: 10_000})
			if w.Add(b) == nil {
				_, _, _ = w.Build(nil)
			}
		})
		require.LessOrEqual(t, got, int64(64*limit), "%d records in %d bytes", n, len(b))
	}
}

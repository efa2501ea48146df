package batch_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	plain := batch.Target{Codec: batch.ProducerCodec}
	logTime := batch.Target{Codec: batch.ProducerCodec, AppendTime: true}
	untouched := spec{base: 10, records: records(5, 50)}
	with := func(change func(*spec)) spec { s := untouched; change(&s); return s }
	late := records(1, 50)
	for _, c := range []struct {
		name    string
		batch   spec
		want    int64
		target  batch.Target
		verdict batch.Verdict
		reason  batch.Reason
	}{
		{"an untouched batch", untouched, 10, plain, batch.Pass, batch.ReasonNone},
		{"behind a gap between batches", untouched, 3, plain, batch.Pass, batch.ReasonNone},
		{"a transactional batch", with(func(s *spec) { s.attrs = txn; s.pid = 4 }), 10, plain, batch.Pass, batch.ReasonNone},
		{"a batch with delete horizon", with(func(s *spec) { s.attrs = horizon }), 10, plain, batch.Pass, batch.ReasonNone},
		{"mirrored already", untouched, 15, plain, batch.Skip, batch.ReasonBelow},
		{"wanted from its last record on", untouched, 14, plain, batch.Fallback, batch.ReasonStartsInside},
		{"wanted from its second record on", untouched, 11, plain, batch.Fallback, batch.ReasonStartsInside},
		{"a control batch", with(func(s *spec) { s.attrs = control | txn }), 10, plain, batch.Skip, batch.ReasonControl},
		{"a hole inside", with(func(s *spec) { s.records = append(records(2, 5), rec{delta: 4}) }), 10, plain, batch.Fallback, batch.ReasonHoles},
		{"the first record is missing", with(func(s *spec) { s.records = records(5, 5)[1:] }), 10, plain, batch.Fallback, batch.ReasonHoles},
		{"the last record is missing", with(func(s *spec) { s.last = 7 }), 10, plain, batch.Fallback, batch.ReasonHoles},
		{"emptied", with(func(s *spec) { s.records = nil; s.last = 4 }), 10, plain, batch.Skip, batch.ReasonEmpty},
		{"an emptied one that starts below", with(func(s *spec) { s.records = nil; s.last = 4 }), 12, plain, batch.Skip, batch.ReasonEmpty},
		{"more records than offsets", with(func(s *spec) { s.overCount = 1 }), 10, plain, batch.Corrupt, batch.ReasonCount},
		{"fewer records than none", with(func(s *spec) { s.overCount = -6 }), 10, plain, batch.Corrupt, batch.ReasonCount},
		{"append time onto append time", with(func(s *spec) { s.attrs = appendTime }), 10, logTime, batch.Pass, batch.ReasonNone},
		{"append time onto create time", with(func(s *spec) { s.attrs = appendTime }), 10, plain, batch.Fallback, batch.ReasonAppendTime},
		{"create time onto append time", untouched, 10, logTime, batch.Pass, batch.ReasonNone},
		{"append time, one record at the base", spec{attrs: appendTime, records: late, maxTime: 1 << 42}, 0, plain, batch.PassAppendTime, batch.ReasonNone},
		{"append time, one record off the base", spec{attrs: appendTime, records: late, baseTime: 5}, 0, plain, batch.Fallback, batch.ReasonAppendTime},
		{"append time, one compressed record", spec{attrs: appendTime, records: late, codec: 3}, 0, plain, batch.Fallback, batch.ReasonAppendTime},
		{"at the limit", untouched, 10, batch.Target{Codec: batch.ProducerCodec, MaxBatchBytes: len(untouched.make(t))}, batch.Pass, batch.ReasonNone},
		{"over the limit", untouched, 10, batch.Target{Codec: batch.ProducerCodec, MaxBatchBytes: len(untouched.make(t)) - 1}, batch.Fallback, batch.ReasonTooLarge},
		{"the topic's codec", with(func(s *spec) { s.codec = 3 }), 10, batch.Target{Codec: batch.TopicCodec(batch.CodecLZ4)}, batch.Pass, batch.ReasonNone},
		{"another codec than the topic's", with(func(s *spec) { s.codec = 3 }), 10, batch.Target{Codec: batch.TopicCodec(batch.CodecZstd)}, batch.Pass, batch.ReasonRecompressed},
		{"another codec, to be spared", with(func(s *spec) { s.codec = 3 }), 10, batch.Target{Recompress: true}, batch.Fallback, batch.ReasonRecompress},
		{"zstd where it is unknown", with(func(s *spec) { s.codec = 4 }), 10, batch.Target{Codec: batch.ProducerCodec, NoZstd: true}, batch.Fallback, batch.ReasonCodec},
		{"an undefined codec", with(func(s *spec) { s.attrs = 6 }), 10, plain, batch.Corrupt, batch.ReasonUnknownCodec},
		{"something looks inside", untouched, 10, batch.Target{Codec: batch.ProducerCodec, LooksInside: true}, batch.Fallback, batch.ReasonLooksInside},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v, r := batch.Judge(c.batch.make(t), c.want, c.target)
			require.Equal(t, c.verdict, v, "reason %s", r)
			require.Equal(t, c.reason, r, r.String())
		})
	}
}

func TestASingleRecordPassesWithItsAppendTime(t *testing.T) {
	t.Parallel()
	b := spec{base: 3, attrs: appendTime, records: records(1, 50), maxTime: 1_800_000_000_000}.make(t)
	v, _ := batch.Judge(b, 3, batch.Target{Codec: batch.ProducerCodec})
	require.Equal(t, batch.PassAppendTime, v)
	batch.PatchAppendTime(b, batch.Anonymous)
	rs := read(t, b)
	require.EqualValues(t, 1_800_000_000_000, rs[0].Timestamp.UnixMilli())
	require.EqualValues(t, 0, rs[0].Attrs.TimestampType())
}

func TestNamesOfVerdictsAndReasonsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := batch.ReasonNone; r <= batch.ReasonUnknownCodec; r++ {
		require.NotContains(t, seen, r.String())
		seen[r.String()] = true
	}
	require.NotContains(t, seen, "unknown")
	require.NotContains(t, seen, "")
	require.Equal(t, "unknown", batch.Reason(200).String())
	require.Equal(t, "unknown", batch.Verdict(200).String())
	require.Equal(t, "corrupt", fmt.Sprint(batch.Corrupt))
}

// TestAbortedLikeTheJavaConsumer compares with the rule as the Java consumer has it, written down naively.
func TestAbortedLikeTheJavaConsumer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var bs []batch.Batch
		var all []batch.AbortedTransaction
		var markers []int64 // that end those in all
		open := map[int64]int64{}
		aborted := map[int64]bool{} // by base offset
		offset := int64(100)
		pending := map[int64][]int64{}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			pid := rapid.Int64Range(1, 4).Draw(r, "pid")
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0: // outside of transactions
				bs = append(bs, spec{base: offset, pid: rapid.SampledFrom([]int64{-1, 9, pid + 10}).Draw(r, "other"), records: records(1, 3)}.make(t))
			case 1, 2:
				if _, ok := open[pid]; !ok {
					open[pid] = offset
				}
				bs = append(bs, spec{base: offset, pid: pid, attrs: txn, records: records(2, 3)}.make(t))
				pending[pid] = append(pending[pid], offset)
			case 3:
				commit := rapid.Bool().Draw(r, "commit")
				bs = append(bs, marker(t, offset, pid, commit))
				if first, ok := open[pid]; ok && !commit {
					all = append(all, batch.AbortedTransaction{ProducerID: pid, FirstOffset: first})
					markers = append(markers, offset)
					for _, o := range pending[pid] {
						aborted[o] = true
					}
				}
				delete(open, pid)
				delete(pending, pid)
			}
			offset = bs[len(bs)-1].NextOffset() + rapid.Int64Range(0, 2).Draw(r, "gap")
		}
		// A response may begin anywhere; the broker then lists what overlaps.
		from := rapid.IntRange(0, len(bs)-1).Draw(r, "from")
		var list []batch.AbortedTransaction
		for i, m := range markers {
			if m >= bs[from].BaseOffset() {
				list = append(list, all[i])
			}
		}
		var a batch.Aborted
		a.Reset([]batch.AbortedTransaction{{ProducerID: 1}, {ProducerID: 2}})
		a.Covers(bs[0])
		a.Reset(list)
		for _, b := range bs[from:] {
			require.Equal(r, aborted[b.BaseOffset()], a.Covers(b), "offset %d", b.BaseOffset())
		}
	})
}

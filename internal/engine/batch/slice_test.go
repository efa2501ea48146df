package batch_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// walk collects the entries and checks that each lies in buf, end to end.
func walk(t testing.TB, buf []byte) (bs []batch.Batch, old int, s batch.Slicer) {
	t.Helper()
	s = batch.Slice(buf)
	at := 0
	for s.Next() {
		raw := s.Raw()
		require.Same(t, &buf[at], &raw[0])
		require.Equal(t, len(raw), cap(raw))
		at += len(raw)
		if s.Magic() == 2 {
			bs = append(bs, s.Batch())
		} else {
			old++
		}
	}
	return bs, old, s
}

func TestSliceFindsBatchesWhereTheyLie(t *testing.T) {
	t.Parallel()
	one := spec{base: 10, records: records(3, 20), pid: 7, epoch: 2, sequence: 5, leader: 4, attrs: txn | appendTime, codec: 3}.make(t)
	two := spec{base: 20, records: records(1, 20), pid: -1, epoch: -1, sequence: -1, attrs: horizon}.make(t)
	bs, old, s := walk(t, join(one, two))
	require.NoError(t, s.Err())
	require.Len(t, bs, 2)
	require.Zero(t, old)
	have, _ := s.Tail()
	require.Zero(t, have)
	b := bs[0]
	require.EqualValues(t, 10, b.BaseOffset())
	require.EqualValues(t, 2, b.LastDelta())
	require.EqualValues(t, 12, b.LastOffset())
	require.EqualValues(t, 13, b.NextOffset())
	require.EqualValues(t, 3, b.Count())
	require.EqualValues(t, 4, b.LeaderEpoch())
	require.EqualValues(t, 7, b.ProducerID())
	require.EqualValues(t, 2, b.ProducerEpoch())
	require.EqualValues(t, 5, b.BaseSequence())
	require.EqualValues(t, 1_700_000_000_000, b.BaseTimestamp())
	require.EqualValues(t, 1_700_000_000_002, b.MaxTimestamp())
	require.Equal(t, batch.CodecLZ4, b.Codec())
	require.EqualValues(t, txn|appendTime|3, b.Attributes())
	require.True(t, b.Transactional() && b.AppendTime() && !b.Control() && !b.DeleteHorizon() && b.Intact())
	require.True(t, bs[1].DeleteHorizon() && !bs[1].Transactional())
}

func TestSliceStopsBeforeABatchThatIsCutOff(t *testing.T) {
	t.Parallel()
	one, two := spec{records: records(2, 10)}.make(t), spec{base: 2, records: records(5, 100)}.make(t)
	all := join(one, two)
	for cut := range len(all) {
		bs, _, s := walk(t, all[:cut:cut])
		require.NoError(t, s.Err())
		have, need := s.Tail()
		switch {
		case cut < len(one):
			require.Empty(t, bs)
			require.Equal(t, cut, have)
		default:
			require.Len(t, bs, 1)
			require.Equal(t, cut-len(one), have)
		}
		if have >= 12 {
			require.Contains(t, []int{len(one), len(two)}, need)
		} else {
			require.Zero(t, need)
		}
	}
}

func TestSliceSeesFormatsBeforeV2(t *testing.T) {
	t.Parallel()
	m0 := (&kmsg.MessageV0{Offset: 3, MessageSize: 4 + 1 + 1 + 4 + 4 + 2, Value: []byte("ab")}).AppendTo(nil)
	m1 := (&kmsg.MessageV1{Offset: 4, MessageSize: 4 + 1 + 1 + 8 + 4 + 4 + 2, Magic: 1, Value: []byte("cd")}).AppendTo(nil)
	m2 := spec{base: 5, records: records(1, 10)}.make(t)
	bs, old, s := walk(t, append(append(m0, m1...), m2...))
	require.NoError(t, s.Err())
	require.Len(t, bs, 1)
	require.Equal(t, 2, old)
}

func TestSliceRefusesWhatIsNoBatch(t *testing.T) {
	t.Parallel()
	good := spec{base: 5, records: records(1, 10)}.make(t)
	for name, change := range map[string]func(b []byte){
		"negative length":          func(b []byte) { binary.BigEndian.PutUint32(b[8:], 0x80000000) },
		"length zero":              func(b []byte) { binary.BigEndian.PutUint32(b[8:], 0) },
		"shorter than a header":    func(b []byte) { binary.BigEndian.PutUint32(b[8:], 30) },
		"magic 3":                  func(b []byte) { b[16] = 3 },
		"magic -1":                 func(b []byte) { b[16] = 255 },
		"negative last delta":      func(b []byte) { binary.BigEndian.PutUint32(b[23:], 0xffffffff) },
		"negative base offset":     func(b []byte) { b[0] = 0x80 },
		"offsets beyond what fits": func(b []byte) { binary.BigEndian.PutUint64(b, 1<<63-1) },
	} {
		b := append([]byte(nil), good...)
		change(b)
		s := batch.Slice(b)
		require.False(t, s.Next(), name)
		require.ErrorIs(t, s.Err(), batch.ErrCorrupt, name)
		require.False(t, s.Next(), name)
	}
}

func FuzzSlice(f *testing.F) {
	f.Add([]byte(spec{base: 5, records: records(3, 10), codec: 1}.make(f)))
	f.Add(join(marker(f, 3, 9, false), spec{base: 4, records: records(1, 1)}.make(f)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var aborted batch.Aborted
		aborted.Reset([]batch.AbortedTransaction{{ProducerID: 9, FirstOffset: 0}})
		bs, _, s := walk(t, in)
		if have, need := s.Tail(); s.Err() == nil && have >= 12 {
			require.Greater(t, need, have)
		}
		for _, b := range bs {
			require.LessOrEqual(t, b.BaseOffset(), b.LastOffset())
			aborted.Covers(b)
			v, r := batch.Judge(b, 3, batch.Target{Codec: batch.ProducerCodec})
			require.NotEqual(t, "unknown", v.String())
			require.NotEqual(t, "unknown", r.String())
			intact := b.Intact()
			batch.Patch(b, batch.Anonymous)
			require.Equal(t, intact, b.Intact())
			batch.PatchAppendTime(b, batch.Producer{ID: 1 << 40, Epoch: 3, Sequence: 4})
			require.Equal(t, intact, b.Intact())
		}
	})
}

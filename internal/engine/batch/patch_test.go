package batch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// random makes a batch of n random payload bytes whose header fields are random, too; nothing looks inside.
func random(rnd *rand.Rand, n int) batch.Batch {
	b := make([]byte, batch.HeaderLen+n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	b[0], b[16], b[23] = 0, 2, b[23]&0x7f
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return batch.Batch(b)
}

func TestPatchSetsTheHeaderAndTheChecksumFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(8<<10-3, 8<<10+3), rapid.IntRange(0, 1<<18)).Draw(t, "size")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		b := random(rnd, size)
		before := bytes.Clone(b)
		p := batch.Producer{ID: rapid.Int64().Draw(t, "pid"), Epoch: rapid.Int16().Draw(t, "epoch"), Sequence: rapid.Int32().Draw(t, "seq"), Transactional: rapid.Bool().Draw(t, "txn")}
		appendTime := rapid.Bool().Draw(t, "append time")
		if appendTime {
			batch.PatchAppendTime(b, p)
		} else {
			batch.Patch(b, p)
		}
		want := before
		binary.BigEndian.PutUint64(want, 0)
		binary.BigEndian.PutUint32(want[12:], 0xffffffff)
		binary.BigEndian.PutUint16(want[21:], binary.BigEndian.Uint16(want[21:])&7)
		if p.Transactional {
			want[22] |= txn
		}
		if appendTime {
			copy(want[27:35], want[35:43])
		}
		binary.BigEndian.PutUint64(want[43:], uint64(p.ID))
		binary.BigEndian.PutUint16(want[51:], uint16(p.Epoch))
		binary.BigEndian.PutUint32(want[53:], uint32(p.Sequence))
		binary.BigEndian.PutUint32(want[17:], crc32.Checksum(want[21:], castagnoli))
		if !bytes.Equal(want, b) {
			t.Fatalf("size %d: got header %x, want %x", size, b[:61], want[:61])
		}
	})
}

func TestADamagedBatchStaysDamaged(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 100, 5000, 8 << 10, 8<<10 + 1, 70_000, 1 << 20} {
		for range 50 {
			b := random(rnd, size)
			bit := rnd.IntN(8 * size)
			b[61+bit/8] ^= 1 << (bit % 8)
			batch.Patch(b, batch.Producer{ID: 5, Epoch: 1, Sequence: 9})
			require.False(t, b.Intact(), "size %d, bit %d", size, bit)
			// The evidence survives a second writing, and a repair shows that nothing else was wrong.
			batch.Patch(b, batch.Producer{ID: 6, Epoch: 2, Sequence: 10})
			require.False(t, b.Intact())
			b[61+bit/8] ^= 1 << (bit % 8)
			require.True(t, b.Intact())
		}
	}
}

func TestNextSequenceWrapsToZero(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 15, batch.NextSequence(5, 10))
	require.EqualValues(t, 0, batch.NextSequence(1<<31-1, 1))
	require.EqualValues(t, 2, batch.NextSequence(2147483640, 10))
}

func TestThePathOfABatchAllocatesNothing(t *testing.T) {
	one := spec{base: 10, records: records(100, 100), pid: 3, attrs: txn}.make(t)
	two := spec{base: 110, records: records(1, 20_000), pid: 4, codec: 3}.make(t)
	buf := join(one, two, marker(t, 111, 3, false), spec{base: 112, records: records(1, 10), attrs: appendTime}.make(t))
	list := []batch.AbortedTransaction{{ProducerID: 4, FirstOffset: 500}, {ProducerID: 3, FirstOffset: 10}}
	var aborted batch.Aborted
	target := batch.Target{MaxBatchBytes: 1 << 20, Codec: batch.ProducerCodec}
	n := 0
	run := func() {
		aborted.Reset(list)
		s := batch.Slice(buf)
		for s.Next() {
			b := s.Batch()
			if aborted.Covers(b) {
				n++
			}
			if v, _ := batch.Judge(b, 0, target); v == batch.Pass {
				batch.Patch(b, batch.Producer{ID: 3, Epoch: 1, Sequence: int32(n)})
			} else if v == batch.PassAppendTime {
				batch.PatchAppendTime(b, batch.Producer{ID: 3, Epoch: 1, Sequence: int32(n)})
			}
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(200, run))
}

func BenchmarkPatch(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{500, 4 << 10, 8 << 10, 8<<10 + 1, 16<<10 - 1, 256<<10 - 1, 1<<20 - 1} {
		x := random(rnd, size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			seq := int32(0)
			for b.Loop() {
				seq++
				batch.Patch(x, batch.Producer{ID: 7, Epoch: 1, Sequence: seq})
			}
		})
		b.Run(fmt.Sprintf("%d/full", size), func(b *testing.B) {
			for b.Loop() {
				binary.BigEndian.PutUint32(x[17:], crc32.Checksum(x[21:], castagnoli))
			}
		})
	}
}

func BenchmarkSlice(b *testing.B) {
	var buf []byte
	for i := range 64 {
		buf = append(buf, spec{base: int64(i * 16), records: records(16, 1000)}.make(b)...)
	}
	b.ReportAllocs()
	batches := 0
	for b.Loop() {
		s := batch.Slice(buf)
		for s.Next() {
			batches++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(batches), "ns/batch")
}

func BenchmarkJudge(b *testing.B) {
	x := spec{base: 10, records: records(16, 1000), codec: 3}.make(b)
	target := batch.Target{MaxBatchBytes: 1 << 20, Codec: batch.ProducerCodec}
	b.ReportAllocs()
	for b.Loop() {
		if v, _ := batch.Judge(x, 10, target); v != batch.Pass {
			b.Fatal(v)
		}
	}
}

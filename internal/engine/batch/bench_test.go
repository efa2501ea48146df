package batch_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// BenchmarkWays compares what may be done with a batch of 256 KiB of records: pass it on, verify its checksum as well,
// decode it into records as a client does, and put it together anew. x-pass is how many times longer than passing it takes,
// in the same run.
func BenchmarkWays(b *testing.B) {
	target := batch.Target{MaxBatchBytes: 1 << 20, Codec: batch.ProducerCodec}
	for _, size := range []int{100, 1 << 10} {
		for of, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			n := 256 << 10 / size
			in := spec{base: 10, codec: int8(of), records: records(n, size)}.make(b)
			pass := 0.0
			way := func(way string, do func(b *testing.B, x batch.Batch)) {
				b.Run(fmt.Sprintf("%dB/%s/%s", size, name, way), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(n * size))
					x := append(batch.Batch(nil), in...)
					do(b, x)
					for b.Loop() {
						do(b, x)
					}
					per := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
					if way == "pass" {
						pass = per
					}
					if pass > 0 {
						b.ReportMetric(per/pass, "x-pass")
					}
				})
			}
			sequence := int32(0)
			passOn := func(b *testing.B, x batch.Batch) {
				s := batch.Slice(x)
				for s.Next() {
					if v, _ := batch.Judge(s.Batch(), 0, target); v != batch.Pass {
						b.Fatal(v)
					}
					sequence++
					batch.Patch(s.Batch(), batch.Producer{ID: 7, Epoch: 1, Sequence: sequence})
				}
			}
			way("pass", passOn)
			way("pass-crc", func(b *testing.B, x batch.Batch) {
				if !x.Intact() {
					b.Fatal("damaged")
				}
				passOn(b, x)
			})
			decompressor := kgo.DefaultDecompressor()
			way("decode", func(b *testing.B, x batch.Batch) {
				p := kmsg.NewFetchResponseTopicPartition()
				p.RecordBatches = x
				fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"}, &p, decompressor, nil)
				if fp.Err != nil || len(fp.Records) != n {
					b.Fatal(len(fp.Records), fp.Err)
				}
			})
			w := batch.NewBuilder(codecs(b))
			var out []byte
			way("rebuild", func(b *testing.B, x batch.Batch) {
				w.Reset(batch.Options{})
				err := w.Add(x)
				if err == nil {
					out, _, err = w.Build(out[:0])
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkAborted asks about 64 batches of which half were aborted.
func BenchmarkAborted(b *testing.B) {
	var buf []byte
	var list []batch.AbortedTransaction
	for i := range int64(64) {
		buf = append(buf, spec{base: 2 * i, pid: i % 4, attrs: txn, records: records(1, 100)}.make(b)...)
		buf = append(buf, marker(b, 2*i+1, i%4, i%2 == 0)...)
		if i%2 == 1 {
			list = append(list, batch.AbortedTransaction{ProducerID: i % 4, FirstOffset: 2 * i})
		}
	}
	var aborted batch.Aborted
	run := func() (covered int) {
		aborted.Reset(list)
		s := batch.Slice(buf)
		for s.Next() {
			if aborted.Covers(s.Batch()) {
				covered++
			}
		}
		return covered
	}
	if n := run(); n != 32 {
		b.Fatal(n)
	}
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

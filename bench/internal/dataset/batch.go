package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/twmb/franz-go/pkg/kgo"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batcher encodes record batches (magic 2) of one set, one partition after the other. Not safe for concurrent use.
type batcher struct {
	set        Set
	compressor kgo.Compressor // nil: none
	raw        []byte
	body       []byte
	packed     bytes.Buffer
	// goal is the size of a batch's records before compression that gives batches of the stated size after it.
	goal int
}

func newBatcher(set Set) (*batcher, error) {
	if set.RecordBytes < 2*keyBytes {
		return nil, errRecordBytes
	}
	b := &batcher{set: set, goal: set.BatchBytes}
	var codec kgo.CompressionCodec
	switch set.Codec {
	case None:
		b.goal -= batchHeader
		return b, nil
	case LZ4:
		codec = kgo.Lz4Compression()
	case Zstd:
		codec = kgo.ZstdCompression()
	default:
		return nil, fmt.Errorf("codec %q is not one of none, lz4, zstd", set.Codec)
	}
	var err error
	if b.compressor, err = kgo.DefaultCompressor(codec); err != nil {
		return nil, err
	}
	b.estimate()
	return b, nil
}

// estimate sets the goal from a batch made for the purpose, as a Kafka producer does from those that it has sent: its
// batch.size is about the bytes that travel. A twentieth more, or less, so that they are at least, or at most, so many.
func (b *batcher) estimate() {
	trial := *b
	trial.set.PerPartition, trial.packed, trial.raw, trial.body = math.MaxInt64, bytes.Buffer{}, nil, nil
	made := trial.next(0, 0)
	sure := 1.05
	if b.set.BatchAtMost {
		sure = 0.95
	}
	b.goal = int(float64(b.set.BatchBytes) * float64(made.rawBytes) / float64(len(made.bytes)) * sure)
}

// batchHeader is what stands before a batch's records.
const batchHeader = 61

// built is an encoded batch.
type built struct {
	bytes    []byte
	records  int64
	rawBytes int64 // its records before compression
}

// next encodes the batch that begins with record seq of the partition.
func (b *batcher) next(partition int32, seq int64) built {
	b.raw = b.raw[:0]
	n := int64(0)
	base := b.set.timestamp(seq)
	for seq+n < b.set.PerPartition && len(b.raw) < b.goal {
		full := len(b.raw)
		b.appendRecord(partition, seq+n, base, n)
		if b.set.BatchAtMost && len(b.raw) > b.goal && n > 0 {
			b.raw = b.raw[:full]
			break
		}
		n++
	}
	payload, codec := b.raw, kgo.CodecNone
	if b.compressor != nil {
		b.packed.Reset()
		payload, codec = b.compressor.Compress(&b.packed, b.raw)
	}
	out := make([]byte, batchHeader, batchHeader+len(payload))
	be := binary.BigEndian
	be.PutUint32(out[8:], uint32(batchHeader-12+len(payload)))
	be.PutUint32(out[12:], 0xffffffff) // no leader epoch
	out[16] = 2
	be.PutUint16(out[21:], uint16(codec))
	be.PutUint32(out[23:], uint32(n-1))
	be.PutUint64(out[27:], uint64(base))
	be.PutUint64(out[35:], uint64(b.set.timestamp(seq+n-1)))
	for i := 43; i < 57; i++ {
		out[i] = 0xff // no producer id, epoch, sequence
	}
	be.PutUint32(out[57:], uint32(n))
	out = append(out, payload...)
	be.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return built{bytes: out, records: n, rawBytes: int64(len(b.raw))}
}

func (b *batcher) appendRecord(partition int32, seq, base, delta int64) {
	body := append(b.body[:0], 0) // attributes
	body = binary.AppendVarint(body, b.set.timestamp(seq)-base)
	body = binary.AppendVarint(body, delta)
	body = binary.AppendVarint(body, keyBytes)
	at := len(body)
	body = append(body, make([]byte, keyBytes)...)
	body = binary.AppendVarint(body, int64(b.set.RecordBytes-keyBytes))
	key, body := b.set.record(body, partition, seq)
	copy(body[at:], key[:])
	if hasHeader(seq) {
		body = binary.AppendVarint(body, 1)
		body = binary.AppendVarint(body, int64(len(headerName)))
		body = append(body, headerName...)
		body = binary.AppendVarint(body, int64(len(headerValue)))
		body = append(body, headerValue...)
	} else {
		body = binary.AppendVarint(body, 0)
	}
	b.body = body
	b.raw = binary.AppendVarint(b.raw, int64(len(body)))
	b.raw = append(b.raw, body...)
}

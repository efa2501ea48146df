package mirror

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	batchHeaderLen = 61
	attrCodec      = 0x07
	attrAppendTime = 1 << 3
	attrTxn        = 1 << 4
	attrControl    = 1 << 5
	// recordOverhead is what a record costs in memory and on the wire beside its body, about.
	recordOverhead = 48
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errCorrupt is wrapped by the errors about bytes from the source that are not record batches.
var errCorrupt = errors.New("corrupt record batch")

// record is one record of the source. body is what stands behind the offset delta in a v2 batch: key, value and headers
// with their lengths. It is copied as it is, so that null and empty, the order of headers and their bytes stay.
type record struct {
	offset int64
	ts     int64 // ms; as a consumer sees it: the append time on LogAppendTime topics
	body   []byte
	codec  int8 // of the source batch
}

func (r record) size() int64 { return int64(len(r.body)) + recordOverhead }

func (d *decoded) next() int64 { return d.upTo }

func (d *decoded) empty() bool { return len(d.records) == 0 }

func (d *decoded) drop() {}

// decoded is the content of one fetched partition.
type decoded struct {
	records []record
	// upTo is the source offset to ask for now: behind the last complete batch, control and aborted ones included.
	upTo int64
}

// decode reads the batches of a fetch response from offset from on. Control records and, with committed, the records of
// aborted transactions are left out. An error concerns the batch at next; what was read before it is returned.
func decode(tp TP, p *kmsg.FetchResponseTopicPartition, from int64, committed bool, decompressor kgo.Decompressor) (decoded, error) {
	d := decoded{upTo: from}
	aborts := map[int64][]int64{}
	if committed {
		for _, a := range p.AbortedTransactions {
			aborts[a.ProducerID] = append(aborts[a.ProducerID], a.FirstOffset)
		}
		for _, firsts := range aborts {
			slices.Sort(firsts)
		}
	}
	for in := p.RecordBatches; len(in) > 17; {
		length := int64(int32(binary.BigEndian.Uint32(in[8:]))) + 12
		if length < 12+5 {
			return d, fmt.Errorf("%w: length %d", errCorrupt, length)
		}
		if int64(len(in)) < length {
			break // the broker cuts the last batch of a response
		}
		batch := in[:length]
		in = in[length:]
		var err error
		switch magic := batch[16]; magic {
		case 0, 1:
			err = d.oldMessages(tp, p, batch, decompressor)
		case 2:
			err = d.batch(batch, aborts, decompressor)
		default:
			err = fmt.Errorf("%w: unknown magic %d", errCorrupt, magic)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// batch reads one v2 batch.
func (d *decoded) batch(b []byte, aborts map[int64][]int64, decompressor kgo.Decompressor) error {
	if len(b) < batchHeaderLen {
		return fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	}
	base := int64(binary.BigEndian.Uint64(b))
	lastDelta := int32(binary.BigEndian.Uint32(b[23:]))
	last := base + int64(lastDelta)
	if lastDelta < 0 || last < base {
		return fmt.Errorf("%w: base offset %d, last delta %d", errCorrupt, base, lastDelta)
	}
	if last < d.upTo {
		return nil
	}
	if want, got := binary.BigEndian.Uint32(b[17:]), crc32.Checksum(b[21:], castagnoli); want != got {
		return fmt.Errorf("%w: the batch at offset %d has checksum %08x, its bytes give %08x", errCorrupt, base, want, got)
	}
	attrs := binary.BigEndian.Uint16(b[21:])
	pid := int64(binary.BigEndian.Uint64(b[43:]))
	firsts := aborts[pid]
	aborted := attrs&attrTxn != 0 && len(firsts) > 0 && base >= firsts[0]
	switch {
	case attrs&attrControl != 0:
		if aborted && isAbortMarker(b) {
			aborts[pid] = firsts[1:]
		}
	case aborted:
	default:
		if err := d.records2(b, attrs, decompressor); err != nil {
			return fmt.Errorf("%w: the batch at offset %d: %w", errCorrupt, base, err)
		}
	}
	d.upTo = last + 1
	return nil
}

// isAbortMarker tells whether a control batch (never compressed) holds an abort marker: key int16 version, int16 type 0.
func isAbortMarker(b []byte) bool {
	rest := b[batchHeaderLen:]
	for i := 0; i < 4; i++ { // length, attributes, timestamp delta, offset delta
		if i == 1 {
			if len(rest) == 0 {
				return false
			}
			rest = rest[1:]
			continue
		}
		_, n := binary.Varint(rest)
		if n <= 0 {
			return false
		}
		rest = rest[n:]
	}
	keyLen, n := binary.Varint(rest)
	if n <= 0 || keyLen < 4 || int64(len(rest)-n) < keyLen {
		return false
	}
	return binary.BigEndian.Uint16(rest[n+2:]) == 0
}

var errRecord = errors.New("a record does not parse")

func (d *decoded) records2(b []byte, attrs uint16, decompressor kgo.Decompressor) error {
	base := int64(binary.BigEndian.Uint64(b))
	baseTS, maxTS := int64(binary.BigEndian.Uint64(b[27:])), int64(binary.BigEndian.Uint64(b[35:]))
	count := int32(binary.BigEndian.Uint32(b[57:]))
	raw := b[batchHeaderLen:]
	codec := int8(attrs & attrCodec)
	if codec != 0 {
		var err error
		if raw, err = decompressor.Decompress(raw, kgo.CompressionCodecType(codec)); err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
	}
	// Each record takes seven bytes or more: hostile counts make us allocate nothing.
	if count < 0 || int(count) > len(raw) {
		return fmt.Errorf("%d records in %d bytes: %w", count, len(raw), errRecord)
	}
	keep := len(d.records)
	for range count {
		length, n := binary.Varint(raw)
		if n <= 0 || length < 1 || length > int64(len(raw)-n) {
			d.records = d.records[:keep]
			return errRecord
		}
		rec := raw[n : n+int(length)]
		raw = raw[n+int(length):]
		rec = rec[1:] // attributes, unused by the format
		tsDelta, n1 := binary.Varint(rec)
		if n1 <= 0 {
			d.records = d.records[:keep]
			return errRecord
		}
		offDelta, n2 := binary.Varint(rec[n1:])
		if n2 <= 0 {
			d.records = d.records[:keep]
			return errRecord
		}
		r := record{offset: base + offDelta, ts: baseTS + tsDelta, body: rec[n1+n2:], codec: codec}
		if attrs&attrAppendTime != 0 {
			r.ts = maxTS
		}
		if r.offset >= d.upTo {
			d.records = append(d.records, r)
		}
	}
	return nil
}

// oldMessages reads a message set of format 0 or 1, which brokers up to 3.x still serve from old segments.
func (d *decoded) oldMessages(tp TP, p *kmsg.FetchResponseTopicPartition, b []byte, decompressor kgo.Decompressor) error {
	one := *p
	one.RecordBatches = b
	one.ErrorCode = 0
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: d.upTo, Topic: tp.Topic, Partition: tp.Partition},
		&one, decompressor, nil)
	if fp.Err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, fp.Err)
	}
	for _, r := range fp.Records {
		ts := int64(-1) // format 0 has no timestamps
		if r.Attrs.TimestampType() >= 0 {
			ts = r.Timestamp.UnixMilli()
		}
		body := appendBytes(appendBytes(nil, r.Key), r.Value)
		body = binary.AppendVarint(body, 0)
		d.records = append(d.records, record{offset: r.Offset, ts: ts, body: body, codec: int8(r.Attrs.CompressionType())})
	}
	d.upTo = max(d.upTo, next)
	return nil
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// identity is a producer's, and the sequence number of a batch's first record; pid -1 means no idempotence.
type identity struct {
	pid   int64
	epoch int16
	seq   int32
}

// codecs holds a compressor for each codec number.
type codecs [5]kgo.Compressor

func newCodecs() (codecs, error) {
	var all codecs
	for i, c := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		var err error
		if all[i], err = kgo.DefaultCompressor(c); err != nil {
			return all, fmt.Errorf("make compressor %d: %w", i, err)
		}
	}
	return all, nil
}

// encode makes one v2 batch with the codec of the first record's batch on the source; a batch that compression does not
// shrink stays uncompressed, as the Java client's and kgo's do.
func (c *codecs) encode(recs []record, id identity) []byte {
	size := 0
	for _, r := range recs {
		size += len(r.body) + 24
	}
	raw := make([]byte, 0, size)
	base, maxTS := recs[0].ts, recs[0].ts
	var head [2*binary.MaxVarintLen64 + 1]byte
	for i, r := range recs {
		maxTS = max(maxTS, r.ts)
		h := append(head[:0], 0)
		h = binary.AppendVarint(h, r.ts-base)
		h = binary.AppendVarint(h, int64(i))
		raw = binary.AppendVarint(raw, int64(len(h)+len(r.body)))
		raw = append(raw, h...)
		raw = append(raw, r.body...)
	}
	used := kgo.CompressionCodecType(0)
	payload := raw
	if codec := recs[0].codec; codec > 0 && int(codec) < len(c) {
		var buf bytes.Buffer
		packed, typ := c[codec].Compress(&buf, raw)
		if len(packed) < len(raw) {
			payload, used = packed, typ
		}
	}
	b := make([]byte, batchHeaderLen, batchHeaderLen+len(payload))
	binary.BigEndian.PutUint32(b[8:], uint32(batchHeaderLen-12+len(payload)))
	binary.BigEndian.PutUint32(b[12:], 0xffffffff) // leader epoch: the broker's business
	b[16] = 2
	binary.BigEndian.PutUint16(b[21:], uint16(used))
	binary.BigEndian.PutUint32(b[23:], uint32(len(recs)-1))
	binary.BigEndian.PutUint64(b[27:], uint64(base))
	binary.BigEndian.PutUint64(b[35:], uint64(maxTS))
	binary.BigEndian.PutUint64(b[43:], uint64(id.pid))
	binary.BigEndian.PutUint16(b[51:], uint16(id.epoch))
	binary.BigEndian.PutUint32(b[53:], uint32(id.seq))
	binary.BigEndian.PutUint32(b[57:], uint32(len(recs)))
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// batchIdentity reads the offset and producer of a batch's header; ok is false when there is no v2 batch.
func batchIdentity(b []byte) (base int64, count int32, id identity, ok bool) {
	if len(b) < batchHeaderLen || b[16] != 2 {
		return 0, 0, id, false
	}
	id = identity{
		pid:   int64(binary.BigEndian.Uint64(b[43:])),
		epoch: int16(binary.BigEndian.Uint16(b[51:])),
		seq:   int32(binary.BigEndian.Uint32(b[53:])),
	}
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[57:])), id, true
}

// batchLength is the length of the batch at the head of b, its header included.
func batchLength(b []byte) int64 { return int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12 }

// batchLast is the last offset of a v2 batch.
func batchLast(b []byte) (int64, bool) {
	if len(b) < batchHeaderLen || b[16] != 2 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b)) + int64(int32(binary.BigEndian.Uint32(b[23:]))), true
}

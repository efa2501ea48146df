package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Codec compresses and decompresses payloads.
type Codec interface {
	// Decompress appends what src holds to dst. It must fail with an error that wraps ErrTooLarge, and must not allocate
	// more than about limit bytes, when that is more than limit bytes.
	Decompress(dst, src []byte, codec int8, limit int) ([]byte, error)
	// Compress appends src, compressed, to dst.
	Compress(dst, src []byte, codec int8) ([]byte, error)
}

// ErrTooLarge is wrapped when records would take more memory than allowed once they are decompressed.
var ErrTooLarge = errors.New("decompressed records exceed the limit")

// The defaults of Options.
const (
	DefaultMaxDecompressed = 256 << 20
	DefaultRawBytes        = 1 << 20
	DefaultMaxRecords      = 1 << 18
)

// What a builder keeps from one round to the next; rounds that need more are rare, and must not fill the memory for good.
const (
	keptBytes   = 8 << 20
	keptRecords = 1 << 16
)

// Options say how a Builder cuts.
type Options struct {
	// Want is the first source offset that is wanted; records below it are left out.
	Want int64
	// Cuts are source offsets, ascending, at which a batch must begin.
	Cuts []int64
	// SplitAtHoles makes a batch begin behind every missing source offset, so that each is a run without holes.
	SplitAtHoles bool
	// MaxBatchBytes is what a batch may take as it is sent; 0: no limit. A record that does not fit alone gets a batch of
	// its own that says Oversize.
	MaxBatchBytes int
	// RawBytes is when a batch is full, in bytes before compression; default DefaultRawBytes. One record may be larger.
	RawBytes int
	// MaxRecords in a batch; default DefaultMaxRecords, of which brokers make as many objects.
	MaxRecords int
	// MaxBatches ends the building when there are so many; 0: no limit. There may be a few more, where one had to be split.
	MaxBatches int
	// MaxDecompressed bounds what all added batches may take decompressed; default DefaultMaxDecompressed.
	MaxDecompressed int
	// Recompress makes batches of TopicCodec; without it they get the codec that the source's had.
	Recompress bool
	TopicCodec TopicCodec
}

// Span says that Count records in a row come from the source offsets Source, Source+1, ….
type Span struct {
	Source int64
	Count  int32
}

// Built is a new batch: of Anonymous, base offset 0, with a right checksum. Patch gives it its producer.
type Built struct {
	Batch Batch
	// Spans are the source offsets of its records, in order.
	Spans []Span
	// BodyBytes is the size of the keys, values and headers, with their lengths.
	BodyBytes int64
	// Oversize: a single record, larger than MaxBatchBytes.
	Oversize bool
}

// Builder makes new batches of the records of old ones: it merges small ones, splits large ones, cuts at offsets and
// holes, and leaves out what was mirrored already. Records are copied as bytes; only their length, timestamp and offset
// deltas are written anew, and the whole is compressed once.
//
// Use it as Reset, Add for each batch in order, Build. It keeps some megabytes for the next round. Not safe for concurrent
// use.
type Builder struct {
	codec Codec
	o     Options

	entries []entry
	scratch []byte // decompressed payloads
	raw     []byte // of the batch being built
	packed  []byte
	spans   []Span
	built   []Built
	ends    []int // of built, in the output
}

// entry is one record.
type entry struct {
	body   []byte
	offset int64
	ts     int64
	codec  int8 // of its batch
}

// NewBuilder makes a builder that compresses with codec.
func NewBuilder(codec Codec) *Builder { return &Builder{codec: codec} }

// Reset begins anew. The batches of the last Build stay, what describes them is valid until the next Build.
func (w *Builder) Reset(o Options) {
	if o.RawBytes <= 0 {
		o.RawBytes = DefaultRawBytes
	}
	if o.MaxRecords <= 0 {
		o.MaxRecords = DefaultMaxRecords
	}
	if o.MaxDecompressed <= 0 {
		o.MaxDecompressed = DefaultMaxDecompressed
	}
	w.o = o
	if cap(w.scratch)+cap(w.raw)+cap(w.packed) > keptBytes {
		w.scratch, w.raw, w.packed = nil, nil, nil
	}
	if cap(w.entries) > keptRecords {
		w.entries, w.spans = nil, nil
	}
	clear(w.entries)
	w.entries, w.scratch = w.entries[:0], w.scratch[:0]
}

// Records is the number of records added.
func (w *Builder) Records() int { return len(w.entries) }

// Add takes the records of b, which must not be of an aborted transaction and must follow what was added before. It
// verifies the checksum, which Build makes anew: what was damaged here would be sealed otherwise. b must not change until
// Build. After an error nothing of b was added; errors wrap ErrCorrupt, ErrTooLarge or are the codec's.
func (w *Builder) Add(b Batch) error {
	if b.Control() || b.Count() == 0 || b.LastOffset() < w.o.Want {
		return nil
	}
	if !b.Intact() {
		return fmt.Errorf("%w: the batch at offset %d does not have the checksum %08x", ErrCorrupt, b.BaseOffset(), b.CRC())
	}
	count, last, codec := b.Count(), int64(b.LastDelta()), b.Codec()
	if count < 0 || int64(count) > last+1 {
		return fmt.Errorf("%w: the batch at offset %d has %d records in %d offsets", ErrCorrupt, b.BaseOffset(), count, last+1)
	}
	payload, mark := b.Payload(), len(w.scratch)
	if codec != CodecNone {
		var err error
		w.scratch, err = w.codec.Decompress(w.scratch, payload, codec, w.o.MaxDecompressed-mark)
		if err != nil {
			w.scratch = w.scratch[:mark]
			return fmt.Errorf("decompress the batch at offset %d: %w", b.BaseOffset(), err)
		}
		payload = w.scratch[mark:len(w.scratch):len(w.scratch)]
	}
	kept := len(w.entries)
	if err := w.addRecords(b, payload, int(count), last, codec); err != nil {
		clear(w.entries[kept:])
		w.entries, w.scratch = w.entries[:kept], w.scratch[:mark]
		return fmt.Errorf("the batch at offset %d: %w", b.BaseOffset(), err)
	}
	return nil
}

func (w *Builder) addRecords(b Batch, payload []byte, count int, last int64, codec int8) error {
	if count > len(payload)/minRecord {
		return fmt.Errorf("%w: %d records in %d bytes", ErrCorrupt, count, len(payload))
	}
	base, baseTime, appendTime, before := b.BaseOffset(), b.BaseTimestamp(), b.AppendTime(), int64(-1)
	for range count {
		var r inner
		var err error
		if r, payload, err = nextRecord(payload); err != nil {
			return err
		}
		if r.offDelta <= before || r.offDelta > last {
			return fmt.Errorf("%w: offset delta %d behind %d", ErrCorrupt, r.offDelta, before)
		}
		before = r.offDelta
		if !checkBody(r.body) {
			return fmt.Errorf("%w: the record at offset %d does not parse", ErrCorrupt, base+r.offDelta)
		}
		ts := baseTime + r.tsDelta
		if appendTime {
			ts = b.MaxTimestamp()
		}
		if err := w.add(entry{r.body, base + r.offDelta, ts, codec}); err != nil {
			return err
		}
	}
	if len(payload) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last record", ErrCorrupt, len(payload))
	}
	return nil
}

// AddRecord takes a record that was decoded elsewhere, such as one of a format before v2. body is what AppendBody makes;
// it must not change until Build. codec is that of its batch.
func (w *Builder) AddRecord(offset, timestamp int64, body []byte, codec int8) error {
	if !checkBody(body) {
		return fmt.Errorf("%w: the record at offset %d does not parse", ErrCorrupt, offset)
	}
	return w.add(entry{body, offset, timestamp, codec})
}

func (w *Builder) add(e entry) error {
	if n := len(w.entries); n > 0 && w.entries[n-1].offset >= e.offset {
		return fmt.Errorf("%w: offset %d behind %d", ErrCorrupt, e.offset, w.entries[n-1].offset)
	}
	if e.offset >= w.o.Want {
		w.entries = append(w.entries, e)
	}
	return nil
}

// Build appends the new batches to dst and returns it with them. The batches lie in the returned slice and are the
// caller's; the slice built and the spans are valid until the next Build. It may be repeated.
func (w *Builder) Build(dst []byte) (out []byte, built []Built, err error) {
	clear(w.built)
	w.spans, w.built, w.ends = w.spans[:0], w.built[:0], w.ends[:0]
	start := len(dst)
	for i := 0; i < len(w.entries) && (w.o.MaxBatches <= 0 || len(w.built) < w.o.MaxBatches); {
		n, codec := w.group(w.entries[i:])
		if dst, err = w.emit(dst, w.entries[i:i+n], codec); err != nil {
			return dst[:start], nil, err
		}
		i += n
	}
	for i, end := range w.ends {
		w.built[i].Batch = Batch(dst[start:end:end])
		start = end
	}
	return dst, w.built, nil
}

// group is how many of the records at the head of rest go into one batch, and its codec.
func (w *Builder) group(rest []entry) (n int, codec int8) {
	cuts := w.o.Cuts
	for len(cuts) > 0 && cuts[0] <= rest[0].offset {
		cuts = cuts[1:]
	}
	size := 0
	for i, e := range rest {
		size += recordLen(e, rest[0].ts, i)
		if i > 0 && (i >= w.o.MaxRecords || size > w.o.RawBytes || len(cuts) > 0 && e.offset >= cuts[0] ||
			w.o.SplitAtHoles && e.offset != rest[i-1].offset+1) {
			return i, codec
		}
		// Batches that did not shrink are uncompressed in any topic; among others they take the others' codec.
		switch {
		case w.o.Recompress && w.o.TopicCodec != ProducerCodec:
			codec = int8(w.o.TopicCodec)
		case codec == CodecNone:
			codec = e.codec
		case e.codec != CodecNone && e.codec != codec:
			return i, codec
		}
	}
	return len(rest), codec
}

// emit appends a batch of the records, or several where one would be too large.
func (w *Builder) emit(dst []byte, records []entry, codec int8) ([]byte, error) {
	w.raw = w.raw[:0]
	base, maxTime := records[0].ts, records[0].ts
	var bodies int64
	for i, e := range records {
		maxTime = max(maxTime, e.ts)
		bodies += int64(len(e.body))
		w.raw = binary.AppendVarint(w.raw, int64(1+varintLen(e.ts-base)+varintLen(int64(i))+len(e.body)))
		w.raw = append(w.raw, 0)
		w.raw = binary.AppendVarint(w.raw, e.ts-base)
		w.raw = binary.AppendVarint(w.raw, int64(i))
		w.raw = append(w.raw, e.body...)
	}
	payload, used := w.raw, CodecNone
	if codec != CodecNone {
		var err error
		if w.packed, err = w.codec.Compress(w.packed[:0], w.raw, codec); err != nil {
			return dst, fmt.Errorf("compress records from offset %d: %w", records[0].offset, err)
		}
		// As the clients do: what does not shrink stays as it is.
		if len(w.packed) < len(w.raw) {
			payload, used = w.packed, codec
		}
	}
	size := HeaderLen + len(payload)
	oversize := w.o.MaxBatchBytes > 0 && size > w.o.MaxBatchBytes
	if n := len(records); oversize && n > 1 {
		// In as many parts as the size says, one more for their headers; each is tried again.
		part := max(1, n/(size/w.o.MaxBatchBytes+1))
		for i := 0; i < n; i += part {
			var err error
			if dst, err = w.emit(dst, records[i:min(n, i+part)], codec); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
	if size > math.MaxInt32 {
		return dst, fmt.Errorf("%w: the record at offset %d takes %d bytes", ErrTooLarge, records[0].offset, size)
	}
	at := len(dst)
	dst = append(dst, make([]byte, HeaderLen)...)
	dst = append(dst, payload...)
	b := Batch(dst[at:])
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-prefix))
	binary.BigEndian.PutUint32(b[atEpoch:], 0xffffffff)
	b[atMagic] = 2
	binary.BigEndian.PutUint16(b[atAttrs:], uint16(used))
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(len(records)-1))
	binary.BigEndian.PutUint64(b[atBaseTime:], uint64(base))
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(maxTime))
	binary.BigEndian.PutUint64(b[atPID:], math.MaxUint64)
	binary.BigEndian.PutUint16(b[atPIDEpoch:], math.MaxUint16)
	binary.BigEndian.PutUint32(b[atSequence:], math.MaxUint32)
	binary.BigEndian.PutUint32(b[atCount:], uint32(len(records)))
	seal(b)
	w.built = append(w.built, Built{Spans: w.spansOf(records), BodyBytes: bodies, Oversize: oversize})
	w.ends = append(w.ends, len(dst))
	return dst, nil
}

func (w *Builder) spansOf(records []entry) []Span {
	at := len(w.spans)
	for _, e := range records {
		if n := len(w.spans); n > at && w.spans[n-1].Source+int64(w.spans[n-1].Count) == e.offset {
			w.spans[n-1].Count++
			continue
		}
		w.spans = append(w.spans, Span{Source: e.offset, Count: 1})
	}
	return w.spans[at:len(w.spans):len(w.spans)]
}

// recordLen is what the i-th record of a batch takes.
func recordLen(e entry, base int64, i int) int {
	n := 1 + varintLen(e.ts-base) + varintLen(int64(i)) + len(e.body)
	return varintLen(int64(n)) + n
}

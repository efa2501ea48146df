package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	// smallBatch is the size below which batches that lie one behind the other in an answer become one. What is saved is a
	// request for each; where the batches of several partitions share requests, that is less than what it costs to take them
	// apart, but for those below tinyBatch.
	smallBatch, tinyBatch = 8 << 10, 2 << 10
	// mergedBytes is how much is put together, as it came; rebuiltBytes what a rebuilt batch may take.
	mergedBytes  = 256 << 10
	rebuiltBytes = 1_000_000
	// aloneRawBytes is what a batch may take before compression that is the only one under way over a line of farAway.
	aloneRawBytes = 8 << 20
	farAway       = 5 * time.Millisecond
	// manyRecords in a batch is no limit any more.
	manyRecords = 1 << 20

	// oldMagic is where a message of the formats before v2 has its magic byte; attributes follow, and in format 1 the time.
	oldMagic      = 16
	oldAppendTime = 1 << 3
	// maxOld is what the messages of old formats that become one batch may take decompressed.
	maxOld = 64 << 20
)

// unpacked is what an answer of a source held for one partition.
type unpacked struct {
	units []*unit
	upTo  int64
	// taken is how many bytes the batches gone through had as they came, largest the most that one of them had. cut is how many
	// bytes of another one came, which is cut off.
	taken, cut, largest int
}

func (u *unpacked) next() int64 { return u.upTo }

func (u *unpacked) empty() bool { return len(u.units) == 0 }

func (u *unpacked) drop() {
	for _, one := range u.units {
		one.drop()
	}
	u.units = nil
}

// unpacker turns fetched bytes into units. It keeps its memory from one answer to the next; not safe for concurrent use.
type unpacker struct {
	pool         *wire.Pool
	metrics      *metrics
	committed    bool
	apart        bool // nothing passes
	aborted      batch.Aborted
	builder      *batch.Builder
	decompressor bounded

	// Of the partition under work.
	want    fetchWant
	out     *unpacked
	buf     *wire.Buffer
	pending []pending // batches that may become one
	bytes   int
	behind  int64 // the offset behind the last batch
	must    bool  // one of them may not pass
	mergeTo int   // bytes that are put together, as they came
	single  bool  // one batch is enough: the target refused larger ones, and the next will be chosen by its answer
	scratch []byte
}

type pending struct {
	raw     []byte
	old     bool // of a format before v2
	verdict batch.Verdict
	reason  string
}

func newUnpacker(p *mirror) *unpacker {
	return &unpacker{
		pool: p.pool, metrics: p.metrics, committed: !p.cfg.ReadUncommitted, apart: !p.cfg.PassThrough, builder: batch.NewBuilder(p.codec),
		decompressor: bounded{codec: p.codec},
	}
}

// unpack goes through the batches of a partition; the answer's buffer is retained for each that passes. An error concerns
// the batch at the result's next; what came before it is returned.
func (u *unpacker) unpack(w fetchWant, fp *wire.FetchedPartition, buf *wire.Buffer) (*unpacked, error) {
	u.want, u.out, u.buf = w, &unpacked{upTo: w.offset}, buf
	u.pending, u.bytes, u.must = u.pending[:0], 0, false
	u.single, u.behind, u.mergeTo = w.limits.records < manyRecords, 0, mergedBytes
	if w.limits.alone != 0 {
		u.mergeTo = u.rebuiltLimit() / 16 * 15 // with the next, not over the limit
	}
	if u.committed {
		u.aborted.Reset(fp.Aborted)
	}
	s := batch.Slice(fp.Records)
	for (!u.single || u.out.empty()) && s.Next() {
		u.out.taken += len(s.Raw())
		u.out.largest = max(u.out.largest, len(s.Raw()))
		if err := u.one(&s); err != nil {
			return u.out, errors.Join(u.flush(), err)
		}
	}
	if u.single && !u.out.empty() {
		return u.out, nil
	}
	if s.Err() == nil {
		var whole int
		u.out.cut, whole = s.Tail()
		if u.out.taken == 0 {
			u.out.largest = min(whole, partitionBytes)
		}
	}
	return u.out, errors.Join(u.flush(), s.Err())
}

// one takes the slicer's batch.
func (u *unpacker) one(s *batch.Slicer) error {
	if magic := s.Magic(); magic < 2 {
		u.must = true
		return u.push(pending{raw: s.Raw(), old: true, verdict: batch.Fallback, reason: batch.ReasonOldFormat.String()})
	}
	b := s.Batch()
	if b.BaseOffset() < u.behind {
		return fmt.Errorf("%w: the batch at offset %d lies before its predecessor's end, %d", batch.ErrCorrupt, b.BaseOffset(), u.behind)
	}
	u.behind = b.NextOffset()
	covered := u.committed && u.aborted.Covers(b)
	limit := u.want.limits.bytes
	verdict, reason := batch.Judge(b, u.want.offset, batch.Target{
		MaxBatchBytes: int(limit), AppendTime: u.want.limits.appendTime, Codec: u.want.limits.codec,
	})
	word := reason.String()
	switch {
	case covered && verdict != batch.Skip:
		verdict, word = batch.Skip, batch.ReasonAborted.String()
	case verdict == batch.Corrupt:
		return fmt.Errorf("%w: the batch at offset %d: %s", batch.ErrCorrupt, b.BaseOffset(), reason)
	case verdict <= batch.PassAppendTime && int(b.Count()) > u.want.limits.records:
		verdict, word = batch.Fallback, "refused"
	case verdict <= batch.PassAppendTime && u.apart:
		verdict, word = batch.Fallback, "off"
	}
	if verdict == batch.Skip {
		if err := u.flush(); err != nil {
			return err
		}
		if reason != batch.ReasonBelow {
			u.metrics.batch(verdict.String(), word)
		}
		u.pass(b.NextOffset())
		return nil
	}
	if verdict == batch.Fallback {
		u.must = true
	} else if len(b) >= u.want.limits.small() && !u.want.alone(b) || u.single {
		if err := u.flush(); err != nil {
			return err
		}
		u.take(b, verdict, word)
		return nil
	}
	return u.push(pending{raw: b, verdict: verdict, reason: word})
}

// pass notes that everything below next is dealt with.
func (u *unpacker) pass(next int64) {
	u.out.upTo = max(u.out.upTo, next)
	if n := len(u.out.units); n > 0 {
		u.out.units[n-1].next = u.out.upTo
	}
}

// take lets a batch pass as it is.
func (u *unpacker) take(b batch.Batch, verdict batch.Verdict, reason string) {
	u.metrics.batch(verdict.String(), reason)
	base, next := b.BaseOffset(), b.NextOffset() // which a patch takes away
	if verdict == batch.PassAppendTime {
		batch.PatchAppendTime(b, batch.Anonymous)
	}
	u.buf.Retain()
	u.out.units = append(u.out.units, &unit{pool: u.pool, buf: u.buf, b: b, base: base, body: int64(len(b.Payload()))})
	u.pass(next)
}

func (u *unpacker) push(p pending) error {
	u.pending = append(u.pending, p)
	if u.bytes += len(p.raw); u.bytes >= u.mergeTo || u.single {
		return u.flush()
	}
	return nil
}

// flush deals with what is pending: one batch that may pass does; else new ones are made.
func (u *unpacker) flush() error {
	all, must := u.pending, u.must
	u.pending, u.bytes, u.must = u.pending[:0], 0, false
	switch {
	case len(all) == 0:
		return nil
	case len(all) == 1 && !must:
		u.take(batch.Batch(all[0].raw), all[0].verdict, all[0].reason)
		return nil
	}
	for len(all) > 0 {
		n, err := u.rebuild(all)
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// rebuiltLimit is how large a rebuilt batch may be.
func (u *unpacker) rebuiltLimit() int {
	if l := u.want.limits.bytes; l > 0 {
		return int(min(rebuiltBytes, l))
	}
	return rebuiltBytes
}

// small is the size below which batches are put together.
func (l limits) small() int { return pick(l.shared, tinyBatch, smallBatch) }

// alone tells whether a batch will be the only one under way, over a long line.
func (w *fetchWant) alone(b batch.Batch) bool {
	return w.limits.alone != 0 && b.MaxTimestamp() < w.limits.alone && len(b) < rebuiltBytes/2
}

// rebuild makes new batches of the first n of some.
func (u *unpacker) rebuild(all []pending) (n int, err error) {
	limit := u.rebuiltLimit()
	records := 0
	if u.want.limits.records < math.MaxInt32 {
		records = u.want.limits.records
	}
	options := batch.Options{Want: u.want.offset, MaxBatchBytes: limit, MaxRecords: min(max(records, 0), batch.DefaultMaxRecords)}
	if u.single {
		options.MaxBatches = 1
	}
	if u.want.limits.alone != 0 {
		options.RawBytes = aloneRawBytes
	}
	u.builder.Reset(options)
	u.decompressor.left = maxOld
	next := u.out.upTo
	var fault error
	for n < len(all) {
		p := all[n]
		var behind int64
		if p.old {
			behind, fault = u.addOld(p.raw)
		} else {
			fault, behind = u.builder.Add(batch.Batch(p.raw)), batch.Batch(p.raw).NextOffset()
		}
		if fault != nil {
			break
		}
		next = max(next, behind)
		n++
	}
	if n == 0 {
		return 0, fault
	}
	if fault != nil && !errors.Is(fault, batch.ErrTooLarge) {
		// What came before the bad one goes out first.
		if err := u.build(all[:n], next); err != nil {
			return n, err
		}
		return n, fault
	}
	return n, u.build(all[:n], next)
}

func (u *unpacker) build(from []pending, next int64) error {
	out, built, err := u.builder.Build(u.scratch[:0])
	if err != nil {
		return err
	}
	u.scratch = out[:0]
	if cap(u.scratch) > 8<<20 {
		u.scratch = nil
	}
	for _, p := range from {
		word := p.reason
		if p.verdict != batch.Fallback {
			word = "merged"
		}
		u.metrics.batch(batch.Fallback.String(), word)
	}
	if u.single && len(built) > 0 {
		// There may be more records; they come with the next answer.
		last := built[0].Spans[len(built[0].Spans)-1]
		built, next = built[:1], last.Source+int64(last.Count)
	}
	for _, one := range built {
		own := u.pool.Get(len(one.Batch))
		copy(own.Bytes(), one.Batch)
		last := one.Spans[len(one.Spans)-1]
		u.out.units = append(u.out.units, &unit{
			pool: u.pool, buf: own, b: batch.Batch(own.Bytes()), base: one.Spans[0].Source, spansOf: append([]batch.Span(nil), one.Spans...),
			body: one.BodyBytes,
		})
		u.pass(last.Source + int64(last.Count))
	}
	u.pass(next)
	return nil
}

// addOld adds the records of a message set of format 0 or 1, which brokers up to 3.x still serve from old segments.
func (u *unpacker) addOld(raw []byte) (next int64, err error) {
	one := kmsg.NewFetchResponseTopicPartition()
	one.Partition, one.RecordBatches = u.want.tp.Partition, raw
	u.decompressor.magic = raw[oldMagic]
	fp, next := kgo.ProcessFetchPartition(
		kgo.ProcessFetchPartitionOpts{Offset: max(u.want.offset, u.out.upTo), Topic: u.want.tp.Topic, Partition: u.want.tp.Partition},
		&one, &u.decompressor, nil)
	if fp.Err != nil {
		return 0, fmt.Errorf("%w: %w", batch.ErrCorrupt, fp.Err)
	}
	// The library gives the records of a compressed message their producer's times, also where those of the log count.
	appended := raw[oldMagic] == 1 && raw[oldMagic+1]&oldAppendTime != 0
	for _, r := range fp.Records {
		ts := int64(-1) // format 0 has no timestamps
		switch {
		case appended:
			ts = int64(binary.BigEndian.Uint64(raw[oldMagic+2:]))
		case r.Attrs.TimestampType() >= 0:
			ts = r.Timestamp.UnixMilli()
		}
		if err := u.builder.AddRecord(r.Offset, ts, batch.AppendBody(nil, r.Key, r.Value), int8(r.Attrs.CompressionType())); err != nil {
			return 0, err
		}
	}
	return next, nil
}

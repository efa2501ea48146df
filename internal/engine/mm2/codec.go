package mm2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// recordVersion is the only value version that MM2 knows for heartbeats and checkpoints. Java readers from 4.4 on fail
// on any other, so it must never be raised by us.
const recordVersion = 0

var (
	// ErrTombstone is returned by the decoders for a null value. MM2's own readers die of one; ours skip it.
	ErrTombstone = errors.New("mm2: null value (tombstone)")
	// ErrTruncated is returned by the decoders for a key or value that ends before its last field, an empty one included.
	ErrTruncated = errors.New("mm2: truncated record")
	// ErrVersion is returned by the decoders for a heartbeat or checkpoint value of a version other than 0.
	ErrVersion = errors.New("mm2: unsupported record version")
	// ErrStringTooLong is returned by the encoders for a string of more than 32767 bytes, which the format cannot hold.
	ErrStringTooLong = errors.New("mm2: string longer than 32767 bytes")
)

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String renders the pair as Kafka's Java classes do, topic-partition.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// writer appends Kafka's fixed-width primitives and keeps the first error.
type writer struct {
	buf []byte
	err error
}

func (w *writer) int16(v int16) { w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(v)) }
func (w *writer) int32(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }
func (w *writer) int64(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }

func (w *writer) string(s string) {
	if len(s) > math.MaxInt16 {
		w.err = fmt.Errorf("%w: %d bytes", ErrStringTooLong, len(s))
		return
	}
	w.int16(int16(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *writer) bytes() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.buf, nil
}

// reader takes Kafka's fixed-width primitives off a buffer and keeps the first error, after which it yields zeroes.
// Bytes behind the last field are ignored, as Java does: they are room for later additions.
type reader struct {
	buf []byte
	err error
}

func (r *reader) take(n int, field string) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.buf) < n {
		r.err = fmt.Errorf("%w: field %s needs %d bytes, %d left", ErrTruncated, field, n, len(r.buf))
		return nil
	}
	b := r.buf[:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) int16(field string) int16 {
	if b := r.take(2, field); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32(field string) int32 {
	if b := r.take(4, field); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64(field string) int64 {
	if b := r.take(8, field); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) string(field string) string {
	n := r.int16(field)
	if r.err == nil && n < 0 {
		r.err = fmt.Errorf("%w: field %s has length %d", ErrTruncated, field, n)
	}
	if r.err != nil {
		return ""
	}
	return string(r.take(int(n), field))
}

func (r *reader) version() {
	if v := r.int16("version"); r.err == nil && v != recordVersion {
		r.err = fmt.Errorf("%w: %d", ErrVersion, v)
	}
}

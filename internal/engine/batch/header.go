package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderLen is the length of a v2 batch without its records.
const HeaderLen = 61

// Where the fields are; all numbers are big-endian.
const (
	atLength    = 8
	atEpoch     = 12
	atMagic     = 16
	atCRC       = 17
	atAttrs     = 21 // the checksum covers everything from here on
	atLastDelta = 23
	atBaseTime  = 27
	atMaxTime   = 35
	atPID       = 43
	atPIDEpoch  = 51
	atSequence  = 53
	atCount     = 57

	// prefix is what stands before the bytes that the length field counts.
	prefix = 12
)

// The bits of the attributes; the others are unused and never passed on.
const (
	attrCodec      = 0x07
	attrAppendTime = 1 << 3
	attrTxn        = 1 << 4
	attrControl    = 1 << 5
	attrHorizon    = 1 << 6
)

// The codecs of Batch.Codec.
const (
	CodecNone   int8 = 0
	CodecGzip   int8 = 1
	CodecSnappy int8 = 2
	CodecLZ4    int8 = 3
	CodecZstd   int8 = 4
)

// ErrCorrupt is wrapped by every error about bytes that are no record batches.
var ErrCorrupt = errors.New("corrupt record batch")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one complete v2 batch, header and records, in somebody's buffer. It is valid as long as that buffer is.
// Batches come from a Slicer, from Parse or from a Builder; the accessors panic on anything shorter than HeaderLen.
type Batch []byte

// Parse takes b as one v2 batch. It checks the structure of the header, not the checksum and not the records.
func Parse(b []byte) (Batch, error) {
	if len(b) < HeaderLen {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(b))
	}
	if got := int64(int32(binary.BigEndian.Uint32(b[atLength:]))) + prefix; got != int64(len(b)) {
		return nil, fmt.Errorf("%w: length %d in %d bytes", ErrCorrupt, got, len(b))
	}
	if b[atMagic] != 2 {
		return nil, fmt.Errorf("%w: magic %d", ErrCorrupt, int8(b[atMagic]))
	}
	batch := Batch(b)
	if base, last := batch.BaseOffset(), batch.LastDelta(); base < 0 || last < 0 || base > math.MaxInt64-1-int64(last) {
		return nil, fmt.Errorf("%w: base offset %d, last delta %d", ErrCorrupt, base, last)
	}
	return batch, nil
}

// BaseOffset is the offset from which the batch's offset deltas count.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b)) }

// LastDelta is the distance from the base to the last offset of the batch, as it was produced: records that the log
// cleaner removed are counted.
func (b Batch) LastDelta() int32 { return int32(binary.BigEndian.Uint32(b[atLastDelta:])) }

// LastOffset is the last offset of the batch.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastDelta()) }

// NextOffset is the offset behind the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LeaderEpoch is the epoch of the leader that stored the batch.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[atEpoch:])) }

// Count is the number of records that the header claims.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[atCount:])) }

// Attributes are the attribute bits; Codec, AppendTime, Transactional, Control and DeleteHorizon read them.
func (b Batch) Attributes() uint16 { return binary.BigEndian.Uint16(b[atAttrs:]) }

// Codec is the compression codec's number, 0 to 7; above CodecZstd none is defined.
func (b Batch) Codec() int8 { return int8(b[atAttrs+1] & attrCodec) }

// AppendTime tells whether all records have the time of their storing, MaxTimestamp, instead of their own.
func (b Batch) AppendTime() bool { return b[atAttrs+1]&attrAppendTime != 0 }

// Transactional tells whether the batch was written in a transaction.
func (b Batch) Transactional() bool { return b[atAttrs+1]&attrTxn != 0 }

// Control tells whether the batch holds a control record, such as a transaction marker.
func (b Batch) Control() bool { return b[atAttrs+1]&attrControl != 0 }

// DeleteHorizon tells whether BaseTimestamp is the time from which tombstones may be removed. Record timestamps still are
// BaseTimestamp + delta.
func (b Batch) DeleteHorizon() bool { return b[atAttrs+1]&attrHorizon != 0 }

// BaseTimestamp is the time in ms from which the records' timestamp deltas count.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atBaseTime:])) }

// MaxTimestamp is the largest timestamp of the records in ms.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atMaxTime:])) }

// ProducerID is -1 where the producer was not idempotent.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[atPID:])) }

// ProducerEpoch belongs to ProducerID.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[atPIDEpoch:])) }

// BaseSequence is the sequence number of the first record.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[atSequence:])) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// Payload are the records, compressed as one block unless Codec is CodecNone.
func (b Batch) Payload() []byte { return b[HeaderLen:] }

// Intact tells whether the stored checksum is that of the bytes. It reads the whole batch.
func (b Batch) Intact() bool { return crc32.Checksum(b[atAttrs:], castagnoli) == b.CRC() }

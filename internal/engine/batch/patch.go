package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// Producer is who writes a batch to the target.
type Producer struct {
	// ID and Epoch are -1 without idempotence; Sequence then is -1, too.
	ID    int64
	Epoch int16
	// Sequence is that of the batch's first record.
	Sequence int32
	// Transactional: the batch belongs to a transaction of this producer, and its request names the transactional id.
	Transactional bool
}

// Anonymous is the producer without idempotence.
var Anonymous = Producer{ID: -1, Epoch: -1, Sequence: -1}

// NextSequence is the sequence number behind count records from sequence on; after 2^31-1 comes 0.
func NextSequence(sequence, count int32) int32 {
	return int32((int64(sequence) + int64(count)) & 0x7fffffff)
}

// Patch makes b, in place, a batch that the target accepts from p: base offset 0, no leader epoch, of the attributes the
// codec only (and p's transaction), p's numbers, and the checksum that follows from the old one. Records and timestamps stay. Whether that may
// be done says Judge.
//
// A checksum that was wrong before is wrong after. Patch may be repeated, with the same or another producer.
func Patch(b Batch, p Producer) { patch(b, p, b.BaseTimestamp()) }

// PatchAppendTime is Patch for the verdict PassAppendTime: the record's timestamp becomes the time of its storing on the
// source, which is how consumers there see it.
func PatchAppendTime(b Batch, p Producer) { patch(b, p, b.MaxTimestamp()) }

func patch(b Batch, p Producer, baseTime int64) {
	binary.BigEndian.PutUint64(b, 0)
	binary.BigEndian.PutUint32(b[atEpoch:], 0xffffffff)
	before := crc32.Checksum(b[atAttrs:HeaderLen], castagnoli)
	attrs := uint16(b.Codec())
	if p.Transactional {
		attrs |= attrTxn
	}
	binary.BigEndian.PutUint16(b[atAttrs:], attrs)
	binary.BigEndian.PutUint64(b[atBaseTime:], uint64(baseTime))
	binary.BigEndian.PutUint64(b[atPID:], uint64(p.ID))
	binary.BigEndian.PutUint16(b[atPIDEpoch:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(b[atSequence:], uint32(p.Sequence))
	after := crc32.Checksum(b[atAttrs:HeaderLen], castagnoli)
	if before != after {
		crc := b.CRC() ^ shift(before^after, len(b)-HeaderLen)
		binary.BigEndian.PutUint32(b[atCRC:], crc)
	}
}

// seal computes the checksum of a batch that was built here.
func seal(b Batch) { binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttrs:], castagnoli)) }

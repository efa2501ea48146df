package batch

import (
	"encoding/binary"
	"fmt"
)

// minOld is the length of the smallest message of the formats before v2: offset, size, checksum, magic, attributes, and
// the lengths of key and value.
const minOld = 12 + 4 + 1 + 1 + 4 + 4

// Slicer walks over the batches of one fetched partition, without copying. Use it as
//
//	s := batch.Slice(records)
//	for s.Next() { … s.Batch() … }
//	if s.Err() != nil { … }
type Slicer struct {
	rest  []byte
	entry []byte
	err   error
}

// Slice begins at the first batch in buf, the record bytes of one partition in a fetch response.
func Slice(buf []byte) Slicer { return Slicer{rest: buf} }

// Next goes to the next complete batch. It is false at the end, before a batch that is cut off (see Tail), and before
// one that is none (see Err).
func (s *Slicer) Next() bool {
	s.entry = nil
	if s.err != nil || len(s.rest) < prefix {
		return false
	}
	length := int64(int32(binary.BigEndian.Uint32(s.rest[atLength:]))) + prefix
	if length < minOld {
		s.err = fmt.Errorf("%w: length %d", ErrCorrupt, length-prefix)
		return false
	}
	if length > int64(len(s.rest)) {
		return false
	}
	// A slice that ends with the batch keeps appends and faults out of the neighbour.
	entry := s.rest[:length:length]
	switch magic := int8(entry[atMagic]); magic {
	case 0, 1:
	case 2:
		if _, err := Parse(entry); err != nil {
			s.err = err
			return false
		}
	default:
		s.err = fmt.Errorf("%w: magic %d", ErrCorrupt, magic)
		return false
	}
	s.entry, s.rest = entry, s.rest[length:]
	return true
}

// Magic is the format of the current entry: 2, or 0 or 1 for one of the formats before it, which old segments still have.
func (s *Slicer) Magic() int8 { return int8(s.entry[atMagic]) }

// Batch is the current entry; it must be asked for only where Magic is 2.
func (s *Slicer) Batch() Batch { return Batch(s.entry) }

// Raw are the bytes of the current entry, of whatever format.
func (s *Slicer) Raw() []byte { return s.entry }

// Err is what stopped the walk, nil at a regular end. It wraps ErrCorrupt.
func (s *Slicer) Err() error { return s.err }

// Tail tells what is left behind the last complete batch: have bytes of a batch that needs need (0: not even its length
// arrived). Brokers cut the last batch at the limit of a response, but never the only one.
func (s *Slicer) Tail() (have, need int) {
	if len(s.rest) < prefix {
		return len(s.rest), 0
	}
	return len(s.rest), max(0, int(int32(binary.BigEndian.Uint32(s.rest[atLength:])))) + prefix
}

// Package dataset makes the benchmark's records, writes them to a topic in batches of a chosen shape, and compares what a
// topic holds with what it should hold.
//
// Records are a pure function of partition and sequence number, so the check needs no second reading of the source. It
// uses nothing of the engine: batches are built here, and read back with a Kafka client. Start with Set.
package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Codec is the compression of a set's batches, by Kafka's name.
type Codec string

// The codecs of the benchmark.
const (
	None Codec = "none"
	LZ4  Codec = "lz4"
	Zstd Codec = "zstd"
)

// Set describes records.
type Set struct {
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	// RecordBytes is the size of key and value together.
	RecordBytes int   `json:"recordBytes"`
	Codec       Codec `json:"codec"`
	// BatchBytes is the size of a batch as it travels, as in a producer's batch.size. A batch ends with the record that reaches it, or,
	// with BatchAtMost, before the record that would exceed it, as a producer's do.
	BatchBytes  int  `json:"batchBytes"`
	BatchAtMost bool `json:"batchAtMost"`
	// PerPartition is the number of records in each partition.
	PerPartition int64 `json:"perPartition"`
	// Begin is the first record's timestamp; every hundredth record is a millisecond later.
	Begin time.Time `json:"begin"`
}

// Sized returns s with so many records that their bytes are about total.
func (s Set) Sized(total int64) Set {
	s.PerPartition = max(1, total/int64(s.Partitions)/int64(s.RecordBytes+recordOverhead))
	return s
}

// Records is the number of records of all partitions.
func (s Set) Records() int64 { return s.PerPartition * int64(s.Partitions) }

const (
	keyBytes = 8
	// recordOverhead is about what lengths and deltas take in a batch.
	recordOverhead = 9
	// Every headerEvery-th record carries a header.
	headerEvery = 16
	headerName  = "origin"
	headerValue = "bench"
)

var errRecordBytes = errors.New("a record has at least 16 bytes")

// record fills value and returns the parts of a record. Half of the value is noise and half is text, so that it compresses
// about 2:1; no noise repeats.
func (s Set) record(dst []byte, partition int32, seq int64) (key [keyBytes]byte, value []byte) {
	binary.BigEndian.PutUint64(key[:], uint64(partition)<<48|uint64(seq))
	n := s.RecordBytes - keyBytes
	state := (uint64(partition)<<48 | uint64(seq)) + 1
	for i := 0; i < n; i += len(pattern) {
		from := len(dst)
		dst = append(dst, pattern[:min(len(pattern), n-i)]...)
		for j := from; j+8 <= min(len(dst), from+noiseBytes); j += 8 {
			state += 0x9e3779b97f4a7c15
			hi, lo := bits.Mul64(state, 0xd1342543de82ef95)
			binary.LittleEndian.PutUint64(dst[j:], hi^lo)
		}
	}
	return key, dst
}

// pattern is overwritten with noise in its first noiseBytes.
const (
	pattern    = `++++++++++++++++++++++++,"state":"delivered","warehouse":"north"}`
	noiseBytes = 24
)

// timestamp of a record in milliseconds.
func (s Set) timestamp(seq int64) int64 { return s.Begin.UnixMilli() + seq/100 }

func hasHeader(seq int64) bool { return seq%headerEvery == 0 }

// String names the set.
func (s Set) String() string {
	return fmt.Sprintf("%d records of %d B, %s, batches of %d B, %d partitions", s.Records(), s.RecordBytes, s.Codec, s.BatchBytes, s.Partitions)
}

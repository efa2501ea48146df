package batch

import "encoding/binary"

// Verdict says what is to be done with a fetched batch.
type Verdict uint8

// The verdicts.
const (
	// Pass: Patch it and send it.
	Pass Verdict = iota
	// PassAppendTime: PatchAppendTime it and send it.
	PassAppendTime
	// Skip: nothing in it is to be mirrored; go on behind it.
	Skip
	// Fallback: its records must be put into other batches (Builder).
	Fallback
	// Corrupt: its header contradicts itself; nothing may be made of it.
	Corrupt
)

var verdictNames = [...]string{"pass", "pass_append_time", "skip", "fallback", "corrupt"}

// String is the verdict's name in metrics.
func (v Verdict) String() string {
	if int(v) >= len(verdictNames) {
		return "unknown"
	}
	return verdictNames[v]
}

// Reason says why a verdict was reached; the set is small and fixed, for counters.
type Reason uint8

// The reasons.
const (
	// ReasonNone: nothing is special (Pass), or the exception for single records applies (PassAppendTime).
	ReasonNone Reason = iota
	// ReasonRecompressed, with Pass: the target's topic has another codec, so its broker decompresses and compresses again.
	ReasonRecompressed
	// ReasonBelow, with Skip: the whole batch lies before the wanted offset.
	ReasonBelow
	// ReasonControl, with Skip: a control record, such as a transaction marker.
	ReasonControl
	// ReasonAborted, with Skip: of an aborted transaction. Judge never says so; see Aborted.
	ReasonAborted
	// ReasonEmpty, with Skip: the log cleaner left only the header.
	ReasonEmpty
	// ReasonOldFormat, with Fallback: a message of a format before v2. Judge never says so; see Slicer.Magic.
	ReasonOldFormat
	// ReasonStartsInside, with Fallback: the wanted offset lies inside the batch.
	ReasonStartsInside
	// ReasonHoles, with Fallback: records inside are missing. Such a header must never be "repaired": an uncompressed batch
	// would be accepted and store offsets outside of itself.
	ReasonHoles
	// ReasonAppendTime, with Fallback: the records' times are those of the source's log; passed on they would turn into the
	// producer's.
	ReasonAppendTime
	// ReasonTooLarge, with Fallback: over the target's limit for batches.
	ReasonTooLarge
	// ReasonCodec, with Fallback: the target does not know the codec.
	ReasonCodec
	// ReasonRecompress, with Fallback: another codec than the topic's, and the target is to be spared the work.
	ReasonRecompress
	// ReasonLooksInside, with Fallback: something has to see the records.
	ReasonLooksInside
	// ReasonCount, with Corrupt: more records than offsets, or less than none.
	ReasonCount
	// ReasonUnknownCodec, with Corrupt: a codec number that Kafka has not defined.
	ReasonUnknownCodec

	reasons = iota
)

var reasonNames = [reasons]string{
	"none", "recompressed", "below", "control", "aborted", "empty", "old_format", "starts_inside", "holes", "append_time",
	"too_large", "codec", "recompress", "looks_inside", "count", "unknown_codec",
}

// String is the reason's name in metrics.
func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return "unknown"
	}
	return reasonNames[r]
}

// TopicCodec is a topic's compression.type.
type TopicCodec int8

// ProducerCodec is compression.type=producer: batches stay as they come. Other values are codec numbers, 0 being
// "uncompressed".
const ProducerCodec TopicCodec = -1

// Target is what Judge must know of the topic that a batch goes to.
type Target struct {
	// MaxBatchBytes is max.message.bytes; 0 means unknown: the target will say.
	MaxBatchBytes int
	// AppendTime is message.timestamp.type=LogAppendTime.
	AppendTime bool
	// Codec is compression.type. Mind that the zero value means "uncompressed".
	Codec TopicCodec
	// Recompress asks for batches with another codec than Codec to be compressed here instead of on the target.
	Recompress bool
	// NoZstd: the target does not know zstd (Kafka before 2.1, produce before version 7).
	NoZstd bool
	// LooksInside: a filter, a transformation or another partitioning needs the records.
	LooksInside bool
}

// Judge decides about one complete v2 batch, of which records from offset want on are wanted. It decides from the header
// alone (and, for single uncompressed records with append time, the record's first bytes). Aborted transactions are left
// to Aborted, which must have been asked before; the checksum is left to the target, which verifies it.
func Judge(b Batch, want int64, t Target) (Verdict, Reason) {
	count, last := b.Count(), b.LastDelta()
	switch {
	case b.LastOffset() < want:
		return Skip, ReasonBelow
	case b.Control():
		return Skip, ReasonControl
	case count < 0 || int64(count) > int64(last)+1:
		return Corrupt, ReasonCount
	case count == 0:
		return Skip, ReasonEmpty
	case b.Codec() > CodecZstd:
		return Corrupt, ReasonUnknownCodec
	case b.BaseOffset() < want:
		return Fallback, ReasonStartsInside
	case count != last+1:
		return Fallback, ReasonHoles
	case t.LooksInside:
		return Fallback, ReasonLooksInside
	case b.Codec() == CodecZstd && t.NoZstd:
		return Fallback, ReasonCodec
	case t.MaxBatchBytes > 0 && len(b) > t.MaxBatchBytes:
		return Fallback, ReasonTooLarge
	case t.Recompress && t.foreign(b):
		return Fallback, ReasonRecompress
	}
	note := ReasonNone
	if t.foreign(b) {
		note = ReasonRecompressed
	}
	if b.AppendTime() && !t.AppendTime {
		if !singleAtBase(b) {
			return Fallback, ReasonAppendTime
		}
		return PassAppendTime, note
	}
	return Pass, note
}

// foreign tells whether the target's broker would compress the batch anew.
func (t Target) foreign(b Batch) bool {
	return t.Codec != ProducerCodec && t.Codec != TopicCodec(b.Codec())
}

// singleAtBase tells whether b is one uncompressed record whose timestamp is the header's, so that the header alone says
// what time it has.
func singleAtBase(b Batch) bool {
	if b.Codec() != CodecNone || b.Count() != 1 {
		return false
	}
	payload := b.Payload()
	_, n := binary.Varint(payload)
	if n <= 0 || len(payload) < n+2 {
		return false
	}
	// Behind the length: attributes, then the delta; zero is the one byte 0.
	return payload[n+1] == 0
}

// Package batch handles Kafka record batches as bytes: it finds them in a fetch response (Slice), decides whether one may
// be passed to the target as it is (Judge), gives it another producer (Patch), leaves out what was aborted (Aborted),
// and builds new batches where passing is not allowed or not wise (Builder).
//
// Everything here works on bytes that a broker sent, which may be anything: nothing panics, and nothing allocates more
// than a small multiple of its input and of the stated limit for decompressed data. Slice, Judge, Patch and Aborted
// allocate nothing per batch.
//
// The package must never do I/O, read a clock, decode a record into a structure, or decide what to copy. Codecs are the
// caller's.
//
// Start at Slice and Judge; the rules of passing are in docs/ARCHITECTURE.md.
package batch

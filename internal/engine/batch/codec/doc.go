// Package codec compresses and decompresses the payloads of record batches, with Kafka's four codecs and within a limit.
//
// It owns the formats: gzip, snappy in Java's framing or bare, LZ4 frames, zstd. A payload comes from a broker and may
// claim anything: what is allocated follows what is really there, up to the caller's limit. It must never know batches.
//
// Start at New.
package codec

// Package wire speaks Fetch and Produce to single brokers over connections of its own, for the data path that passes
// batches on as bytes (internal/engine/batch).
//
// It owns: requests and answers in all versions in use, with topic names or ids; fetched records that stay where they were
// read, in pooled and counted buffers (Pool, Buffer); produce requests that are written from there with vectored writes;
// many requests in flight on a connection (Conn); silence noticed; throttle times; fetch sessions (Session).
//
// It must never decide what to fetch or produce, send anything twice, or keep a position. Metadata, admin requests and
// groups are the client library's.
//
// An answer comes from a broker and may be anything: decoding never panics and allocates no more than a small multiple of
// what arrived. Non-obvious: a connection that ends says of each open request whether all of it was sent (LostError); if
// not, the broker cannot have acted on it, and if so, it may act even later (docs/ARCHITECTURE.md, D7).
//
// Start at Dial and Conn, then FetchRequest and ProduceRequest.
package wire

// Package mirror is the data path: it moves the records of assigned partitions
// from the source to the target, in order, and reports each acknowledgement.
//
// Path is the interface, with two implementations: RecordPath decodes records
// and puts them into batches of its own, BatchPath passes batches on as bytes
// where that is allowed. What they share (core) is the state of partitions,
// when to read and write, and what answers mean; what differs (carrier) is how
// bytes are read, wait and are written. A path decides nothing about names,
// positions or policy: it is told where to start and tells what happened. It
// must never store a position.
//
// Start at Path, then core and carrier.
package mirror

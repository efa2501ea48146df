// Package mirror is the data path: it moves the records of assigned partitions
// from the source to the target, in order, and reports each acknowledgement.
//
// Path is the interface; RecordPath, which decodes and re-encodes records and
// speaks Fetch and Produce itself over connections of franz-go, is its first
// implementation and will be replaced by one that passes batches through. A
// path decides nothing about names, positions or policy: it is told where to
// start and tells what happened. It must never store a position.
//
// Start at Path.
package mirror

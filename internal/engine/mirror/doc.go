// Package mirror is the data path: it moves the records of assigned partitions
// from the source to the target, in order, and reports each acknowledgement.
//
// Path is the interface, and New makes the one implementation: batches pass as
// bytes where that is allowed and are put together anew where it is not. A path
// decides nothing about names, positions or policy: it is told where to start
// and tells what happened. It must never store a position.
//
// Start at Path, then mirror.go; read.go and lane.go are its two halves.
package mirror

// Package syncs writes MM2's offset-syncs topic, on the source or on the target: when the data path has an
// acknowledgement, the writer decides by MM2's rule whether a sync is due, and sends it.
//
// It must never hold the data path up: at most ten syncs are in flight, and of what waits only the newest of each
// partition is kept.
//
// Start at Writer.
package syncs

// Package sidetopic reads and writes the small compacted topics that lie beside the
// mirrored data: state, MM2's positions, checkpoints, heartbeats.
//
// It owns two functions. It must never decide what is written, and must not make,
// alter or delete topics.
//
// Start at Read.
package sidetopic

// Package sidetopic reads the small compacted topics that lie beside the mirrored
// data: state, MM2's positions.
//
// It owns one function. It must never write, alter or delete anything.
//
// Start at Read.
package sidetopic

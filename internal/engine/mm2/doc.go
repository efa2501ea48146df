// Package mm2 holds everything that makes mirrorflow speak MirrorMaker 2: record formats, topic names, selection rules,
// offset-sync emission, offset translation, the layout of Connect's offsets topic, and beside them mirrorflow's own
// exact offset map.
//
// The package is pure. It never reads a clock, starts a goroutine, does I/O or logs; it imports the standard library
// only. Types that hold state are not safe for concurrent use unless their doc says so. Whoever calls decides when
// things happen and carries out what is returned.
//
// Where MM2 is wrong in a way that harms (names split at the first separator, local config overrides wiped), both ways
// are offered: the exact Java rule, marked as such, and ours, which the engine uses.
//
// Start with policy.go (names), filter.go (what is mirrored), offset_sync_store.go (MM2's translation) and offset_map.go
// (exact translation).
package mm2

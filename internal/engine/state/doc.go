// Package state keeps what must live and die with the mirrored data: for each
// partition the position and the exact map from source to target offsets, in
// the compacted topic mirrorflow-state.<source alias>.internal on the target,
// and beside it MM2's own positions (mm2-offsets.<source alias>.internal) so
// that MM2 can take over.
//
// It must never decide a position: it stores what the task says was
// acknowledged, and reads it back.
//
// Start at Store.
package state

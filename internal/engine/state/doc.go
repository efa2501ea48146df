// Package state keeps what must live and die with the mirrored data: for each
// partition the position and the exact map from source to target offsets, in
// the compacted topic mirrorflow-state.<source alias>.internal on the target,
// and beside it MM2's own positions (mm2-offsets.<source alias>.internal) so
// that MM2 can take over.
//
// It must never decide a position: it stores what the task says was
// acknowledged, and reads it back.
//
// # Who may write
//
// Several writers may be at a partition's state one after the other: workers
// to which the lease moves, the tasks of a flow whose count was changed, a flow
// that was deleted and made again, flows of a rebuilt service. One of them may
// wake up late and write when another has taken over long since. Nothing
// outside of the topic can order all of them (the epochs of leases begin anew
// with each flow), so the order is kept with the data: what a store saves of a
// partition carries a generation, one higher than any that it read when it took
// the partition over. On reading the highest generation counts; among equal
// ones, which only writers have that took over at the same time, the higher
// lease epoch if they are of one flow, else what was written later.
//
// A store keeps the generation that it has of a partition, whatever it reads
// later, unless a writer of another flow had the partition in between: then it
// takes over anew. Finding a higher generation of its own flow means that it is
// itself the one that is late, and its writes are not to count.
//
// # The records of the state topic
//
// Numbers are big-endian, strings have a uint16 length; "mf" marks keys as ours.
//
//	head  key:   "mf", 1, 'H', remote topic, int32 partition
//	      value: 3, int64 generation, int64 lease epoch, flow, source topic, source topic id (16 bytes), target topic id
//	             (16 bytes), int64 position, int64 target next, producer (0, or 1, int64 id, int16 epoch, int32 sequence, int64
//	             target offset), map prefix (uint8 length), uint16 count of blocks, a uint64
//	             hash for each, rest of the map
//	block key:   "mf", 2, 'B', remote topic, int32 partition, int64 generation, int64 lease epoch, uint64 hash
//	      value: 1, bytes of the map
//	note  key:   "mf", 1, 'N', name
//	      value: the caller's bytes
//
// The map is MarshalBinary's bytes: its first bytes, which change with every
// run, are the prefix; what follows is cut in blocks of 16 KiB, the remainder
// stays in the head. A map that grows at its end leaves the blocks before alone,
// so a save writes the head only.
//
// Blocks are named by their content, so a head and the blocks that it names
// cannot disagree, whatever was written last before a crash; and by their
// writer's generation and epoch, so that a late writer, who removes blocks of
// its own that its map no longer has, never removes one that its successor's
// head names. A successor writes all blocks again under its own name with its
// first head, and then removes those of earlier generations.
//
// Version 1 of heads has no generation and no flow (they count as 0 and empty),
// and its blocks, keys of version 1, no generation and no epoch. Version 2 has no
// producer. All are read; the first save replaces them. A record of a newer version than this program
// knows ends a Load with ErrVersion: nothing may be decided without it.
//
// Start at Store.
package state

// Package groups carries consumer groups' progress to the target: checkpoints in
// MM2's format, and committed offsets of groups that are not active there.
//
// It owns the selection of groups (MM2's rule), the checkpoints topic of its
// source alias, and every OffsetCommit on the target. It must never translate an
// offset itself (the Translator does, and answers for never being ahead of what
// is acknowledged), never write into a group that has members on the target,
// never move a group back there, and never delete anything.
//
// Two loops share what is known of the source's groups: one commits, one writes
// checkpoints, so that neither waits for the other. Start at Room.Run, then
// Room.syncRound and Room.checkpointRound.
package groups

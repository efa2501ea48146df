// Package topics looks after the topics of a flow: which topics of the source
// are mirrored (Select), what they are called on the target, that the remote
// topics exist with the source's partitions and configs (Ensure), and that
// configs follow the source while the flow runs (SyncConfigs).
//
// Names are matched by whole aliases, never split at a separator. Topics are
// created with their configs in the create request, so that no record ever
// lives under the target's defaults. Configs set by this package are written
// to a Ledger before they are sent, so that it later removes what it set itself
// and nothing else.
//
// It must never move a record, decide a position or delete a topic. A topic
// that cannot be created, grown or configured gets a condition and is tried
// again at the next refresh; its neighbours do not wait.
//
// Start at Room, then Room.Discover and Room.Ensure.
package topics

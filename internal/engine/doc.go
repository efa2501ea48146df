// Package engine runs one task of one flow: it mirrors a share of a flow's
// partitions from the source cluster to the target cluster, with MM2's topics
// beside them, and tells a sink what it sees.
//
// It must never import flows, store or http: it is handed a Config, an identity
// and a Sink, and knows nothing of Postgres or HTTP.
//
// Rooms below it: mm2 (pure formats and rules), topics (discovery, creation,
// config sync), mirror (the data path), state (positions and offset maps on
// the target), syncs (MM2's offset-syncs topic), sidetopic (reading and writing
// the small topics beside the data), groups (checkpoints and group-offset sync),
// heartbeat, report (what is told to the outside, and panics contained).
//
// Start at Run, then docs/ARCHITECTURE.md, "The life of a record".
package engine

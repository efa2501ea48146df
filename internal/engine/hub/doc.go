// Package hub holds what the tasks of one process share of the clusters that they work with: one client for everything
// small, and one set of connections for the data, whatever the number of tasks.
//
// It owns connections, back-off, the budget of bytes read, and the knowledge whether a cluster answers. It never decides
// which partitions are read, what an answer means for them, or what is written: that is the business of
// internal/engine/mirror and of the rooms beside it.
//
// Start at Hub, then Cluster.
package hub

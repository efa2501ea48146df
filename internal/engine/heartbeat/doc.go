// Package heartbeat writes MM2's heartbeat records, which show that a flow is
// alive and, when they are mirrored, how far it lags.
//
// It owns the heartbeats topic of a cluster as far as making it goes. It must
// never decide whether heartbeats are wanted, nor mirror them.
//
// Start at Emitter.
package heartbeat

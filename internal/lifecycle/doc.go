// Package lifecycle starts and stops the parts of a process in order, turns
// signals into a cancelled context, waits between attempts, and says how many
// CPUs a process uses at a time.
//
// It must never know what the parts do.
//
// Start at Run and Component; then Notify and Backoff.
package lifecycle

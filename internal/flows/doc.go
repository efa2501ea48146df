// Package flows is the domain: services, integrations, flows (replications in
// URLs and JSON), leases, status, events, the rules that bind them, and the
// ports through which the rules reach the outside.
//
// It owns every decision about what may be stored and what a change means. It
// must never speak HTTP, SQL or Kafka: those are the adapters' matters
// (internal/http, internal/store, internal/worker). It imports the standard
// library, uuid and internal/javaregex only.
//
// Start at API (what callers may ask), then Manager (the rules), then the
// ports in ports.go (what the rules need).
package flows

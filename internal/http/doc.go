// Package httpapi is the HTTP edge: it serves the contract of openapi.yaml over
// a flows.API. Its folder is internal/http; the name keeps net/http unshadowed.
//
// It owns routing, authentication of requests, validation of bodies and
// parameters against the contract, the conversion between the contract's types
// and the domain's (convert*.go, nowhere else), the two route families with
// their error shapes, and the middleware (request ids, access log, metrics,
// time limits). It must never decide what may be stored, and never touch a
// store, an engine or Kafka: what the contract cannot express is the domain's
// to refuse.
//
// Start at New, then operation.go (the way of a request), then the handlers in
// services.go, integrations.go, replications.go and ovh_*.go. The types, the
// routing table and the embedded contract are generated into apigen.
package httpapi

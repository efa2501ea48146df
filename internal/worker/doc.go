// Package worker turns leases into running tasks: it registers the worker,
// acquires leases, starts an engine for each, renews, follows changes, drains
// and releases, and runs the short jobs that the API leaves.
//
// It owns the life of a lease in the process (term.go: when it may be trusted;
// task.go: what runs under it), the translation between the domain and the
// engine (config.go, status.go), and the reporting of status and events. It
// must never copy a record or speak SQL or HTTP, and never let a task work
// past the end of its trust: stop first, talk to the database later.
//
// Start at Supervisor, then task.go.
package worker

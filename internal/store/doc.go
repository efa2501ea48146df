// Package store keeps the domain in Postgres: it implements flows.Store (the
// API's side) and flows.WorkerStore (leases, status, events, jobs).
//
// It owns SQL, transactions, the translation of database errors and the
// notifications. It must never decide a rule of the domain: what a change may
// do is flows.Manager's matter, which runs inside Store.Change. It must never
// use the process's clock for anything that is stored or compared.
//
// # Leases
//
// A worker (its name and its process, see Store.owner) has one row, whose expires_at is the end of all its leases: one
// small update renews any number of tasks. A task row names its owner and
// counts epochs. A worker's row that ran out is deleted by whoever comes along
// first (reap), and the same transaction frees its tasks. Deleting is what
// makes this safe: a renewal and a reaping of one worker queue at its row, so
// that either the renewal finds no row and everything is lost, or the reaping
// finds a row that is alive.
//
// Start at Store (store.go), then tx.go for transactions, tasks.go for leases,
// listener.go for notifications. Queries are in queries/*.sql; dbsqlc is generated.
package store

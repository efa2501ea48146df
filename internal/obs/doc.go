// Package obs makes what operators look at: the JSON logger, the Prometheus
// registry, the health endpoints and the version of the build.
//
// It must never log or expose a secret, and holds no global state: loggers and
// registries are made by main and handed down.
//
// Start at NewLogger, NewRegistry and Endpoints.
package obs

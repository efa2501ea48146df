// Package client is the Go client generated from openapi.yaml, for mirrorctl
// and for tests. It must never be edited by hand: change openapi.yaml and run
// go generate. Start at NewClientWithResponses.
package client

//go:generate go tool -modfile=../../../tools/go.mod oapi-codegen -config client.cfg.yaml ../../../openapi.yaml

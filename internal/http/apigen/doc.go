// Package apigen holds what is generated from openapi.yaml for the server:
// models, the strict chi server and the embedded contract. It must never be
// edited by hand: change openapi.yaml and run go generate. Start at
// StrictServerInterface.
package apigen

//go:generate go tool -modfile=../../../tools/go.mod oapi-codegen -config server.cfg.yaml ../../../openapi.yaml

// Package e2e proves the whole service as its users meet it: real binaries,
// real Postgres, real Kafka 3.9 and 4.3 brokers, HTTP from outside. It has no
// code of its own and nothing imports it. docs/testing.md says what each test
// proves.
package e2e

// Package lab sets the benchmark's stage: two Kafka brokers, Postgres, the API, and the mirrors that are compared.
//
// It starts and ends processes and keeps the brokers clean between runs; it measures nothing. Everything it starts ends
// with it, however it ends. Start with Open; mirrors are started by an Engine.
package lab

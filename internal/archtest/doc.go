// Package archtest holds the rules of docs/ARCHITECTURE.md as tests: who may
// import whom, that every package says what it owns, that documents and code
// name the same things. It has no code of its own and nothing imports it.
package archtest

// Package secrets seals the credentials of Kafka clusters so that only workers
// can read them (anonymous NaCl boxes: X25519, XSalsa20, Poly1305).
//
// It owns the key files, their generation, Sealer (the API's half, public keys
// only) and Opener (the workers' half). A sealed value carries the id of the
// key it was sealed to, so keys rotate: put a new key first in the public file
// and add its private half to the workers' file; values sealed before stay
// readable while the old private key stays in that file.
//
// It must never put a secret, a private key or a line of a private key file
// into an error, a log or any other text.
//
// Start at LoadSealer and LoadOpener; key files are parsed in keyfile.go.
package secrets

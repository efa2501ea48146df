package flows

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// tokenPrefix lets people and secret scanners tell what a token is for.
const tokenPrefix = "mft_"

// NewTokenText returns the text of a new token: 256 random bits. Only its hash is stored, so the text
// can be shown once.
func NewTokenText() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: the runtime ends the process when there is no randomness
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// HashToken returns what is stored of a token. A plain hash is enough, since nobody can guess 256 random bits.
func HashToken(text string) [32]byte { return sha256.Sum256([]byte(text)) }

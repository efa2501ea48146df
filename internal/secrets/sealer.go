package secrets

import (
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/box"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// SettingPublicKeys is the variable that names the API's key file.
const SettingPublicKeys = "MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE"

// ErrNoPublicKey is answered by Seal when no public key is configured. Its
// text is for operators.
var ErrNoPublicKey = errors.New("secrets cannot be stored because no public key is configured: set " +
	SettingPublicKeys + " on the API and the private half on the workers ('mirrorctl keys new' makes both files)")

// Sealer seals secrets to the first public key of its file. The zero value has
// no key and answers ErrNoPublicKey. Safe for concurrent use.
type Sealer struct{ key *Key }

var _ flows.Sealer = Sealer{}

// LoadSealer reads the public key file. An empty path answers a Sealer without
// a key: services without secrets work, others are refused with the reason.
func LoadSealer(path string) (Sealer, error) {
	if path == "" {
		return Sealer{}, nil
	}
	keys, err := loadKeys(SettingPublicKeys, path, Public)
	if err != nil {
		return Sealer{}, err
	}
	return NewSealer(keys)
}

// NewSealer answers a Sealer for keys[0].
func NewSealer(keys []Key) (Sealer, error) {
	if len(keys) == 0 {
		return Sealer{}, ErrNoPublicKey
	}
	return Sealer{key: &keys[0]}, nil
}

// KeyID is the id of the key that seals, "" without one.
func (s Sealer) KeyID() string {
	if s.key == nil {
		return ""
	}
	return s.key.ID
}

// Seal implements flows.Sealer. The same plaintext gives another box each time.
func (s Sealer) Seal(plaintext string) (flows.SealedSecret, error) {
	if s.key == nil {
		return flows.SealedSecret{}, ErrNoPublicKey
	}
	b, err := box.SealAnonymous(nil, []byte(plaintext), &s.key.bytes, rand.Reader)
	if err != nil {
		return flows.SealedSecret{}, fmt.Errorf("seal to key %q: %w", s.key.ID, err)
	}
	return flows.SealedSecret{KeyID: s.key.ID, Box: b}, nil
}

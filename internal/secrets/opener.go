package secrets

import (
	"crypto/ecdh"
	"fmt"
	"log/slog"
	"sort"

	"golang.org/x/crypto/nacl/box"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// SettingPrivateKeys is the variable that names the workers' key file.
const SettingPrivateKeys = "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE"

// UnreadableError says why a sealed secret cannot be opened. Its text is for
// operators and holds nothing secret.
type UnreadableError struct {
	KeyID  string // the key the value was sealed to
	Reason string // a clause: what is the matter with it
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("a secret sealed to key %q cannot be opened: %s", e.KeyID, e.Reason)
}

// Opener opens what any of its private keys can open. The zero value has no
// key. Safe for concurrent use.
type Opener struct{ pairs map[string]pair }

type pair struct{ public, private [keySize]byte }

// LoadOpener reads the private key file and warns when others can read it. An
// empty path answers an Opener without keys: every Open fails with the reason.
func LoadOpener(path string, log *slog.Logger) (Opener, error) {
	if path == "" {
		return Opener{}, nil
	}
	keys, err := loadKeys(SettingPrivateKeys, path, Private)
	if err != nil {
		return Opener{}, err
	}
	warnIfExposed(path, log)
	return NewOpener(keys)
}

// NewOpener answers an Opener for private keys.
func NewOpener(keys []Key) (Opener, error) {
	o := Opener{pairs: make(map[string]pair, len(keys))}
	for _, k := range keys {
		pk, err := ecdh.X25519().NewPrivateKey(k.bytes[:])
		if err != nil {
			return Opener{}, fmt.Errorf("private key %q is not a valid X25519 key", k.ID)
		}
		p := pair{private: k.bytes}
		copy(p.public[:], pk.PublicKey().Bytes())
		o.pairs[k.ID] = p
	}
	return o, nil
}

// KeyIDs are the ids of the keys at hand, sorted.
func (o Opener) KeyIDs() []string {
	ids := make([]string, 0, len(o.pairs))
	for id := range o.pairs {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// Open answers the plaintext; errors are *UnreadableError.
func (o Opener) Open(s flows.SealedSecret) (string, error) {
	p, ok := o.pairs[s.KeyID]
	switch {
	case len(o.pairs) == 0:
		return "", &UnreadableError{KeyID: s.KeyID, Reason: "this worker has no private key; set " + SettingPrivateKeys}
	case !ok:
		return "", &UnreadableError{KeyID: s.KeyID, Reason: "this worker does not have that key; add it to the file that " + SettingPrivateKeys + " names, or set the credentials again"}
	}
	plain, ok := box.OpenAnonymous(nil, s.Box, &p.public, &p.private)
	if !ok {
		return "", &UnreadableError{KeyID: s.KeyID, Reason: "the stored value is damaged or the key of that id is another one; set the credentials again"}
	}
	return string(plain), nil
}

// OpenAll opens every secret of a service.
func (o Opener) OpenAll(sealed map[flows.SecretField]flows.SealedSecret) (map[flows.SecretField]string, error) {
	out := make(map[flows.SecretField]string, len(sealed))
	for f, s := range sealed {
		plain, err := o.Open(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out[f] = plain
	}
	return out, nil
}

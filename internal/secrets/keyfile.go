package secrets

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"
)

// keySize is the length of public and private keys in bytes.
const keySize = 32

// keyID is what an id in a key file may look like.
var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Half says which half of a pair a key is. It stands behind the key, as a
// comment, so that swapped files are noticed at start.
type Half string

// The halves.
const (
	Public  Half = "public"
	Private Half = "private"
)

// Key is one line of a key file: an id and a public or a private key. It
// prints its id only.
type Key struct {
	ID    string
	Half  Half
	bytes [keySize]byte
}

// String redacts the key.
func (k Key) String() string { return "secrets.Key(" + k.ID + ")" }

// GoString redacts the key.
func (k Key) GoString() string { return k.String() }

// LogValue redacts the key.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Line is the key as it stands in a key file, without the line's end. For a
// private key it is secret.
func (k Key) Line() string {
	return k.ID + " " + base64.StdEncoding.EncodeToString(k.bytes[:]) + " # " + string(k.Half) + " key"
}

// NewKeyPair makes a key pair. An empty id is replaced by the day and a random
// part, so that ids sort by age and never meet again.
func NewKeyPair(id string) (public, private Key, err error) {
	if id == "" {
		var b [3]byte
		if _, err := rand.Read(b[:]); err != nil {
			return Key{}, Key{}, fmt.Errorf("read random bytes: %w", err)
		}
		id = fmt.Sprintf("%s-%x", time.Now().UTC().Format("20060102"), b)
	}
	if !keyID.MatchString(id) {
		return Key{}, Key{}, fmt.Errorf("key id %q: must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit", id)
	}
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, Key{}, fmt.Errorf("generate key: %w", err)
	}
	public, private = Key{ID: id, Half: Public}, Key{ID: id, Half: Private}
	copy(public.bytes[:], k.PublicKey().Bytes())
	copy(private.bytes[:], k.Bytes())
	return public, private, nil
}

// ParseKeys reads a key file of one half: `id base64` a line; blank lines and
// what follows a # are ignored, but for the mark of the other half, which is
// refused. Errors name the line's number, never its text.
func ParseKeys(r io.Reader, want Half) ([]Key, error) {
	other := Private
	if want == Private {
		other = Public
	}
	var keys []Key
	seen := map[string]bool{}
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line, comment, _ := strings.Cut(sc.Text(), "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			return nil, fmt.Errorf("line %d: want an id and a key in base64, separated by a space", n)
		}
		// The first word is quoted only once it looks like an id and not like a
		// key: someone may have swapped the two.
		if !keyID.MatchString(f[0]) {
			return nil, fmt.Errorf("line %d: the first word is not a key id (1 to 64 letters, digits, '.', '_' or '-')", n)
		}
		raw, err := base64.StdEncoding.DecodeString(f[1])
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf("line %d: the key must be %d bytes in standard base64", n, keySize)
		}
		if strings.TrimSpace(comment) == string(other)+" key" {
			return nil, fmt.Errorf("line %d: this is a %s key, and the file must hold %s keys: the two files are swapped", n, other, want)
		}
		if seen[f[0]] {
			return nil, fmt.Errorf("line %d: key id %q stands here a second time", n, f[0])
		}
		seen[f[0]] = true
		k := Key{ID: f[0], Half: want}
		copy(k.bytes[:], raw)
		keys = append(keys, k)
	}
	if err := sc.Err(); err != nil {
		// bufio's errors (line too long) say nothing of the text; a reader's might.
		return nil, fmt.Errorf("read keys: %w", err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key in it")
	}
	return keys, nil
}

func loadKeys(setting, path string, half Half) ([]Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	defer func() { _ = f.Close() }() // only read from
	keys, err := ParseKeys(f, half)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", setting, path, err)
	}
	return keys, nil
}

// warnIfExposed logs a warning when others than the owner can read the file.
func warnIfExposed(path string, log *slog.Logger) {
	fi, err := os.Stat(path)
	if err != nil {
		return // opening it will answer the same error
	}
	if fi.Mode().Perm()&0o077 != 0 {
		log.Warn("private key file is accessible to others than its owner",
			slog.String("path", path),
			slog.String("mode", fi.Mode().Perm().String()),
			slog.String("remedy", "chmod 600"))
	}
}

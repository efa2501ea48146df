package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mirrorflow/mirrorflow/internal/secrets"
)

type keysNewCmd struct {
	ID      string `help:"Id of the key; default: the day and a random part."`
	Public  string `default:"mirrorflow-public-keys" help:"File for the public key (the API's MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE)."`
	Private string `default:"mirrorflow-private-keys" help:"File for the private key (the workers' MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE)."`
	Add     bool   `help:"Rotate: put the new key at the head of existing files. Without it, existing files are an error."`
}

// Run implements the command. The private file is written first: a private key
// without its public half does no harm, the other way round secrets would be
// sealed that nobody can open.
func (c keysNewCmd) Run(a *app) error {
	public, private, err := secrets.NewKeyPair(c.ID)
	if err != nil {
		return err
	}
	var oldPublic, oldPrivate string
	if oldPrivate, err = c.existing(c.Private, private); err != nil {
		return err
	}
	if oldPublic, err = c.existing(c.Public, public); err != nil {
		return err
	}
	if err := write(c.Private, private.Line()+"\n"+oldPrivate, 0o600); err != nil {
		return err
	}
	if err := write(c.Public, public.Line()+"\n"+oldPublic, 0o644); err != nil {
		return err
	}
	return a.print("key %s: public half in %s, private half in %s\n", public.ID, c.Public, c.Private)
}

// existing answers what a file holds, which must be keys of the half of next, none of its id.
func (c keysNewCmd) existing(path string, next secrets.Key) (string, error) {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.Add:
		return "", fmt.Errorf("%s does not exist; --add puts a key into existing files, leave it out to make new ones", path)
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !c.Add:
		return "", fmt.Errorf("%s exists; give --add to put another key into it, or name another file", path)
	}
	keys, err := secrets.ParseKeys(strings.NewReader(string(raw)), next.Half)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	for _, k := range keys {
		if k.ID == next.ID {
			return "", fmt.Errorf("%s holds a key %s already", path, next.ID)
		}
	}
	return string(raw), nil
}

// write replaces a file at once: readers see the old content or the new.
func write(path, content string, mode fs.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.WriteString(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

package secrets_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
)

func newPair(t *testing.T, id string) (public, private secrets.Key) {
	t.Helper()
	public, private, err := secrets.NewKeyPair(id)
	require.NoError(t, err)
	return public, private
}

func writeKeys(t *testing.T, mode os.FileMode, keys ...secrets.Key) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# keys\n\n")
	for _, k := range keys {
		b.WriteString(k.Line() + "\n")
	}
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), mode))
	return path
}

func TestWhatTheSealerSealsOnlyTheOpenerReads(t *testing.T) {
	t.Parallel()
	pub, priv := newPair(t, "k1")
	sealer, err := secrets.LoadSealer(writeKeys(t, 0o644, pub))
	require.NoError(t, err)
	opener, err := secrets.LoadOpener(writeKeys(t, 0o600, priv), slog.New(slog.DiscardHandler))
	require.NoError(t, err)

	for _, secret := range []string{"hunter2", "", strings.Repeat("long ", 10_000)} {
		sealed, err := sealer.Seal(secret)
		require.NoError(t, err)
		require.Equal(t, "k1", sealed.KeyID)
		if len(secret) > 3 {
			require.NotContains(t, string(sealed.Box), secret)
		}
		plain, err := opener.Open(sealed)
		require.NoError(t, err)
		require.Equal(t, secret, plain)
	}
}

func TestKeysRotateWithoutLosingWhatWasSealedBefore(t *testing.T) {
	t.Parallel()
	oldPub, oldPriv := newPair(t, "2025")
	newPub, newPriv := newPair(t, "2026")

	before, err := secrets.NewSealer([]secrets.Key{oldPub})
	require.NoError(t, err)
	sealedBefore, err := before.Seal("first password")
	require.NoError(t, err)

	// The new key goes to the workers first, then to the head of the API's file.
	opener, err := secrets.NewOpener([]secrets.Key{oldPriv, newPriv})
	require.NoError(t, err)
	after, err := secrets.NewSealer([]secrets.Key{newPub, oldPub})
	require.NoError(t, err)
	require.Equal(t, "2026", after.KeyID())
	sealedAfter, err := after.Seal("second password")
	require.NoError(t, err)
	require.Equal(t, "2026", sealedAfter.KeyID)

	plain, err := opener.OpenAll(map[flows.SecretField]flows.SealedSecret{
		flows.SecretSASLPassword: sealedBefore, flows.SecretTLSKey: sealedAfter,
	})
	require.NoError(t, err)
	require.Equal(t, "first password", plain[flows.SecretSASLPassword])
	require.Equal(t, "second password", plain[flows.SecretTLSKey])

	// Once the old key is gone the error names it, and the field that needs it.
	opener, err = secrets.NewOpener([]secrets.Key{newPriv})
	require.NoError(t, err)
	_, err = opener.OpenAll(map[flows.SecretField]flows.SealedSecret{flows.SecretSASLPassword: sealedBefore})
	var unreadable *secrets.UnreadableError
	require.ErrorAs(t, err, &unreadable)
	require.Equal(t, "2025", unreadable.KeyID)
	require.Contains(t, err.Error(), "sasl.password")
}

func TestUnreadableValuesSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	pub, priv := newPair(t, "k1")
	_, otherPriv := newPair(t, "k1")
	sealer, err := secrets.NewSealer([]secrets.Key{pub})
	require.NoError(t, err)
	sealed, err := sealer.Seal("hunter2")
	require.NoError(t, err)

	damaged := flows.SealedSecret{KeyID: "k1", Box: bytes.Clone(sealed.Box)}
	damaged.Box[len(damaged.Box)-1] ^= 1

	for name, tc := range map[string]struct {
		keys   []secrets.Key
		sealed flows.SealedSecret
		says   string
	}{
		"no key at all":          {nil, sealed, "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE"},
		"another key of that id": {[]secrets.Key{otherPriv}, sealed, "damaged"},
		"damaged":                {[]secrets.Key{priv}, damaged, "damaged"},
		"too short":              {[]secrets.Key{priv}, flows.SealedSecret{KeyID: "k1", Box: []byte("x")}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opener, err := secrets.NewOpener(tc.keys)
			require.NoError(t, err)
			_, err = opener.Open(tc.sealed)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, `"k1"`)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestSealingWithoutAKeyNamesTheSetting(t *testing.T) {
	t.Parallel()
	sealer, err := secrets.LoadSealer("")
	require.NoError(t, err)
	_, err = sealer.Seal("hunter2")
	require.ErrorIs(t, err, secrets.ErrNoPublicKey)
	require.ErrorContains(t, err, "MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestKeyFileErrorsNameTheLineAndNeverQuoteIt(t *testing.T) {
	t.Parallel()
	good := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	short := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 31))
	for name, tc := range map[string]struct{ text, says string }{
		"empty":           {"# nothing\n\n", "no key"},
		"one word":        {"a " + good + "\n" + good, "line 2"},
		"three words":     {"a b " + good, "line 1"},
		"swapped":         {good + " a", "line 1"},
		"not base64":      {"a !!!" + good, "line 1"},
		"wrong length":    {"a " + short, "line 1"},
		"the other half":  {"a " + good + " # private key", "swapped"},
		"id stands twice": {"a " + good + "\na " + good, "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := secrets.ParseKeys(strings.NewReader(tc.text), secrets.Public)
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), good)
			require.NotContains(t, err.Error(), short)
		})
	}
}

func TestAMissingKeyFileIsAnErrorNamingTheSetting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent")
	_, err := secrets.LoadSealer(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, secrets.SettingPublicKeys)
	_, err = secrets.LoadOpener(path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, secrets.SettingPrivateKeys)
}

func TestAPrivateKeyFileOthersCanReadIsWarnedAbout(t *testing.T) {
	t.Parallel()
	_, priv := newPair(t, "")
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true} {
		var log bytes.Buffer
		_, err := secrets.LoadOpener(writeKeys(t, mode, priv), slog.New(slog.NewJSONHandler(&log, nil)))
		require.NoError(t, err)
		require.Equal(t, warned, strings.Contains(log.String(), "chmod 600"), "mode %v", mode)
	}
}

func TestKeysPrintTheirIDOnly(t *testing.T) {
	t.Parallel()
	_, priv := newPair(t, "k1")
	secret := strings.Fields(priv.Line())[1]
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("key", priv))
	for _, text := range []string{fmt.Sprint(priv), fmt.Sprintf("%+v", priv), fmt.Sprintf("%#v", priv), log.String()} {
		require.NotContains(t, text, secret)
		require.Contains(t, text, "k1")
	}
}

func TestAKeyIDMustBeOneWord(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"two words", "-x", "a/b", strings.Repeat("x", 65)} {
		_, _, err := secrets.NewKeyPair(id)
		require.ErrorContains(t, err, "key id")
	}
}

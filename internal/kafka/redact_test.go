package kafka

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
)

// echoing is a broker that refuses every login with a text that holds what it was sent, plain and encoded.
func echoing(t *testing.T, mechanism string) (address string, asked chan string) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "someone", "else"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	asked = make(chan string, 1000)
	fake.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{mechanism}
		return resp, nil, true
	})
	fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		sent := req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = new(fmt.Sprintf("denied: %s %q %x %s", sent, sent, sent, base64.StdEncoding.EncodeToString(sent)))
		asked <- string(sent)
		return resp, nil, true
	})
	return fake.ListenAddrs()[0], asked
}

func TestABrokerThatEchoesTheLoginPutsNoSecretIntoLogOrProblem(t *testing.T) {
	t.Parallel()
	const password = `mark"er-p@ss word`
	issuer := oauthtest.New(t, oauthtest.Options{})
	for mechanism, s := range map[string]Security{
		Plain:       {Protocol: SASLPlaintext, SASL: SASL{Mechanism: Plain, Username: "mirror", Password: password}},
		OAuthBearer: oauthSecurity(issuer),
	} {
		for _, handler := range []string{"json", "text"} {
			t.Run(mechanism+" "+handler, func(t *testing.T) {
				address, asked := echoing(t, mechanism)
				cluster := at(s, address)
				var out bytes.Buffer
				var h slog.Handler
				opts := &slog.HandlerOptions{Level: slog.LevelDebug}
				if handler == "json" {
					h = slog.NewJSONHandler(&lockedWriter{w: &out}, opts)
				} else {
					h = slog.NewTextHandler(&lockedWriter{w: &out}, opts)
				}
				client, err := NewClient(cluster, "test", slog.New(h), kgo.RetryTimeout(time.Second))
				require.NoError(t, err)
				err = client.Ping(t.Context())
				client.Close()
				require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
				secret := password
				if mechanism == OAuthBearer {
					_, secret, _ = strings.Cut(<-asked, "Bearer ")
					secret = strings.TrimRight(secret, "\x01")
				}
				clean := cluster.Redact(err)
				require.ErrorIs(t, clean, kerr.SaslAuthenticationFailed)
				p := Diagnose(t.Context(), cluster, err)
				require.NotNil(t, p)
				require.Equal(t, AuthFailed, p.Code)
				_, checked := Check(t.Context(), cluster)
				require.NotNil(t, checked)
				require.Contains(t, out.String(), "denied", "the log has the broker's text")
				require.Contains(t, out.String(), Redacted)
				for where, text := range map[string]string{
					"log": out.String(), "error": fmt.Sprintf("%v %+v %#v %s", clean, clean, clean, clean), "brief": Brief(err),
					"problem": fmt.Sprint(p, p.Message, p.Remedy, p.Err), "check": fmt.Sprint(checked, checked.Message, checked.Remedy, checked.Err),
					"classified": fmt.Sprint(cluster.Classify(err).Err),
				} {
					requireNoTrace(t, text, secret, where)
				}
			})
		}
	}
}

// requireNoTrace looks for a secret in the forms in which it may be quoted.
func requireNoTrace(t *testing.T, text, secret, where string) {
	t.Helper()
	quoted := fmt.Sprintf("%q", secret)
	for _, form := range []string{
		secret, quoted[1 : len(quoted)-1], url.QueryEscape(secret), hex.EncodeToString([]byte(secret)),
		base64.RawStdEncoding.EncodeToString([]byte(secret)), strings.Split(secret, " ")[0],
	} {
		require.NotContains(t, text, form, where)
	}
	// Base64 of something with the secret in it.
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '"' || r == '\n' || r == '\\' }) {
		for cut := range min(4, len(word)) {
			got, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(word[cut:], "="))
			require.NotContains(t, string(got), secret, where)
		}
	}
}

func TestSecretsAreRedactedWhileTheyAreInUseAndForAWhileAfter(t *testing.T) {
	t.Parallel()
	_, key := kafkatest.NewPKI(t).Issue(t, "mirror", kafkatest.ClientCert)
	c := NewCredentials(Security{
		TLS: TLS{Key: string(key)},
		SASL: SASL{
			Username: "mirror", Password: "first-password", ClientID: "client", ClientSecret: "client-secret",
			TokenEndpoint: "https://user:endpoint-password@login.example.net/token",
		},
	})
	c.secrets.handOut("header-part.payload-part.signature-part")
	for range keptTokens - 1 {
		c.secrets.handOut("header-part.payload-part.signature-part")
	}
	basic := base64.StdEncoding.EncodeToString([]byte("client:client-secret"))
	plain := base64.StdEncoding.EncodeToString([]byte("\x00mirror\x00first-password"))
	line := strings.Split(strings.TrimSpace(string(key)), "\n")[1]
	for _, secret := range []string{"first-password", "client-secret", "endpoint-password", "payload-part", "signature-part", line} {
		text := fmt.Sprintf("user mirror sent <%s> and %q", secret, secret)
		require.NotContains(t, c.Redact(text), secret)
		require.Contains(t, c.Redact(text), "user mirror sent <[redacted]> and")
	}
	require.NotContains(t, c.Redact("Basic "+basic), basic[12:20])
	require.NotContains(t, c.Redact(plain), plain[12:24])
	require.Equal(t, "nothing of ours", c.Redact("nothing of ours"))

	next := c.Get()
	for n := range keptSecurities {
		next.SASL.Password = fmt.Sprintf("password-%d", n)
		c.Set(next)
		require.Equal(t, Redacted+" "+Redacted, c.Redact("first-password "+next.SASL.Password))
	}
	next.SASL.Password = "last"
	c.Set(next)
	require.Equal(t, "first-password "+Redacted, c.Redact("first-password password-7"), "what is kept is bounded")

	next.SASL.Password = "ok"
	c.Set(next)
	require.Equal(t, "a token, [redacted]! [redacted]", c.Redact("a token, ok! ok"), "a short one stands alone")
	require.Equal(t, "x", (*Credentials)(nil).Redact("x"))
	require.Equal(t, "x", (&Credentials{}).Redact("x"))
}

func TestALoggerThatRedactsCoversMessagesAndEveryKindOfAttribute(t *testing.T) {
	t.Parallel()
	const marker = "marker-secret"
	r := Redactor{nil, NewCredentials(Security{SASL: SASL{Password: marker}})}
	type shape struct {
		Text string
		In   *[]string
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		log := r.Logger(slog.New(h))
		log.With(slog.String("with", marker)).WithGroup("g").Info("says "+marker,
			slog.String("text", marker), slog.Any("error", fmt.Errorf("wrapped: %w", errors.New(marker))), slog.Any("bytes", []byte(marker)),
			slog.Any("list", []string{"a", marker}), slog.Any("struct", shape{In: &[]string{marker}}), slog.Any("map", map[string]any{marker: 1}),
			slog.Group("group", slog.String("inner", marker)), slog.Any(strings.Clone(marker), 1), slog.Any("url", &url.URL{Host: marker}),
			slog.Any("kept", []string{"b"}), slog.Int("count", 7), slog.Any("none", nil))
	}
	require.NotContains(t, out.String(), marker)
	require.NotContains(t, out.String(), base64.StdEncoding.EncodeToString([]byte(marker)))
	require.Contains(t, out.String(), `"kept":["b"]`)
	require.Contains(t, out.String(), "count=7")
	require.Nil(t, r.Logger(nil))
	fine := errors.New("fine")
	require.Same(t, fine, r.Error(fine))
	require.NoError(t, r.Error(nil))
}

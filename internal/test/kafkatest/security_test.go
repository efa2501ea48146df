package kafkatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
)

func TestEveryListenerLetsTheRightClientInAndNoOther(t *testing.T) {
	t.Parallel()
	pki, issuer := NewPKI(t), oauthtest.New(t, oauthtest.Options{})
	stranger := NewPKI(t)
	strangersIssuer := oauthtest.New(t, oauthtest.Options{})
	for i, c := range StartAll(t, SecureOptions(V39, pki, issuer), SecureOptions(V43, pki, issuer)) {
		AddSCRAMUser(t, c, "later", "later-password")
		tlsOpt := kgo.DialTLSConfig(pki.ClientTLS(t, ""))
		token := func(s *oauthtest.Server, lifetime time.Duration) sasl.Mechanism {
			return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
				text, err := s.Token("mirror", lifetime)
				return oauth.Auth{Token: text}, err
			})
		}
		plainAuth := func(user, password string) kgo.Opt {
			return kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())
		}
		scram256 := func(user, password string) kgo.Opt {
			return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())
		}
		scram512 := func(user, password string) kgo.Opt {
			return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism())
		}
		cases := []struct {
			name     string
			listener string
			opts     []kgo.Opt
			refused  bool
		}{
			{"plaintext", ListenerPlaintext, nil, false},
			{"tls", ListenerTLS, []kgo.Opt{tlsOpt}, false},
			{"tls of another authority", ListenerTLS, []kgo.Opt{kgo.DialTLSConfig(stranger.ClientTLS(t, ""))}, true},
			{"mtls", ListenerMTLS, []kgo.Opt{kgo.DialTLSConfig(pki.ClientTLS(t, "mirror"))}, false},
			{"mtls without a certificate", ListenerMTLS, []kgo.Opt{tlsOpt}, true},
			{"plain", ListenerPlain, []kgo.Opt{plainAuth(UserName, UserPassword)}, false},
			{"plain over tls", ListenerPlainTLS, []kgo.Opt{tlsOpt, plainAuth(UserName, UserPassword)}, false},
			{"plain, wrong password", ListenerPlainTLS, []kgo.Opt{tlsOpt, plainAuth(UserName, "no")}, true},
			{"scram 256", ListenerSCRAM, []kgo.Opt{scram256(UserName, UserPassword)}, false},
			{"scram 512 over tls", ListenerSCRAMTLS, []kgo.Opt{tlsOpt, scram512(UserName, UserPassword)}, false},
			{"scram user added later", ListenerSCRAMTLS, []kgo.Opt{tlsOpt, scram256("later", "later-password")}, false},
			{"scram, wrong password", ListenerSCRAMTLS, []kgo.Opt{tlsOpt, scram512(UserName, "no")}, true},
			{"oauth", ListenerOAuth, []kgo.Opt{kgo.SASL(token(issuer, time.Hour))}, false},
			{"oauth over tls", ListenerOAuthTLS, []kgo.Opt{tlsOpt, kgo.SASL(token(issuer, time.Hour))}, false},
			{"oauth, another issuer", ListenerOAuthTLS, []kgo.Opt{tlsOpt, kgo.SASL(token(strangersIssuer, time.Hour))}, true},
			{"oauth, expired long ago", ListenerOAuth, []kgo.Opt{kgo.SASL(token(issuer, -time.Hour))}, true},
		}
		for _, tc := range cases {
			t.Run([]string{"3.9", "4.3"}[i]+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				opts := append([]kgo.Opt{kgo.SeedBrokers(c.Bootstraps(tc.listener)...), kgo.RequestRetries(0)}, tc.opts...)
				client, err := kgo.NewClient(opts...)
				require.NoError(t, err)
				defer client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err = client.Ping(ctx)
				if tc.refused {
					require.Error(t, err)
					require.False(t, errors.Is(err, context.DeadlineExceeded), "refused, not merely slow: %v", err)
					return
				}
				require.NoError(t, err)
			})
		}
	}
}

func TestListenersThatCannotWorkAreRefusedBeforeStart(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		listener kafkaproc.Listener
	}{
		{"tls without certificates", kafkaproc.Listener{Name: "A", Protocol: kafkaproc.SSL}},
		{"sasl without mechanisms", kafkaproc.Listener{Name: "A", Protocol: kafkaproc.SASLPlaintext}},
		{"mechanisms without sasl", kafkaproc.Listener{Name: "A", Mechanisms: []string{kafkaproc.MechanismPlain}}},
		{"oauth without issuer", kafkaproc.Listener{Name: "A", Protocol: kafkaproc.SASLPlaintext, Mechanisms: []string{kafkaproc.MechanismOAuthBearer}}},
		{"taken name", kafkaproc.Listener{Name: "INTERNAL"}},
		{"lower-case name", kafkaproc.Listener{Name: "a"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := start(t.Context(), Options{Listeners: []kafkaproc.Listener{tc.listener}})
			require.Error(t, err)
		})
	}
}

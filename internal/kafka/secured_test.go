package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// security returns the right settings for a listener of kafkatest.SecureOptions.
func security(t *testing.T, listener string, pki *kafkatest.PKI, issuer *oauthtest.Server) Security {
	t.Helper()
	ca := TLS{CA: string(pki.CA())}
	login := SASL{Username: kafkatest.UserName, Password: kafkatest.UserPassword}
	token := oauthSecurity(issuer).SASL
	with := func(m string) SASL { l := login; l.Mechanism = m; return l }
	switch listener {
	case kafkatest.ListenerPlaintext:
		return Security{}
	case kafkatest.ListenerTLS:
		return Security{Protocol: SSL, TLS: ca}
	case kafkatest.ListenerMTLS:
		cert, key := pki.Issue(t, "mirror", kafkatest.ClientCert)
		return Security{Protocol: SSL, TLS: TLS{CA: ca.CA, Cert: string(cert), Key: string(key)}}
	case kafkatest.ListenerPlain:
		return Security{Protocol: SASLPlaintext, SASL: with(Plain)}
	case kafkatest.ListenerPlainTLS:
		return Security{Protocol: SASLSSL, TLS: ca, SASL: with(Plain)}
	case kafkatest.ListenerSCRAM:
		return Security{Protocol: SASLPlaintext, SASL: with(ScramSHA256)}
	case kafkatest.ListenerSCRAMTLS:
		return Security{Protocol: SASLSSL, TLS: ca, SASL: with(ScramSHA512)}
	case kafkatest.ListenerOAuth:
		return Security{Protocol: SASLPlaintext, SASL: token}
	case kafkatest.ListenerOAuthTLS:
		return Security{Protocol: SASLSSL, TLS: ca, SASL: token}
	}
	t.Fatalf("no listener %q", listener)
	return Security{}
}

func TestSecuredClusters(t *testing.T) {
	t.Parallel()
	pki, issuer := kafkatest.NewPKI(t), oauthtest.New(t, oauthtest.Options{})
	lost := refused(t)
	older, newer := kafkatest.SecureOptions(kafkatest.V39, pki, issuer), kafkatest.SecureOptions(kafkatest.V43, pki, issuer)
	astray := kafkaproc.Listener{Name: "ASTRAY", Advertise: func(int, string) (string, error) { return lost, nil }}
	older.Listeners, newer.Listeners = append(older.Listeners, astray), append(newer.Listeners, astray)
	clusters := kafkatest.StartAll(t, older, newer)
	// In one test, so that the brokers are started once.
	for _, c := range clusters {
		t.Run(string(c.Version()), func(t *testing.T) {
			t.Run("every right login passes the check and carries records", func(t *testing.T) { checkRightLogins(t, c, pki, issuer) })
			t.Run("every wrong one is named", func(t *testing.T) { checkWrongLogins(t, c, pki, issuer) })
			t.Run("an advertised address that cannot be reached is named", func(t *testing.T) {
				address := c.Nodes()[0].Addr("ASTRAY")
				_, p := Check(t.Context(), at(Security{}, address))
				require.NotNil(t, p)
				require.Equal(t, Unreachable, p.Code)
				require.Equal(t, StepAdvertised, p.Step)
				require.Equal(t, lost, p.Address)
				require.Contains(t, p.Message, address)
				require.Contains(t, p.Remedy, "advertised.listeners")
			})
			t.Run("a replaced password is used by the next connection", func(t *testing.T) { checkRotation(t, c, pki, issuer) })
			t.Run("mechanism and certificates can be replaced under a live client", func(t *testing.T) { checkReplacedMechanism(t, c, pki, issuer) })
			t.Run("an outage of the token endpoint shows and ends", func(t *testing.T) { checkTokenOutage(t, c) })
		})
	}
}

func checkRightLogins(t *testing.T, c *kafkatest.Cluster, pki *kafkatest.PKI, issuer *oauthtest.Server) {
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, c, topic, 1, nil)
	for _, l := range kafkatest.SecureListeners() {
		s := security(t, l.Name, pki, issuer)
		cluster := at(s, c.Bootstraps(l.Name)...)
		info, p := Check(t.Context(), cluster)
		require.Nil(t, p, "%s: %v", l.Name, p)
		require.Equal(t, Info{ClusterID: c.ClusterID(), Version: string(c.Version()), Brokers: 1}, info)
		client, err := NewClient(cluster, "test-"+l.Name, nil, kgo.DefaultProduceTopic(topic))
		require.NoError(t, err)
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord(l.Name)).FirstErr(), l.Name)
		client.Close()
	}
}

func checkWrongLogins(t *testing.T, c *kafkatest.Cluster, pki *kafkatest.PKI, issuer *oauthtest.Server) {
	right := func(l string) Security { return security(t, l, pki, issuer) }
	change := func(l string, f func(*Security)) Security { s := right(l); f(&s); return s }
	stranger := kafkatest.NewPKI(t)
	otherIssuer := oauthtest.New(t, oauthtest.Options{})
	otherCert, otherKey := stranger.Issue(t, "mirror", kafkatest.ClientCert)
	cases := []struct {
		name     string
		listener string
		security Security
		code     ProblemCode
		step     Step
		says     string
	}{
		{"wrong password, plain", kafkatest.ListenerPlain, change(kafkatest.ListenerPlain, func(s *Security) { s.SASL.Password = "hunter2" }), AuthFailed, StepAuthenticate, "refused user name or password (PLAIN)"},
		{"wrong password, scram", kafkatest.ListenerSCRAMTLS, change(kafkatest.ListenerSCRAMTLS, func(s *Security) { s.SASL.Password = "hunter2" }), AuthFailed, StepAuthenticate, "refused user name or password (SCRAM-SHA-512)"},
		{"unknown user", kafkatest.ListenerSCRAM, change(kafkatest.ListenerSCRAM, func(s *Security) { s.SASL.Username = "nobody" }), AuthFailed, StepAuthenticate, "refused user name or password"},
		{"wrong mechanism", kafkatest.ListenerSCRAM, change(kafkatest.ListenerSCRAM, func(s *Security) { s.SASL.Mechanism = Plain }), AuthFailed, StepAuthenticate, "it offers SCRAM-SHA-"},
		{"token of another issuer", kafkatest.ListenerOAuthTLS, Security{Protocol: SASLSSL, TLS: TLS{CA: string(pki.CA())}, SASL: oauthSecurity(otherIssuer).SASL}, AuthFailed, StepAuthenticate, "refused the token"},
		{"wrong client secret", kafkatest.ListenerOAuth, change(kafkatest.ListenerOAuth, func(s *Security) { s.SASL.ClientSecret = "hunter2" }), AuthFailed, StepAuthenticate, "token endpoint"},
		{"no login where one is required", kafkatest.ListenerPlain, Security{}, AuthFailed, StepAuthenticate, "requires a login"},
		{"no login over tls where one is required", kafkatest.ListenerSCRAMTLS, right(kafkatest.ListenerTLS), AuthFailed, StepAuthenticate, "requires a login"},
		{"login where none is expected", kafkatest.ListenerPlaintext, right(kafkatest.ListenerPlain), AuthFailed, StepAuthenticate, "does not expect a login"},
		{"plaintext to a tls port", kafkatest.ListenerTLS, Security{}, TLSFailed, StepTLS, "expects TLS"},
		{"tls to a plaintext port", kafkatest.ListenerPlaintext, right(kafkatest.ListenerTLS), TLSFailed, StepTLS, "Kafka listener without TLS"},
		{"unknown authority", kafkatest.ListenerTLS, Security{Protocol: SSL, TLS: TLS{CA: string(stranger.CA())}}, TLSFailed, StepTLS, "authority that is not trusted"},
		{"name not in certificate", kafkatest.ListenerTLS, Security{Protocol: SSL, TLS: TLS{CA: string(pki.CA()), ServerName: "kafka.example.net"}}, TLSFailed, StepTLS, "not made out for kafka.example.net"},
		{"no client certificate", kafkatest.ListenerMTLS, right(kafkatest.ListenerTLS), TLSFailed, StepTLS, "asks for a client certificate"},
		{"client certificate of another authority", kafkatest.ListenerMTLS, change(kafkatest.ListenerMTLS, func(s *Security) { s.TLS.Cert, s.TLS.Key = string(otherCert), string(otherKey) }), TLSFailed, StepTLS, "refused the client certificate"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			address := c.Bootstraps(tc.listener)[0]
			var log bytes.Buffer
			_, p := Check(t.Context(), at(tc.security, address))
			require.NotNil(t, p)
			require.Equal(t, tc.code, p.Code, p.Message)
			require.Equal(t, tc.step, p.Step, p.Message)
			require.Contains(t, p.Message, tc.says)
			require.NotEmpty(t, p.Remedy)

			// What a live client sees leads to the same code, and secrets stay out of its log.
			cluster := at(tc.security, address)
			client, err := NewClient(cluster, "test", slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, &slog.HandlerOptions{Level: slog.LevelDebug})), kgo.RetryTimeout(time.Second))
			require.NoError(t, err)
			err = client.Ping(t.Context())
			client.Close()
			require.Error(t, err)
			diagnosed := Diagnose(t.Context(), cluster, err)
			require.NotNil(t, diagnosed)
			require.Equal(t, tc.code, diagnosed.Code)
			require.NotContains(t, log.String()+fmt.Sprint(err, p.Err, p.Message, p.Remedy), "hunter2")
		})
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// B86: the user's password changes on the cluster; a client made before goes on with the new one.
func checkRotation(t *testing.T, c *kafkatest.Cluster, pki *kafkatest.PKI, issuer *oauthtest.Server) {
	user := "rotating"
	kafkatest.AddSCRAMUser(t, c, user, "old-password")
	s := security(t, kafkatest.ListenerSCRAMTLS, pki, issuer)
	s.SASL.Username, s.SASL.Password = user, "old-password"
	cluster := at(s, c.Bootstraps(kafkatest.ListenerSCRAMTLS)...)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, c, topic, 1, nil)
	client, err := NewClient(cluster, "rotating", nil, kgo.DefaultProduceTopic(topic), kgo.ConnIdleTimeout(200*time.Millisecond), kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("before")).FirstErr())

	kafkatest.AddSCRAMUser(t, c, user, "new-password")
	wait.For(t, 30*time.Second, "the old password to be refused", func() error {
		if _, p := Check(t.Context(), cluster); p == nil {
			return fmt.Errorf("the check still passes")
		}
		return nil
	})
	wait.For(t, 30*time.Second, "the client's new connections to be refused", func() error {
		if p := cluster.Classify(client.Ping(t.Context())); p == nil || p.Code != AuthFailed {
			return errors.New(fmt.Sprint("classified as ", p))
		}
		return nil
	})
	s.SASL.Password = "new-password"
	cluster.Credentials.Set(s)
	_, p := Check(t.Context(), cluster)
	require.Nil(t, p)
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("after")).FirstErr(), "the same client goes on")
}

// The mechanism, the authority and the client certificate are read anew, too.
func checkReplacedMechanism(t *testing.T, c *kafkatest.Cluster, pki *kafkatest.PKI, issuer *oauthtest.Server) {
	s := security(t, kafkatest.ListenerSCRAMTLS, pki, issuer)
	s.TLS.CA = string(kafkatest.NewPKI(t).CA())
	cluster := at(s, c.Bootstraps(kafkatest.ListenerSCRAMTLS)...)
	client, err := NewClient(cluster, "test", nil, kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer client.Close()
	require.Equal(t, TLSFailed, cluster.Classify(client.Ping(t.Context())).Code)
	s.TLS.CA = string(pki.CA()) + s.TLS.CA
	s.SASL.Mechanism = ScramSHA256
	require.False(t, s.NeedsNewClient(security(t, kafkatest.ListenerPlain, pki, issuer)))
	require.True(t, s.NeedsNewClient(Security{Protocol: SSL}))
	cluster.Credentials.Set(s)
	require.NoError(t, client.Ping(t.Context()))

	m := at(security(t, kafkatest.ListenerTLS, pki, issuer), c.Bootstraps(kafkatest.ListenerMTLS)...)
	mutual, err := NewClient(m, "test", nil, kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer mutual.Close()
	require.Error(t, mutual.Ping(t.Context()))
	m.Credentials.Set(security(t, kafkatest.ListenerMTLS, pki, issuer))
	require.NoError(t, mutual.Ping(t.Context()))
}

// B87: tokens of a second, an endpoint that is away, and then back.
func checkTokenOutage(t *testing.T, c *kafkatest.Cluster) {
	// Its own server would not be known to the brokers, so their issuer's is not failed: other subtests use it.
	issuer := oauthtest.New(t, oauthtest.Options{})
	s := oauthSecurity(issuer)
	cluster := at(s, c.Bootstraps(kafkatest.ListenerOAuth)...)
	issuer.Fail(http.StatusServiceUnavailable)
	client, err := NewClient(cluster, "test", nil, kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer client.Close()
	p := cluster.Classify(client.Ping(t.Context()))
	require.NotNil(t, p)
	require.Equal(t, AuthFailed, p.Code)
	require.Contains(t, p.Message, "503")
	issuer.Fail(0)
	wait.For(t, 10*time.Second, "the broker to see a token again", func() error {
		p := cluster.Classify(client.Ping(t.Context()))
		// The brokers do not trust this issuer: their refusal shows that a token was fetched and sent.
		if p == nil || p.Message != "The source cluster refused the token (OAUTHBEARER)." {
			return errors.New(fmt.Sprint(p))
		}
		return nil
	})
}

// B87: tokens that end while a client lives, with re-authentication on the broker.
func TestB87AClientOutlivesItsTokens(t *testing.T) {
	t.Parallel()
	pki, issuer := kafkatest.NewPKI(t), oauthtest.New(t, oauthtest.Options{Lifetime: 5 * time.Second})
	opts := kafkatest.SecureOptions(kafkatest.V43, pki, issuer, kafkatest.ListenerOAuthTLS)
	opts.Listeners[0].Props = map[string]string{"oauthbearer.connections.max.reauth.ms": "3600000"}
	c := kafkatest.Start(t, opts)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, c, topic, 1, nil)
	cluster := at(security(t, kafkatest.ListenerOAuthTLS, pki, issuer), c.Bootstraps(kafkatest.ListenerOAuthTLS)...)
	client, err := NewClient(cluster, "test", nil, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	deadline := time.Now().Add(10 * time.Second)
	sent := 0
	for time.Now().Before(deadline) {
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr())
		sent++
	}
	require.GreaterOrEqual(t, issuer.Granted(), 3)
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	end, ok := ends.Lookup(topic, 0)
	require.True(t, ok)
	require.EqualValues(t, sent, end.Offset, "no record is lost or doubled by re-authentication")
}

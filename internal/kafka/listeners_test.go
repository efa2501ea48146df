package kafka

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// at is a source cluster at the addresses.
func at(s Security, addresses ...string) Cluster {
	return Cluster{Side: "source", BootstrapServers: addresses, Credentials: NewCredentials(s)}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve answers each connection with f until the test ends.
func serve(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// silent accepts connections and never says anything.
func silent(t *testing.T) string {
	t.Helper()
	return listen(t).Addr().String()
}

func refused(t *testing.T) string {
	t.Helper()
	l := listen(t)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func httpServer(t *testing.T, pair *tls.Certificate) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if pair != nil {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func serverPair(t *testing.T, pki *kafkatest.PKI) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(pki.Issue(t, "localhost", kafkatest.ServerCert))
	require.NoError(t, err)
	return &pair
}

// foreignNamePair is a certificate that names no address of this machine.
func foreignNamePair(t *testing.T, pki *kafkatest.PKI) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(pki.Issue(t, "kafka.example.net", kafkatest.ClientCert))
	require.NoError(t, err)
	return &pair
}

func TestB90EachKindOfWrongListenerHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	pki, stranger := kafkatest.NewPKI(t), kafkatest.NewPKI(t)
	trusted := TLS{CA: string(pki.CA())}
	cases := []struct {
		name     string
		address  string
		security Security
		code     ProblemCode
		step     Step
		says     string
	}{
		{"nothing listens", refused(t), Security{}, Unreachable, StepConnect, "refused the connection"},
		{"unknown name", "no-such-host.invalid:9092", Security{}, Unreachable, StepResolve, "cannot be found"},
		{"silent", silent(t), Security{}, Unreachable, StepAPIVersions, "gave no answer in time"},
		{"closes at once", serve(t, func(net.Conn) {}), Security{}, Unreachable, StepAPIVersions, "closed the connection"},
		{"junk", serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n") }), Security{}, NotKafka, StepAPIVersions, "does not speak Kafka"},
		{"http", httpServer(t, nil), Security{}, NotKafka, StepAPIVersions, "HTTP server"},
		{"http asked for tls", httpServer(t, nil), Security{Protocol: SSL, TLS: trusted}, NotKafka, StepTLS, "HTTP server"},
		{"https asked for kafka over tls", httpServer(t, serverPair(t, pki)), Security{Protocol: SSL, TLS: trusted}, NotKafka, StepAPIVersions, "HTTP server"},
		{"tls asked in plaintext", httpServer(t, serverPair(t, pki)), Security{}, TLSFailed, StepTLS, "expects TLS"},
		{"silent, asked for tls", silent(t), Security{Protocol: SSL}, TLSFailed, StepTLS, "did not answer the TLS handshake"},
		{"unknown authority", httpServer(t, serverPair(t, stranger)), Security{Protocol: SSL, TLS: trusted}, TLSFailed, StepTLS, "authority that is not trusted"},
		{"name not in certificate", httpServer(t, foreignNamePair(t, pki)), Security{Protocol: SSL, TLS: trusted}, TLSFailed, StepTLS, "not made out for 127.0.0.1"},
	}
	messages := map[string]string{}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			_, p := Check(t.Context(), at(tc.security, tc.address))
			require.NotNil(t, p)
			require.Less(t, time.Since(began), 9*time.Second)
			require.Equal(t, tc.code, p.Code, p.Message)
			require.Equal(t, tc.step, p.Step, p.Message)
			require.Equal(t, tc.address, p.Address)
			require.Contains(t, p.Message, tc.says)
			require.Contains(t, p.Message, "source cluster at "+tc.address)
			require.NotEmpty(t, p.Remedy)
			messages[p.Message] = tc.name
		})
	}
	require.Len(t, messages, len(cases), "no two cases share a message")
}

func TestCheckTakesTheBootstrapServerThatWorks(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID("fake"))
	require.NoError(t, err)
	defer fake.Close()
	info, p := Check(t.Context(), at(Security{}, refused(t), silent(t), fake.ListenAddrs()[1]))
	require.Nil(t, p)
	require.Equal(t, "fake", info.ClusterID)
	require.Equal(t, 3, info.Brokers)
}

func TestCheckReportsTheServerThatCameFurthest(t *testing.T) {
	t.Parallel()
	far := serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example.net ESMTP ready\r\n") })
	_, p := Check(t.Context(), at(Security{}, refused(t), far))
	require.NotNil(t, p)
	require.Equal(t, far, p.Address)
	require.Equal(t, NotKafka, p.Code)
}

func TestCheckNamesAnAdvertisedAddressThatCannotBeReached(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(2))
	require.NoError(t, err)
	defer fake.Close()
	addresses := fake.ListenAddrs()
	require.NoError(t, fake.RemoveNode(1))
	_, p := Check(t.Context(), at(Security{}, addresses[0]))
	require.Nil(t, p, "a broker that is gone from the metadata is not missed")

	lost := refused(t)
	p = at(Security{}, addresses[0]).checkAdvertised(t.Context(), Security{}, found{address: addresses[0], brokers: []string{addresses[0], lost}})
	require.NotNil(t, p)
	require.Equal(t, StepAdvertised, p.Step)
	require.Equal(t, Unreachable, p.Code)
	require.Contains(t, p.Message, "bootstrap server "+addresses[0]+" works")
	require.Equal(t, lost, p.Address)
	require.Contains(t, p.Message, lost)
}

func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, p := Check(ctx, at(Security{}, silent(t)))
	require.NotNil(t, p)
	require.Less(t, time.Since(began), time.Second)
}

func TestSettingsThatCannotWorkAreProblemsBeforeAnythingIsDialled(t *testing.T) {
	t.Parallel()
	pki := kafkatest.NewPKI(t)
	cert, key := pki.Issue(t, "a", kafkatest.ClientCert)
	_, otherKey := pki.Issue(t, "b", kafkatest.ClientCert)
	secret := "s3cret-key-material"
	cases := []struct {
		name      string
		addresses []string
		security  Security
		code      ProblemCode
		says      string
	}{
		{"no servers", nil, Security{}, Unreachable, "no bootstrap servers"},
		{"no port", []string{"broker"}, Security{}, Unreachable, `"broker"`},
		{"protocol", []string{"a:1"}, Security{Protocol: "TLS"}, NotKafka, `"TLS"`},
		{"ca", []string{"a:1"}, Security{Protocol: SSL, TLS: TLS{CA: secret}}, TLSFailed, "security.tls.ca"},
		{"cert without key", []string{"a:1"}, Security{Protocol: SSL, TLS: TLS{Cert: string(cert)}}, TLSFailed, "without security.tls.key"},
		{"key without cert", []string{"a:1"}, Security{Protocol: SSL, TLS: TLS{Key: string(key)}}, TLSFailed, "without security.tls.cert"},
		{"pair that does not match", []string{"a:1"}, Security{Protocol: SSL, TLS: TLS{Cert: string(cert), Key: string(otherKey)}}, TLSFailed, "belong together"},
		{"key that does not parse", []string{"a:1"}, Security{Protocol: SSL, TLS: TLS{Cert: string(cert), Key: secret}}, TLSFailed, "do not parse"},
		{"mechanism", []string{"a:1"}, Security{Protocol: SASLSSL, SASL: SASL{Mechanism: "GSSAPI"}}, AuthFailed, "GSSAPI"},
		{"password", []string{"a:1"}, Security{Protocol: SASLSSL, SASL: SASL{Mechanism: Plain, Username: "u"}}, AuthFailed, "security.sasl.password"},
		{"endpoint", []string{"a:1"}, Security{Protocol: SASLSSL, SASL: SASL{Mechanism: OAuthBearer}}, AuthFailed, "security.sasl.tokenEndpoint"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := at(tc.security, tc.addresses...)
			_, p := Check(t.Context(), c)
			require.NotNil(t, p)
			require.Equal(t, tc.code, p.Code)
			require.Contains(t, p.Message, tc.says)
			require.NotContains(t, p.Error()+p.Remedy, secret)
			_, err := NewClient(c, "id", nil)
			require.ErrorContains(t, err, tc.says)
		})
	}
	require.Nil(t, at(Security{Protocol: SSL, TLS: TLS{CA: string(pki.CA()), Cert: string(cert), Key: string(key)}}, "a:1").validate())
}

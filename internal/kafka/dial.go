package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// Bounds of the steps of one connection.
const (
	connectTimeout = 5 * time.Second
	tlsTimeout     = 5 * time.Second
)

// peer is what a message about a connection needs to know.
type peer struct {
	side       string // source, target or ""
	address    string
	protocol   string
	mechanism  string
	clientCert bool
	customCA   bool
	serverName string
}

func (c Cluster) peer(address string, s Security) peer {
	return peer{
		side: c.Side, address: address, protocol: s.Protocol, mechanism: s.SASL.Mechanism,
		clientCert: s.TLS.Cert != "", customCA: s.TLS.CA != "", serverName: s.TLS.ServerName,
	}
}

// stepError is a failure whose step is known. Clients carry it through: it is
// what Classify looks for first.
type stepError struct {
	step Step
	peer peer
	err  error
}

func (e *stepError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.step, e.peer.address, e.err)
}

func (e *stepError) Unwrap() error { return e.err }

// dial opens a connection to address with the current credentials.
func (c Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.open(ctx, network, address, c.Credentials.Get(), connectTimeout, tlsTimeout)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// open resolves, connects and, where the protocol says so, shakes hands.
func (c Cluster) open(ctx context.Context, network, address string, s Security, connect, handshake time.Duration) (net.Conn, *stepError) {
	p := c.peer(address, s)
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &stepError{StepResolve, p, err}
	}
	dialer := net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		step := StepConnect
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			step = StepResolve
		}
		return nil, &stepError{step, p, err}
	}
	if c.MayWrite != nil {
		raw = gatedConn{raw, c.MayWrite}
	}
	if !s.UsesTLS() {
		return raw, nil
	}
	cfg, err := s.tlsConfig(host)
	if err != nil {
		_ = raw.Close()
		return nil, &stepError{StepTLS, p, err}
	}
	conn := tls.Client(raw, cfg)
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &stepError{StepTLS, p, err}
	}
	return conn, nil
}

// ErrMayNotWrite is the error of a connection on which nothing may be written any more (Cluster.MayWrite).
var ErrMayNotWrite = errors.New("kafka: nothing may be written to the cluster any more")

// gatedConn asks before each write. Asking before a request is not enough: it may wait behind others, or for a connection,
// while the whole process stands still.
type gatedConn struct {
	net.Conn
	may func() bool
}

// Write implements net.Conn.
func (c gatedConn) Write(b []byte) (int, error) {
	if !c.may() {
		return 0, ErrMayNotWrite
	}
	return c.Conn.Write(b)
}

// WriteBuffers writes pieces as one: the gate is asked once, and on a socket it is one vectored write.
func (c gatedConn) WriteBuffers(v *net.Buffers) (int64, error) {
	if !c.may() {
		return 0, ErrMayNotWrite
	}
	return v.WriteTo(c.Conn)
}

// NetConn is the connection behind the gate, as that of a TLS connection is the one below it: for what must reach the
// socket, and writes nothing.
func (c gatedConn) NetConn() net.Conn { return c.Conn }

// errPEM is wrapped by errors about certificates and keys of the configuration.
var errPEM = errors.New("not usable PEM")

// tlsConfig makes a configuration for one connection, so that replaced
// certificates count from the next connection on. host is the name that the
// server's certificate must carry unless ServerName says otherwise.
func (s Security) tlsConfig(host string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if s.TLS.ServerName != "" {
		cfg.ServerName = s.TLS.ServerName
	}
	if s.TLS.CA != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(s.TLS.CA)) {
			return nil, fmt.Errorf("security.tls.ca holds no certificate: %w", errPEM)
		}
	}
	switch {
	case s.TLS.Cert == "" && s.TLS.Key == "":
	case s.TLS.Cert == "":
		return nil, fmt.Errorf("security.tls.key is given without security.tls.cert: %w", errPEM)
	case s.TLS.Key == "":
		return nil, fmt.Errorf("security.tls.cert is given without security.tls.key: %w", errPEM)
	default:
		pair, err := tls.X509KeyPair([]byte(s.TLS.Cert), []byte(s.TLS.Key))
		if err != nil {
			// The parser's text may quote what it was given, a key among others.
			return nil, fmt.Errorf("security.tls.cert and security.tls.key do not parse or do not belong together: %w", errPEM)
		}
		// Sent whenever the server asks, even if its list of authorities does not name the issuer: the server then
		// says what it dislikes, instead of missing a certificate that we have.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg, nil
}

package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// PKI is a certificate authority made by the test.
type PKI struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// CertUse says what a certificate is for.
type CertUse int

// The uses of Issue.
const (
	ServerCert CertUse = iota // for 127.0.0.1, ::1 and localhost
	ClientCert
)

// NewPKI makes an authority with a new key.
func NewPKI(tb testing.TB) *PKI {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mirrorflow test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(tb, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	return &PKI{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// CA is the authority's certificate in PEM.
func (p *PKI) CA() []byte { return p.pem }

// Issue returns a certificate for the common name and its private key (PKCS#8), both in PEM, valid for a day.
func (p *PKI) Issue(tb testing.TB, commonName string, use CertUse) (certPEM, keyPEM []byte) {
	tb.Helper()
	certPEM, keyPEM, err := p.issue(commonName, use)
	require.NoError(tb, err)
	return certPEM, keyPEM
}

func (p *PKI) issue(commonName string, use CertUse) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if use == ServerCert {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames = []string{"localhost"}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, key.Public(), p.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// ClientTLS is a client's TLS configuration that trusts the authority, with a client certificate for commonName unless
// that is empty.
func (p *PKI) ClientTLS(tb testing.TB, commonName string) *tls.Config {
	tb.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if commonName != "" {
		pair, err := tls.X509KeyPair(p.Issue(tb, commonName, ClientCert))
		require.NoError(tb, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// brokerFiles writes the PEM files of the brokers' TLS listeners.
func (p *PKI) brokerFiles(dir string) (*kafkaproc.TLS, error) {
	cert, key, err := p.issue("localhost", ServerCert)
	if err != nil {
		return nil, fmt.Errorf("issue the brokers' certificate: %w", err)
	}
	files := &kafkaproc.TLS{KeyStoreFile: filepath.Join(dir, "broker.pem"), TrustStoreFile: filepath.Join(dir, "ca.pem")}
	if err := os.WriteFile(files.KeyStoreFile, append(key, cert...), 0o600); err != nil {
		return nil, fmt.Errorf("write the brokers' certificate: %w", err)
	}
	if err := os.WriteFile(files.TrustStoreFile, p.pem, 0o600); err != nil {
		return nil, fmt.Errorf("write the brokers' trust store: %w", err)
	}
	return files, nil
}

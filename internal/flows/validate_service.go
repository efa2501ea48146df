package flows

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// What a service may hold.
const (
	maxDescription = 1024
	maxAlias       = 64
	maxBootstrap   = 100
	maxPEM         = 256 << 10
	maxCredential  = 4096
	maxSecret      = 16 << 10
)

// normaliseService fills in what may be left out.
func normaliseService(in ServiceInput) ServiceInput {
	s := &in.Security
	if in.Engine == EngineKafka && s.Protocol == "" && s.TLS == nil && s.SASL == nil {
		s.Protocol = "PLAINTEXT"
	}
	if s.TLS != nil && *s.TLS == (TLSSpec{}) && strings.HasSuffix(s.Protocol, "SSL") {
		s.TLS = nil // the defaults of the protocol, written out
	}
	if in.Engine == EngineKafka && in.BootstrapServers == nil {
		in.BootstrapServers = []string{}
	}
	return in
}

// validateService collects everything wrong with in. stored tells which secrets are kept already.
func validateService(in ServiceInput, stored map[SecretField]SealedSecret) fieldErrors {
	var f fieldErrors
	f.text("/description", in.Description, maxDescription)
	switch in.Engine {
	case EngineKafka:
		validateKafkaService(&f, in, stored)
	case EngineKafkaMirrorMaker:
		validateMirrorMaker(&f, in)
	default:
		f.addf("/engine", "must be one of %s, %s", EngineKafka, EngineKafkaMirrorMaker)
	}
	return f
}

func validateMirrorMaker(f *fieldErrors, in ServiceInput) {
	const only = "is for services with engine kafka only"
	if in.Alias != nil {
		f.addf("/alias", only)
	}
	if len(in.BootstrapServers) > 0 {
		f.addf("/bootstrapServers", only)
	}
	if in.Security.Protocol != "" || in.Security.TLS != nil || in.Security.SASL != nil || len(in.Secrets) > 0 {
		f.addf("/security", only)
	}
	f.line("/plan", in.Plan, 128)
	f.line("/version", in.Version, 128)
	if in.NodesPattern != nil {
		var o map[string]any
		if len(in.NodesPattern) > 16<<10 || json.Unmarshal(in.NodesPattern, &o) != nil || o == nil {
			f.addf("/nodesPattern", "must be an object of at most 16 KiB")
		} else if strings.Contains(string(in.NodesPattern), `\u0000`) {
			f.addf("/nodesPattern", "must not contain control characters")
		}
	}
}

func validateKafkaService(f *fieldErrors, in ServiceInput, stored map[SecretField]SealedSecret) {
	const only = "is for services with engine kafkaMirrorMaker only"
	if in.Plan != "" {
		f.addf("/plan", only)
	}
	if in.Version != "" {
		f.addf("/version", only)
	}
	if in.NodesPattern != nil {
		f.addf("/nodesPattern", only)
	}
	if in.Alias != nil {
		validateAlias(f, *in.Alias)
	}
	switch n := len(in.BootstrapServers); {
	case n == 0:
		f.addf("/bootstrapServers", "must name at least one broker as host:port")
	case n > maxBootstrap:
		f.addf("/bootstrapServers", "must have at most %d entries", maxBootstrap)
	default:
		for i, s := range in.BootstrapServers {
			if msg := checkAddress(s); msg != "" {
				f.addf("/bootstrapServers/"+strconv.Itoa(i), "%s", msg)
			}
		}
	}
	validateSecurity(f, in.Security, in.Secrets, stored)
}

func validateAlias(f *fieldErrors, alias string) {
	switch {
	case alias == "":
		f.addf("/alias", "must not be empty; leave it out to have one made")
	case len(alias) > maxAlias:
		f.addf("/alias", "must be at most %d characters long", maxAlias)
	case !legalTopicChars(alias):
		f.addf("/alias", "may contain letters, digits, '.', '_' and '-' only, since it becomes part of topic names")
	}
}

// checkAddress answers what is wrong with a host:port, "" when nothing is.
func checkAddress(s string) string {
	if strings.Contains(s, "://") {
		return "must be host:port without a scheme"
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "must be host:port (an IPv6 address in brackets)"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "must have a port from 1 to 65535"
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	if host == "" || len(host) > 253 || strings.Contains(host, "..") || host[0] == '.' || host[0] == '-' ||
		strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
		}) {
		return "must have a host name or an IP address before the port"
	}
	return ""
}

// secretState tells whether a secret will be there after the change.
func secretState(field SecretField, change SecretChange, stored map[SecretField]SealedSecret) bool {
	if v, ok := change[field]; ok {
		return v != nil
	}
	_, ok := stored[field]
	return ok
}

func validateSecurity(f *fieldErrors, s Security, change SecretChange, stored map[SecretField]SealedSecret) {
	for field, v := range change {
		switch field {
		case SecretTLSKey, SecretSASLPassword, SecretClientSecret:
		default:
			f.addf("/security", "has no secret %q", string(field))
			continue
		}
		if v == nil {
			continue
		}
		pointer := secretPointer(field)
		switch {
		case *v == "":
			f.addf(pointer, "must not be empty; null removes what is stored")
		case len(*v) > maxSecret:
			f.addf(pointer, "must be at most %d bytes long", maxSecret)
		case strings.ContainsRune(*v, 0):
			f.addf(pointer, "must not contain NUL")
		}
	}
	has := func(field SecretField) bool { return secretState(field, change, stored) }
	if s.Protocol == "" {
		f.addf("/security/protocol", "is required beside tls or sasl")
	} else if !f.oneOf("/security/protocol", s.Protocol, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") {
		return
	}
	withTLS := s.Protocol == "SSL" || s.Protocol == "SASL_SSL"
	withSASL := strings.HasPrefix(s.Protocol, "SASL_")
	if s.Protocol != "" && !withTLS && (s.TLS != nil || has(SecretTLSKey)) {
		f.addf("/security/tls", "needs protocol SSL or SASL_SSL, not %s", s.Protocol)
	} else {
		validateTLS(f, s.TLS, change, has(SecretTLSKey))
	}
	switch {
	case withSASL && s.SASL == nil:
		f.addf("/security/sasl", "is required with protocol %s", s.Protocol)
	case s.Protocol != "" && !withSASL && (s.SASL != nil || has(SecretSASLPassword) || has(SecretClientSecret)):
		f.addf("/security/sasl", "needs protocol SASL_PLAINTEXT or SASL_SSL, not %s", s.Protocol)
	case s.SASL != nil:
		validateSASL(f, *s.SASL, has)
	}
}

func validateTLS(f *fieldErrors, t *TLSSpec, change SecretChange, hasKey bool) {
	if t == nil {
		if hasKey {
			f.addf("/security/tls/cert", "is required beside key")
		}
		return
	}
	if t.CA != "" {
		if msg := checkCertificates(t.CA); msg != "" {
			f.addf("/security/tls/ca", "%s", msg)
		}
	}
	certOK := false
	if t.Cert != "" {
		if msg := checkCertificates(t.Cert); msg != "" {
			f.addf("/security/tls/cert", "%s", msg)
		} else {
			certOK = true
		}
	}
	if msg := checkServerName(t.ServerName); msg != "" {
		f.addf("/security/tls/serverName", "%s", msg)
	}
	switch {
	case t.Cert != "" && !hasKey:
		f.addf("/security/tls/key", "is required beside cert")
	case t.Cert == "" && hasKey:
		f.addf("/security/tls/cert", "is required beside key")
	}
	if key := change[SecretTLSKey]; key != nil && *key != "" {
		if msg := checkKey(*key); msg != "" {
			f.addf("/security/tls/key", "%s", msg)
		} else if certOK {
			if _, err := tls.X509KeyPair([]byte(t.Cert), []byte(*key)); err != nil {
				// The cause may quote nothing of the key, but the sentence needs nothing more either.
				f.addf("/security/tls/key", "does not belong to cert")
			}
		}
	}
}

func checkServerName(name string) string {
	if name == "" {
		return ""
	}
	if len(name) > 253 || strings.ContainsAny(name, " \t\r\n/:\x00") {
		return "must be a host name or an IP address without a port"
	}
	return ""
}

func checkCertificates(text string) string {
	if len(text) > maxPEM {
		return fmt.Sprintf("must be at most %d bytes long", maxPEM)
	}
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return "must contain CERTIFICATE blocks only, found " + strconv.Quote(block.Type)
		}
		n++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Sprintf("certificate %d cannot be read", n)
		}
	}
	if n == 0 {
		return "must be one or more certificates in PEM"
	}
	if strings.TrimSpace(string(rest)) != "" {
		return fmt.Sprintf("has something after certificate %d that is not PEM", n)
	}
	return ""
}

func checkKey(text string) string {
	block, _ := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return "must be a private key in PEM"
	case strings.Contains(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return "must be a private key without a passphrase"
	case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return "must be a private key in PEM"
	}
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		return ""
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return ""
	}
	if _, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return ""
	}
	return "is a private key that cannot be read (PKCS #8, PKCS #1 or SEC 1)"
}

func validateSASL(f *fieldErrors, s SASLSpec, has func(SecretField) bool) {
	const at = "/security/sasl/"
	f.line(at+"username", s.Username, maxCredential)
	f.line(at+"clientId", s.ClientID, maxCredential)
	f.line(at+"scope", s.Scope, maxCredential)
	if s.Mechanism == "" {
		f.addf(at+"mechanism", "is required")
		return
	}
	if !f.oneOf(at+"mechanism", s.Mechanism, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER") {
		return
	}
	require := func(name string, there bool) {
		if !there {
			f.addf(at+name, "is required with mechanism %s", s.Mechanism)
		}
	}
	refuse := func(name string, there bool) {
		if there {
			f.addf(at+name, "has no meaning with mechanism %s", s.Mechanism)
		}
	}
	if s.Mechanism != "OAUTHBEARER" {
		require("username", s.Username != "")
		require("password", has(SecretSASLPassword))
		refuse("tokenEndpoint", s.TokenEndpoint != "")
		refuse("clientId", s.ClientID != "")
		refuse("clientSecret", has(SecretClientSecret))
		refuse("scope", s.Scope != "")
		return
	}
	require("clientId", s.ClientID != "")
	require("clientSecret", has(SecretClientSecret))
	refuse("username", s.Username != "")
	refuse("password", has(SecretSASLPassword))
	if s.TokenEndpoint == "" {
		require("tokenEndpoint", false)
	} else if msg := checkTokenEndpoint(s.TokenEndpoint); msg != "" {
		f.addf(at+"tokenEndpoint", "%s", msg)
	}
}

func checkTokenEndpoint(s string) string {
	u, err := url.Parse(s)
	switch {
	case len(s) > 2048:
		return "must be at most 2048 bytes long"
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return "must be an http or https URL"
	case u.User != nil:
		// It would be shown in answers and logs.
		return "must not contain credentials; use clientId and clientSecret"
	case u.Fragment != "":
		return "must not have a fragment"
	}
	return ""
}

// secretPointer returns where a secret stands in a request.
func secretPointer(field SecretField) string {
	return "/security/" + strings.ReplaceAll(string(field), ".", "/")
}

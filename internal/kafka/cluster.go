package kafka

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// Security is how to reach a cluster, secrets included. It must never be
// logged; String and LogValue redact.
type Security struct {
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	TLS      TLS
	SASL     SASL
}

// TLS holds PEM texts; empty members mean: system roots, no client certificate, the address's host.
type TLS struct{ CA, Cert, Key, ServerName string }

// SASL holds the mechanism and its credentials.
type SASL struct {
	Mechanism                             string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
	Username, Password                    string
	TokenEndpoint, ClientID, ClientSecret string
	Scope                                 string
}

// The protocols of Security.Protocol; "" means Plaintext.
const (
	Plaintext     = "PLAINTEXT"
	SSL           = "SSL"
	SASLPlaintext = "SASL_PLAINTEXT"
	SASLSSL       = "SASL_SSL"
)

// The mechanisms of SASL.Mechanism.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// UsesTLS tells whether connections are encrypted.
func (s Security) UsesTLS() bool { return s.Protocol == SSL || s.Protocol == SASLSSL }

// UsesSASL tells whether connections log in.
func (s Security) UsesSASL() bool { return s.Protocol == SASLPlaintext || s.Protocol == SASLSSL }

// NeedsNewClient tells whether replacing s by next cannot be done with
// Credentials.Set on live clients: they decide at construction whether to log in.
func (s Security) NeedsNewClient(next Security) bool { return s.UsesSASL() != next.UsesSASL() }

// Validate tells whether connections can be tried at all: a known protocol and
// mechanism, what the mechanism needs, readable certificates. The problem names
// the step that would fail.
func (s Security) Validate() *Problem {
	switch s.Protocol {
	case "", Plaintext, SSL, SASLPlaintext, SASLSSL:
	default:
		return &Problem{
			Code: NotKafka, Step: StepConnect,
			Message: fmt.Sprintf("The security protocol %q is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.", s.Protocol),
			Remedy:  "Set security.protocol to the protocol of the cluster's listener.",
		}
	}
	if s.UsesTLS() {
		if _, err := s.tlsConfig(""); err != nil {
			return &Problem{
				Code: TLSFailed, Step: StepTLS, Err: err,
				Message: "The TLS settings of the service cannot be used: " + err.Error() + ".",
				Remedy:  "Replace the member of security.tls that is named, as PEM text.",
			}
		}
	}
	if !s.UsesSASL() {
		return nil
	}
	missing := ""
	switch s.SASL.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		switch "" {
		case s.SASL.Username:
			missing = "username"
		case s.SASL.Password:
			missing = "password"
		}
	case OAuthBearer:
		switch "" {
		case s.SASL.TokenEndpoint:
			missing = "tokenEndpoint"
		case s.SASL.ClientID:
			missing = "clientId"
		case s.SASL.ClientSecret:
			missing = "clientSecret"
		}
	default:
		return &Problem{
			Code: AuthFailed, Step: StepAuthenticate,
			Message: fmt.Sprintf("The SASL mechanism %q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.", s.SASL.Mechanism),
			Remedy:  "Set security.sasl.mechanism to one that the cluster's listener offers.",
		}
	}
	if missing != "" {
		return &Problem{
			Code: AuthFailed, Step: StepAuthenticate,
			Message: fmt.Sprintf("The SASL mechanism %s needs security.sasl.%s, which is empty.", s.SASL.Mechanism, missing),
			Remedy:  fmt.Sprintf("Set security.sasl.%s.", missing),
		}
	}
	return nil
}

// LogValue redacts.
func (Security) LogValue() slog.Value { return slog.StringValue("redacted") }

// String redacts.
func (Security) String() string { return "kafka.Security(redacted)" }

// GoString redacts.
func (Security) GoString() string { return "kafka.Security(redacted)" }

// Credentials is a cluster's security that can be replaced while clients use
// it: each new connection reads the current value. Safe for concurrent use.
//
// What can change without a new client: passwords, certificates, authorities,
// the mechanism, TLS on or off. Whether SASL is used at all cannot; see
// Security.NeedsNewClient.
type Credentials struct {
	p       atomic.Pointer[Security]
	tokens  tokenCache
	secrets secrets // current and recent, for Redact
}

// NewCredentials returns credentials that hold s.
func NewCredentials(s Security) *Credentials {
	c := &Credentials{}
	c.Set(s)
	return c
}

// Get returns the current value.
func (c *Credentials) Get() Security { return *c.p.Load() }

// Set replaces the value for connections opened from now on.
func (c *Credentials) Set(s Security) {
	c.secrets.use(s) // before a connection can send them
	c.p.Store(&s)
}

// Cluster is what is needed to connect.
type Cluster struct {
	// Side is "source" or "target"; it prefixes problem codes of a flow. "" in plain checks.
	Side string
	// Key tells who may share connections: clusters with the same Key are reached in the same way with the same Credentials
	// object. Empty: shared with nobody.
	Key              string
	BootstrapServers []string
	Credentials      *Credentials
	// Metrics counts what the clients of this cluster do, under Side; nil: nothing is counted.
	Metrics *Metrics
	// MayWrite, if set, is asked before each write to a connection; after a false the connection fails and nothing of a
	// request that was not sent whole is done by a broker. What the operating system has taken already is on its way.
	MayWrite func() bool
}

// ProblemCode is the part of a condition code after SOURCE_ or TARGET_.
type ProblemCode string

// The codes of connection problems (docs/conditions.md).
const (
	Unreachable    ProblemCode = "UNREACHABLE" // refused, no route, name unknown, no answer
	NotKafka       ProblemCode = "NOT_KAFKA"   // something else answers
	TLSFailed      ProblemCode = "TLS_FAILED"
	AuthFailed     ProblemCode = "AUTH_FAILED"
	Forbidden      ProblemCode = "FORBIDDEN"
	ClusterChanged ProblemCode = "CLUSTER_CHANGED"
)

// Step names the part of a connection that failed.
type Step string

// The steps, in order.
const (
	StepResolve      Step = "resolve"
	StepConnect      Step = "connect"
	StepTLS          Step = "tls"
	StepAPIVersions  Step = "api_versions"
	StepAuthenticate Step = "authenticate"
	StepMetadata     Step = "metadata"
	StepAdvertised   Step = "advertised" // bootstrap works, an advertised broker address does not
)

// Problem is a failure that a person can act on.
type Problem struct {
	Code    ProblemCode
	Step    Step
	Address string // host:port that was tried, when one was
	Message string // one sentence: what happened
	Remedy  string // one sentence: what to do
	Err     error  // cause, for logs; never shown
}

// Error implements error.
func (p *Problem) Error() string { return string(p.Code) + " at " + string(p.Step) + ": " + p.Message }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Info is what a successful check found.
type Info struct {
	ClusterID string
	Version   string // as guessed from API versions, for example "3.9" or "4.3"
	Brokers   int
}

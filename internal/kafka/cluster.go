package kafka

import "sync/atomic"

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

// String redacts.
func (Security) String() string { return "kafka.Security(redacted)" }

// GoString redacts.
func (Security) GoString() string { return "kafka.Security(redacted)" }

// Credentials is a cluster's security that can be replaced while clients use
// it: each new connection reads the current value. Safe for concurrent use.
type Credentials struct{ p atomic.Pointer[Security] }

// NewCredentials returns credentials that hold s.
func NewCredentials(s Security) *Credentials {
	c := &Credentials{}
	c.p.Store(&s)
	return c
}

// Get returns the current value.
func (c *Credentials) Get() Security { return *c.p.Load() }

// Set replaces the value for connections opened from now on.
func (c *Credentials) Set(s Security) { c.p.Store(&s) }

// Cluster is what is needed to connect.
type Cluster struct {
	// Side is "source" or "target"; it prefixes problem codes of a flow. "" in plain checks.
	Side             string
	BootstrapServers []string
	Credentials      *Credentials
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

package kafkaproc

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Protocol is a listener's security protocol, spelt as Kafka spells it.
type Protocol string

// The four protocols.
const (
	Plaintext     Protocol = "PLAINTEXT"
	SSL           Protocol = "SSL"
	SASLPlaintext Protocol = "SASL_PLAINTEXT"
	SASLSSL       Protocol = "SASL_SSL"
)

func (p Protocol) tls() bool  { return p == SSL || p == SASLSSL }
func (p Protocol) sasl() bool { return p == SASLPlaintext || p == SASLSSL }

// The SASL mechanisms of Listener.Mechanisms.
const (
	MechanismPlain       = "PLAIN"
	MechanismSCRAM256    = "SCRAM-SHA-256"
	MechanismSCRAM512    = "SCRAM-SHA-512"
	MechanismOAuthBearer = "OAUTHBEARER"
)

// Names of the two listeners that every node has beside the configured ones.
const (
	controllerListener = "CONTROLLER"
	// internalListener is what the brokers use among themselves, and tests for administration: plaintext, never
	// proxied, whatever happens to the others.
	internalListener = "INTERNAL"
)

// Listener is one way for clients to reach the brokers.
type Listener struct {
	// Name: upper-case letters, digits, "_"; unique in the cluster.
	Name string
	// Protocol; default Plaintext.
	Protocol Protocol
	// Mechanisms of a SASL listener.
	Mechanisms []string
	// ClientAuth of a TLS listener: "none" (default), "requested" or "required".
	ClientAuth string
	// Port of the first node on 127.0.0.1; 0 picks a free one. Further nodes always get free ones.
	Port int
	// Advertise returns the host:port that clients are told to use for the node whose listener is at addr, such as a
	// proxy's address; nil advertises addr itself. It is called once per node, before the node starts.
	Advertise func(node int, addr string) (string, error)
	// Props are further settings of this listener, without the "listener.name.<name>." prefix.
	Props map[string]string
}

// TLS holds PEM files for the brokers' TLS listeners.
type TLS struct {
	KeyStoreFile   string // the broker's private key (PKCS#8) and certificate chain
	TrustStoreFile string // the authorities whose client certificates are accepted
}

// OAuth says how the OAUTHBEARER listeners validate tokens.
type OAuth struct {
	JWKSURL  string
	Audience string // "" accepts any
	Issuer   string // "" accepts any
}

// SCRAMUser is a user stored in the cluster when it is formatted, for both SCRAM mechanisms.
type SCRAMUser struct {
	Name, Password string
}

// Config describes a cluster.
type Config struct {
	// Version is required.
	Version Version
	// Dir holds data, configuration and logs; required. Data found there are used again.
	Dir string
	// ClusterID; default random, or that of the data in Dir. A base64 uuid of 22 characters.
	ClusterID string
	// Nodes; default 1. The first is broker and controller, the others are brokers.
	Nodes int
	// Listeners; default one named PLAINTEXT.
	Listeners []Listener
	// TLS is required when a listener uses TLS.
	TLS *TLS
	// PlainUsers are the users of PLAIN listeners with their passwords.
	PlainUsers map[string]string
	// SCRAMUsers are stored when the cluster is formatted.
	SCRAMUsers []SCRAMUser
	// OAuth is required when a listener uses OAUTHBEARER.
	OAuth *OAuth
	// Props override broker settings, on every node.
	Props map[string]string
	// JVMFlags are added to the broker's.
	JVMFlags []string
	// HeapMB is the broker's -Xmx; default 512.
	HeapMB int
	// StartTimeout bounds formatting and start; default 90 s.
	StartTimeout time.Duration
	// Progress gets what a download of jars prints; nil discards it.
	Progress io.Writer

	// writeArchive makes the broker write a class archive when it ends; otherwise archive is used, if not "".
	writeArchive, archive string
}

func (c *Config) setDefaults() error {
	if c.Version == "" || c.Dir == "" {
		return fmt.Errorf("kafkaproc: Config.Version and Config.Dir are required")
	}
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.HeapMB == 0 {
		c.HeapMB = 512
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 90 * time.Second
	}
	if len(c.Listeners) == 0 {
		c.Listeners = []Listener{{Name: "PLAINTEXT"}}
	}
	c.Listeners = slices.Clone(c.Listeners)
	seen := map[string]bool{controllerListener: true, internalListener: true}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if l.Name == "" || strings.Trim(l.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || seen[l.Name] {
			return fmt.Errorf("kafkaproc: listener name %q is empty, taken, or not of A-Z, 0-9, _", l.Name)
		}
		seen[l.Name] = true
		if l.Protocol == "" {
			l.Protocol = Plaintext
		}
		if l.Protocol.tls() && c.TLS == nil {
			return fmt.Errorf("kafkaproc: listener %s needs Config.TLS", l.Name)
		}
		if l.Protocol.sasl() != (len(l.Mechanisms) > 0) {
			return fmt.Errorf("kafkaproc: listener %s: SASL protocols need mechanisms, others take none", l.Name)
		}
		if slices.Contains(l.Mechanisms, MechanismOAuthBearer) && c.OAuth == nil {
			return fmt.Errorf("kafkaproc: listener %s needs Config.OAuth", l.Name)
		}
	}
	return nil
}

// defaultProps are settings for small, short-lived clusters.
func defaultProps(nodes int) map[string]string {
	replicas := strconv.Itoa(min(3, nodes))
	props := map[string]string{
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"offsets.topic.num.partitions":                     "3",
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.num.partitions":             "3",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",
		// A killed broker may register again only after its session has run out; the default is 9 s.
		"broker.session.timeout.ms":    "6000",
		"broker.heartbeat.interval.ms": "500",
		// Test data carry timestamps of the past; the default of a week would delete them.
		"log.retention.ms": "-1",
		// The default dedupe buffer is 128 MiB of heap.
		"log.cleaner.dedupe.buffer.size": "16777216",
		"log.cleaner.backoff.ms":         "1000",
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
		"background.threads":             "2",
		"num.replica.fetchers":           "1",
	}
	return props
}

// properties is node n's configuration file (n from 1).
func (c *Config) properties(n int, nodes []*Node, voter string) map[string]string {
	node := nodes[n-1]
	props := defaultProps(c.Nodes)
	if c.Version == V39 {
		// Unknown before 4.1; a broker only warns, but the warnings hide others.
		maps.DeleteFunc(props, func(k, _ string) bool { return strings.HasPrefix(k, "share.") })
	}
	props["node.id"] = strconv.Itoa(n)
	props["controller.quorum.voters"] = voter
	props["controller.listener.names"] = controllerListener
	props["inter.broker.listener.name"] = internalListener
	props["log.dirs"] = node.DataDir()

	listeners := []string{internalListener + "://" + node.internal}
	advertised := []string{internalListener + "://" + node.internal}
	protocols := []string{controllerListener + ":PLAINTEXT", internalListener + ":PLAINTEXT"}
	props["process.roles"] = "broker"
	if n == 1 {
		props["process.roles"] = "broker,controller"
		listeners = append(listeners, controllerListener+"://"+node.controller)
	}
	for _, l := range c.Listeners {
		listeners = append(listeners, l.Name+"://"+node.addrs[l.Name])
		advertised = append(advertised, l.Name+"://"+node.advertised[l.Name])
		protocols = append(protocols, l.Name+":"+string(l.Protocol))
		c.listenerProperties(l, props)
	}
	props["listeners"] = strings.Join(listeners, ",")
	props["advertised.listeners"] = strings.Join(advertised, ",")
	props["listener.security.protocol.map"] = strings.Join(protocols, ",")
	maps.Copy(props, c.Props)
	return props
}

const oauthPackage = "org.apache.kafka.common.security.oauthbearer."

func (c *Config) listenerProperties(l Listener, props map[string]string) {
	prefix := "listener.name." + strings.ToLower(l.Name) + "."
	if l.Protocol.tls() {
		props[prefix+"ssl.keystore.type"] = "PEM"
		props[prefix+"ssl.keystore.location"] = c.TLS.KeyStoreFile
		props[prefix+"ssl.truststore.type"] = "PEM"
		props[prefix+"ssl.truststore.location"] = c.TLS.TrustStoreFile
		if l.ClientAuth != "" {
			props[prefix+"ssl.client.auth"] = l.ClientAuth
		}
	}
	if l.Protocol.sasl() {
		props[prefix+"sasl.enabled.mechanisms"] = strings.Join(l.Mechanisms, ",")
	}
	for _, mechanism := range l.Mechanisms {
		own := prefix + strings.ToLower(mechanism) + "."
		switch mechanism {
		case MechanismPlain:
			var jaas strings.Builder
			jaas.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
			for _, name := range slices.Sorted(maps.Keys(c.PlainUsers)) {
				fmt.Fprintf(&jaas, " user_%s=%s", name, jaasQuote(c.PlainUsers[name]))
			}
			props[own+"sasl.jaas.config"] = jaas.String() + ";"
		case MechanismSCRAM256, MechanismSCRAM512:
			props[own+"sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		case MechanismOAuthBearer:
			props[own+"sasl.jaas.config"] = oauthPackage + "OAuthBearerLoginModule required;"
			props[own+"sasl.server.callback.handler.class"] = oauthPackage + "OAuthBearerValidatorCallbackHandler"
			props[prefix+"sasl.oauthbearer.jwks.endpoint.url"] = c.OAuth.JWKSURL
			if c.OAuth.Audience != "" {
				props[prefix+"sasl.oauthbearer.expected.audience"] = c.OAuth.Audience
			}
			if c.OAuth.Issuer != "" {
				props[prefix+"sasl.oauthbearer.expected.issuer"] = c.OAuth.Issuer
			}
		}
	}
	for k, v := range l.Props {
		props[prefix+k] = v
	}
}

// jaasQuote quotes an option's value for a JAAS configuration line.
func jaasQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// encodeProperties writes a Java properties file, sorted, with the characters escaped that have a meaning there.
func encodeProperties(props map[string]string) []byte {
	var out strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	for _, k := range slices.Sorted(maps.Keys(props)) {
		out.WriteString(k + "=" + escape.Replace(props[k]) + "\n")
	}
	return []byte(out.String())
}

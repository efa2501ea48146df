package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// Names of the listeners that SecureOptions opens.
const (
	ListenerPlaintext = "PLAINTEXT"
	ListenerTLS       = "TLS"       // SSL, no client certificate asked for
	ListenerMTLS      = "MTLS"      // SSL, client certificate required
	ListenerPlain     = "PLAIN"     // SASL_PLAINTEXT, PLAIN
	ListenerPlainTLS  = "PLAIN_TLS" // SASL_SSL, PLAIN
	ListenerSCRAM     = "SCRAM"     // SASL_PLAINTEXT, SCRAM-SHA-256 and -512
	ListenerSCRAMTLS  = "SCRAM_TLS" // SASL_SSL, SCRAM-SHA-256 and -512
	ListenerOAuth     = "OAUTH"     // SASL_PLAINTEXT, OAUTHBEARER
	ListenerOAuthTLS  = "OAUTH_TLS" // SASL_SSL, OAUTHBEARER
)

// The user of SecureOptions' PLAIN and SCRAM listeners.
const (
	UserName     = "mirror"
	UserPassword = "mirror-password"
)

// SecureListeners are the listeners named above, or those of them that are asked for.
func SecureListeners(names ...string) []kafkaproc.Listener {
	scram := []string{kafkaproc.MechanismSCRAM256, kafkaproc.MechanismSCRAM512}
	all := []kafkaproc.Listener{
		{Name: ListenerPlaintext, Protocol: kafkaproc.Plaintext},
		{Name: ListenerTLS, Protocol: kafkaproc.SSL},
		{Name: ListenerMTLS, Protocol: kafkaproc.SSL, ClientAuth: "required"},
		{Name: ListenerPlain, Protocol: kafkaproc.SASLPlaintext, Mechanisms: []string{kafkaproc.MechanismPlain}},
		{Name: ListenerPlainTLS, Protocol: kafkaproc.SASLSSL, Mechanisms: []string{kafkaproc.MechanismPlain}},
		{Name: ListenerSCRAM, Protocol: kafkaproc.SASLPlaintext, Mechanisms: scram},
		{Name: ListenerSCRAMTLS, Protocol: kafkaproc.SASLSSL, Mechanisms: scram},
		{Name: ListenerOAuth, Protocol: kafkaproc.SASLPlaintext, Mechanisms: []string{kafkaproc.MechanismOAuthBearer}},
		{Name: ListenerOAuthTLS, Protocol: kafkaproc.SASLSSL, Mechanisms: []string{kafkaproc.MechanismOAuthBearer}},
	}
	if len(names) == 0 {
		return all
	}
	var chosen []kafkaproc.Listener
	for _, name := range names {
		for _, l := range all {
			if l.Name == name {
				chosen = append(chosen, l)
			}
		}
	}
	return chosen
}

// SecureOptions describe a cluster that is reachable in every way at once: the listeners named above (or those of them
// that are asked for), UserName known to PLAIN and SCRAM, tokens of issuer
// accepted. issuer may be nil when no OAuth listener is asked for.
func SecureOptions(version kafkaproc.Version, pki *PKI, issuer *oauthtest.Server, listeners ...string) Options {
	o := Options{
		Version: version, PKI: pki, Listeners: SecureListeners(listeners...),
		PlainUsers: map[string]string{UserName: UserPassword},
		SCRAMUsers: []kafkaproc.SCRAMUser{{Name: UserName, Password: UserPassword}},
	}
	if issuer != nil {
		o.OAuth = issuer.Broker()
	}
	return o
}

// ACLProps switch on authorization: everything is forbidden that no ACL allows, except to clients without a name, such as
// the test's own on the admin listener.
func ACLProps() map[string]string {
	return map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}
}

// AddSCRAMUser adds a user, or changes its password, for both SCRAM mechanisms, and waits until the cluster knows it.
func AddSCRAMUser(tb testing.TB, c *Cluster, name, password string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := Admin(tb, c)
	// Fewer rounds are refused.
	const iterations = 4096
	// One request each, since a request may name a user once.
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		results, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
			{User: name, Mechanism: mechanism, Iterations: iterations, Password: password},
		})
		require.NoError(tb, err)
		for _, r := range results {
			require.NoError(tb, r.Err, r.ErrMessage)
		}
	}
	wait.For(tb, time.Minute, "the SCRAM user "+name, func() error {
		described, err := admin.DescribeUserSCRAMs(ctx, name)
		if err != nil {
			return err
		}
		return described[name].Err
	})
}

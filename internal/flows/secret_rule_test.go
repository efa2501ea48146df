package flows

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAKeptSecretIsDemandedAnewWhenItWouldTravelElsewhereOrOtherwise(t *testing.T) {
	t.Parallel()
	word := "s3cret"
	stored := func() Service {
		return Service{
			Engine: EngineKafka, BootstrapServers: []string{"a:9092", "b:9092"},
			Security: Security{
				Protocol: "SASL_SSL", TLS: &TLSSpec{CA: "ca", Cert: "cert", ServerName: "kafka.example"},
				SASL: &SASLSpec{Mechanism: "OAUTHBEARER", TokenEndpoint: "https://id.example/token", ClientID: "me", Scope: "s"},
			},
			Sealed: map[SecretField]SealedSecret{SecretTLSKey: {}, SecretClientSecret: {}},
		}
	}
	both := []string{"/security/sasl/clientSecret", "/security/tls/key"}
	for name, c := range map[string]struct {
		change func(*ServiceInput)
		member string // the one the message names
		want   []string
	}{
		"nothing":                  {func(*ServiceInput) {}, "", nil},
		"the description":          {func(in *ServiceInput) { in.Description = "x" }, "", nil},
		"fewer servers":            {func(in *ServiceInput) { in.BootstrapServers = in.BootstrapServers[1:] }, "", nil},
		"servers in another order": {func(in *ServiceInput) { in.BootstrapServers = []string{"b:9092", "a:9092"} }, "", nil},
		"the client id":            {func(in *ServiceInput) { in.Security.SASL.ClientID = "you" }, "", nil},
		"the scope":                {func(in *ServiceInput) { in.Security.SASL.Scope = "" }, "", nil},
		"the user name":            {func(in *ServiceInput) { in.Security.SASL.Username = "you" }, "", nil},
		"the client certificate":   {func(in *ServiceInput) { in.Security.TLS.Cert = "renewed" }, "", nil},
		"one more server":          {func(in *ServiceInput) { in.BootstrapServers = append(in.BootstrapServers, "evil:9092") }, "bootstrapServers", both},
		"another port":             {func(in *ServiceInput) { in.BootstrapServers = []string{"a:9093"} }, "bootstrapServers", both},
		"the protocol":             {func(in *ServiceInput) { in.Security.Protocol = "SASL_PLAINTEXT" }, "security.protocol", both},
		"the mechanism":            {func(in *ServiceInput) { in.Security.SASL.Mechanism = "PLAIN" }, "security.sasl.mechanism", both},
		"the token endpoint":       {func(in *ServiceInput) { in.Security.SASL.TokenEndpoint = "https://evil.example/" }, "security.sasl.tokenEndpoint", both},
		"the roots":                {func(in *ServiceInput) { in.Security.TLS.CA = "mine" }, "security.tls.ca", both},
		"no roots":                 {func(in *ServiceInput) { in.Security.TLS = nil }, "security.tls.ca, security.tls.serverName", both},
		"the name to verify":       {func(in *ServiceInput) { in.Security.TLS.ServerName = "evil.example" }, "security.tls.serverName", both},
		"no SASL":                  {func(in *ServiceInput) { in.Security.SASL = nil }, "security.sasl.mechanism", both},
		"another server and one of the secrets": {func(in *ServiceInput) {
			in.BootstrapServers, in.Secrets = []string{"evil:9092"}, SecretChange{SecretClientSecret: &word}
		}, "bootstrapServers", []string{"/security/tls/key"}},
		"another server, one secret anew and one removed": {func(in *ServiceInput) {
			in.BootstrapServers, in.Secrets = []string{"evil:9092"}, SecretChange{SecretClientSecret: &word, SecretTLSKey: nil}
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, in := stored(), ServiceInput{}
			copied := stored()
			in.Engine, in.BootstrapServers, in.Security = copied.Engine, copied.BootstrapServers, copied.Security
			c.change(&in)
			var got []string
			for _, f := range refuseMovedSecrets(s, in) {
				got = append(got, f.Pointer)
				require.Contains(t, f.Message, c.member)
			}
			require.Equal(t, c.want, got)
			s.Sealed = nil
			require.Empty(t, refuseMovedSecrets(s, in), "nothing is stored that could be sent")
		})
	}
}

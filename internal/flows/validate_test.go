package flows

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keyPair makes a self-signed certificate and its key, PEM.
func keyPair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

func pointers(f fieldErrors) []string {
	var p []string
	for _, e := range f {
		p = append(p, e.Pointer)
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func TestServicesAreValidatedMemberByMember(t *testing.T) {
	t.Parallel()
	cert, key := keyPair(t)
	_, otherKey := keyPair(t)
	encrypted := "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
	kafka := func(change func(*ServiceInput)) ServiceInput {
		in := ServiceInput{Engine: EngineKafka, BootstrapServers: []string{"a:9092"}}
		change(&in)
		return in
	}
	secure := func(protocol string, tls *TLSSpec, sasl *SASLSpec, secrets SecretChange) ServiceInput {
		return kafka(func(in *ServiceInput) {
			in.Security, in.Secrets = Security{Protocol: protocol, TLS: tls, SASL: sasl}, secrets
		})
	}
	password := SecretChange{SecretSASLPassword: ptr("p")}
	stored := map[SecretField]SealedSecret{SecretSASLPassword: {}, SecretTLSKey: {}}
	for _, c := range []struct {
		name   string
		in     ServiceInput
		stored map[SecretField]SealedSecret
		want   []string
	}{
		{"nothing but addresses", kafka(func(*ServiceInput) {}), nil, nil},
		{"no engine", ServiceInput{}, nil, []string{"/engine"}},
		{"another engine", ServiceInput{Engine: "kafkaConnect"}, nil, []string{"/engine"}},
		{"a MirrorMaker service", ServiceInput{Engine: EngineKafkaMirrorMaker, Plan: "business", NodesPattern: []byte(`{}`)}, nil, nil},
		{
			"a MirrorMaker service with everything of Kafka's",
			ServiceInput{
				Engine: EngineKafkaMirrorMaker, Alias: ptr("a"), BootstrapServers: []string{"a:1"}, Security: Security{Protocol: "SSL"},
				NodesPattern: []byte(`3`),
			},
			nil,
			[]string{"/alias", "/bootstrapServers", "/security", "/nodesPattern"},
		},
		{"Kafka with MirrorMaker's members", kafka(func(in *ServiceInput) {
			in.Plan, in.Version, in.NodesPattern = "p", "v", []byte(`{}`)
		}), nil, []string{"/plan", "/version", "/nodesPattern"}},
		{"no address", kafka(func(in *ServiceInput) { in.BootstrapServers = nil }), nil, []string{"/bootstrapServers"}},
		{"100 addresses", kafka(func(in *ServiceInput) { in.BootstrapServers = repeat("a:1", 100) }), nil, nil},
		{"101 addresses", kafka(func(in *ServiceInput) { in.BootstrapServers = repeat("a:1", 101) }), nil, []string{"/bootstrapServers"}},
		{"good addresses", kafka(func(in *ServiceInput) {
			in.BootstrapServers = []string{"10.0.0.5:9092", "[::1]:1", "kafka_1.internal-x:65535", "[fe80::1%eth0]:9092"}
		}), nil, nil},
		{"bad addresses", kafka(func(in *ServiceInput) {
			in.BootstrapServers = []string{"a", "a:0", "a:65536", "a:x", ":9092", "http://a:1", "a b:1", "::1:9092", "a..b:1", "", "a:1,b:1", "-a:1"}
		}), nil, []string{
			"/bootstrapServers/0", "/bootstrapServers/1", "/bootstrapServers/2", "/bootstrapServers/3", "/bootstrapServers/4", "/bootstrapServers/5",
			"/bootstrapServers/6", "/bootstrapServers/7", "/bootstrapServers/8", "/bootstrapServers/9", "/bootstrapServers/10", "/bootstrapServers/11",
		}},
		{"description and alias", kafka(func(in *ServiceInput) { in.Description, in.Alias = "a\x00", ptr("") }), nil, []string{"/description", "/alias"}},
		{"long alias", kafka(func(in *ServiceInput) { in.Alias = ptr(strings.Repeat("a", 65)) }), nil, []string{"/alias"}},
		{"longest alias", kafka(func(in *ServiceInput) { in.Alias = ptr(strings.Repeat("a", 64)) }), nil, nil},
		{"alias with all kinds of characters", kafka(func(in *ServiceInput) { in.Alias = ptr("aZ0._-") }), nil, nil},
		{"alias with a slash", kafka(func(in *ServiceInput) { in.Alias = ptr("a/b") }), nil, []string{"/alias"}},
		{"alias with a letter that topics cannot have", kafka(func(in *ServiceInput) { in.Alias = ptr("ä") }), nil, []string{"/alias"}},

		{"unknown protocol", secure("TLS", nil, nil, nil), nil, []string{"/security/protocol"}},
		{"tls without a protocol", secure("", &TLSSpec{CA: cert}, nil, nil), nil, []string{"/security/protocol"}},
		{"TLS", secure("SSL", nil, nil, nil), nil, nil},
		{"TLS with an empty tls", secure("SSL", &TLSSpec{}, nil, nil), nil, nil},
		{"TLS with a CA and a name", secure("SSL", &TLSSpec{CA: cert + "\n" + cert, ServerName: "kafka.example"}, nil, nil), nil, nil},
		{"tls beside PLAINTEXT", secure("PLAINTEXT", &TLSSpec{CA: cert}, nil, nil), nil, []string{"/security/tls"}},
		{"key beside PLAINTEXT", secure("PLAINTEXT", nil, nil, SecretChange{SecretTLSKey: &key}), nil, []string{"/security/tls"}},
		{"sasl beside SSL", secure("SSL", nil, &SASLSpec{Mechanism: "PLAIN", Username: "u"}, password), nil, []string{"/security/sasl"}},
		{"a stored password beside PLAINTEXT", secure("PLAINTEXT", nil, nil, nil), map[SecretField]SealedSecret{SecretSASLPassword: {}}, []string{"/security/sasl"}},
		{
			"a stored password that goes", secure("PLAINTEXT", nil, nil, SecretChange{SecretSASLPassword: nil}),
			map[SecretField]SealedSecret{SecretSASLPassword: {}},
			nil,
		},
		{
			"bad PEM everywhere", secure("SSL", &TLSSpec{CA: "x", Cert: key, ServerName: "a:1"}, nil, SecretChange{SecretTLSKey: ptr("x")}), nil,
			[]string{"/security/tls/ca", "/security/tls/cert", "/security/tls/serverName", "/security/tls/key"},
		},
		{"a certificate and more", secure("SSL", &TLSSpec{CA: cert + "rubbish"}, nil, nil), nil, []string{"/security/tls/ca"}},
		{"mTLS", secure("SSL", &TLSSpec{Cert: cert}, nil, SecretChange{SecretTLSKey: &key}), nil, nil},
		{"mTLS with a stored key", secure("SSL", &TLSSpec{Cert: cert}, nil, nil), map[SecretField]SealedSecret{SecretTLSKey: {}}, nil},
		{"cert without key", secure("SSL", &TLSSpec{Cert: cert}, nil, nil), nil, []string{"/security/tls/key"}},
		{"key without cert", secure("SSL", nil, nil, SecretChange{SecretTLSKey: &key}), nil, []string{"/security/tls/cert"}},
		{"key of another cert", secure("SSL", &TLSSpec{Cert: cert}, nil, SecretChange{SecretTLSKey: &otherKey}), nil, []string{"/security/tls/key"}},
		{"encrypted key", secure("SSL", &TLSSpec{Cert: cert}, nil, SecretChange{SecretTLSKey: &encrypted}), nil, []string{"/security/tls/key"}},
		{"empty key", secure("SSL", &TLSSpec{Cert: cert}, nil, SecretChange{SecretTLSKey: ptr("")}), nil, []string{"/security/tls/key"}},

		{"SASL without sasl", secure("SASL_SSL", nil, nil, nil), nil, []string{"/security/sasl"}},
		{"no mechanism", secure("SASL_SSL", nil, &SASLSpec{}, nil), nil, []string{"/security/sasl/mechanism"}},
		{"unknown mechanism", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "GSSAPI"}, nil), nil, []string{"/security/sasl/mechanism"}},
		{"PLAIN", secure("SASL_PLAINTEXT", nil, &SASLSpec{Mechanism: "PLAIN", Username: "u"}, password), nil, nil},
		{"PLAIN with nothing", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "PLAIN"}, nil), nil, []string{"/security/sasl/username", "/security/sasl/password"}},
		{"SCRAM over mTLS, both stored", secure("SASL_SSL", &TLSSpec{Cert: cert}, &SASLSpec{Mechanism: "SCRAM-SHA-512", Username: "u"}, nil), stored, nil},
		{"SCRAM with OAuth's members", secure("SASL_SSL", nil, &SASLSpec{
			Mechanism: "SCRAM-SHA-256", Username: "u", TokenEndpoint: "https://a", ClientID: "c", Scope: "s",
		}, SecretChange{SecretSASLPassword: ptr("p"), SecretClientSecret: ptr("s")}), nil, []string{
			"/security/sasl/tokenEndpoint", "/security/sasl/clientId", "/security/sasl/clientSecret", "/security/sasl/scope",
		}},
		{"OAUTHBEARER", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "OAUTHBEARER", TokenEndpoint: "http://127.0.0.1:80/token?x=1", ClientID: "c"},
			SecretChange{SecretClientSecret: ptr("s")}), nil, nil},
		{
			"OAUTHBEARER with nothing", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "OAUTHBEARER"}, nil), nil,
			[]string{"/security/sasl/clientId", "/security/sasl/clientSecret", "/security/sasl/tokenEndpoint"},
		},
		{"OAUTHBEARER with a password", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "OAUTHBEARER", TokenEndpoint: "https://a", ClientID: "c", Username: "u"},
			SecretChange{SecretClientSecret: ptr("s"), SecretSASLPassword: ptr("p")}), nil, []string{"/security/sasl/username", "/security/sasl/password"}},
		{"a token endpoint with credentials", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "OAUTHBEARER", TokenEndpoint: "https://u:p@a", ClientID: "c"},
			SecretChange{SecretClientSecret: ptr("s")}), nil, []string{"/security/sasl/tokenEndpoint"}},
		{"a token endpoint that is a file", secure("SASL_SSL", nil, &SASLSpec{Mechanism: "OAUTHBEARER", TokenEndpoint: "file:///etc/passwd", ClientID: "c"},
			SecretChange{SecretClientSecret: ptr("s")}), nil, []string{"/security/sasl/tokenEndpoint"}},
		{"an unknown secret", secure("PLAINTEXT", nil, nil, SecretChange{"x": ptr("s")}), nil, []string{"/security"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := validateService(normaliseService(c.in), c.stored)
			require.ElementsMatch(t, c.want, pointers(f), "%v", f)
			for _, e := range f {
				require.NotContains(t, e.Message, "%!")
			}
			err := f.err()
			require.Equal(t, len(f) > 0, err != nil)
			if err != nil {
				require.Equal(t, CodeInvalid, CodeOf(err))
			}
		})
	}
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestOptionsAreValidatedMemberByMember(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"the defaults", func(*Options) {}, nil},
		{"empty lists", func(o *Options) {
			o.Topics, o.TopicExcludeList, o.Groups, o.GroupExcludeList, o.ConfigPropertiesExclude = nil, nil, nil, nil, nil
		}, nil},
		{"bad patterns everywhere", func(o *Options) {
			bad := []string{"ok", "("}
			o.Topics, o.TopicExcludeList, o.Groups, o.GroupExcludeList, o.ConfigPropertiesExclude = bad, bad, bad, bad, bad
		}, []string{"/topics/1", "/topicExcludeList/1", "/groups/1", "/groupExcludeList/1", "/configPropertiesExclude/1"}},
		{"empty, long and odd patterns", func(o *Options) {
			o.Topics = []string{"", strings.Repeat("a", 1024), strings.Repeat("a", 1025), "a\x00", "\xff", strings.Repeat("ä", 1024)}
		}, []string{"/topics/0", "/topics/2", "/topics/3", "/topics/4"}},
		{"8192 patterns", func(o *Options) { o.Topics = repeat("a", 8192) }, nil},
		{"8193 patterns", func(o *Options) { o.Topics = repeat("(", 8193) }, []string{"/topics"}},
		{"shortest intervals", func(o *Options) {
			o.SyncInterval, o.EmitHeartbeatsInterval, o.EmitCheckpointsInterval = time.Second, time.Second, time.Second
			o.RefreshTopicsInterval, o.RefreshGroupsInterval = time.Second, 31536000*time.Second
		}, nil},
		{"intervals out of range", func(o *Options) {
			o.SyncInterval, o.EmitHeartbeatsInterval, o.EmitCheckpointsInterval = 0, -time.Second, 1500*time.Millisecond
			o.RefreshTopicsInterval, o.RefreshGroupsInterval = 31536001*time.Second, time.Millisecond
		}, []string{"/syncInterval", "/emitHeartbeatsInterval", "/emitCheckpointsInterval", "/refreshTopicsInterval", "/refreshGroupsInterval"}},
		{"most tasks", func(o *Options) { o.TasksMax = 1024 }, nil},
		{"no tasks", func(o *Options) { o.TasksMax = 0 }, []string{"/tasksMax"}},
		{"too many tasks", func(o *Options) { o.TasksMax = 1025 }, []string{"/tasksMax"}},
		{"highest factor", func(o *Options) { o.ReplicationFactor = 32767 }, nil},
		{"factor 0", func(o *Options) { o.ReplicationFactor = 0 }, []string{"/replicationFactor"}},
		{"factor -2", func(o *Options) { o.ReplicationFactor = -2 }, []string{"/replicationFactor"}},
		{"factor too high", func(o *Options) { o.ReplicationFactor = 32768 }, []string{"/replicationFactor"}},
		{"unknown words", func(o *Options) {
			o.OffsetSyncsTopicLocation, o.IsolationLevel, o.TopicConfigSyncMode, o.StartPosition = "x", "x", "x", "x"
		}, []string{"/offsetSyncsTopicLocation", "/isolationLevel", "/topicConfigSyncMode", "/startPosition"}},
		{"the other words", func(o *Options) {
			o.OffsetSyncsTopicLocation, o.IsolationLevel, o.TopicConfigSyncMode, o.StartPosition = "source", "read_uncommitted", "mirror", StartLatest
		}, nil},
		{"offsetLagMax 0", func(o *Options) { o.OffsetLagMax = 0 }, nil},
		{"negative offsetLagMax", func(o *Options) { o.OffsetLagMax = -1 }, []string{"/offsetLagMax"}},
		{"from a time", func(o *Options) { o.StartPosition, o.StartTimestamp = StartTimestamp, &at }, nil},
		{"from a time without one", func(o *Options) { o.StartPosition = StartTimestamp }, []string{"/startTimestamp"}},
		{"a time that means nothing", func(o *Options) { o.StartTimestamp = &at }, []string{"/startTimestamp"}},
		{"a time before all times", func(o *Options) {
			o.StartPosition, o.StartTimestamp = StartTimestamp, ptr(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC))
		}, []string{"/startTimestamp"}},
		{"what is not built yet", func(o *Options) { o.SyncTopicACLs = true }, []string{"/syncTopicAcls"}},
		{"a rate that is too low", func(o *Options) { o.MaxBytesPerSecond = ptr(int64(1023)) }, []string{"/maxBytesPerSecond"}},
		{"a rate that is too high", func(o *Options) { o.MaxBytesPerSecond = ptr(int64(1 << 53)) }, []string{"/maxBytesPerSecond"}},
		{"the lowest rate", func(o *Options) { o.MaxBytesPerSecond = ptr(int64(1024)) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions()
			c.change(&o)
			var f fieldErrors
			validateOptions(&f, normaliseOptions(o))
			require.Equal(t, c.want, pointers(f), "%v", f)
		})
	}
}

func TestARefusedPatternNamesConstructAndPosition(t *testing.T) {
	t.Parallel()
	var f fieldErrors
	validatePatterns(&f, "/topics", []string{"orders-(eu"})
	require.Len(t, f, 1)
	require.Regexp(t, `position \d+`, f[0].Message)
}

func TestPolicyAndSeparatorAreValidated(t *testing.T) {
	t.Parallel()
	for separator, ok := range map[string]bool{".": true, "__--..ab": true, "": false, "123456789": false, "/": false, " ": false} {
		var f fieldErrors
		validatePolicy(&f, DefaultPolicyClass, separator)
		require.Equal(t, ok, len(f) == 0, separator)
	}
	var f fieldErrors
	validatePolicy(&f, "com.example.Policy", ".")
	require.Equal(t, []string{"/replicationPolicyClass"}, pointers(f))
}

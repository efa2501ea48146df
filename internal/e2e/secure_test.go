package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
)

// TestTheSameCopyOverSecuredClusters copies over SASL_SSL with SCRAM, over mTLS, and with OAUTHBEARER on both brokers.
func TestTheSameCopyOverSecuredClusters(t *testing.T) {
	pki, issuer := kafkatest.NewPKI(t), oauthtest.New(t, oauthtest.Options{})
	listeners := []string{kafkatest.ListenerMTLS, kafkatest.ListenerSCRAMTLS, kafkatest.ListenerOAuthTLS, kafkatest.ListenerPlainTLS}
	clusters := kafkatest.StartAll(t,
		kafkatest.SecureOptions(kafkatest.V39, pki, issuer, listeners...),
		kafkatest.SecureOptions(kafkatest.V43, pki, issuer, listeners...))
	source, target := clusters[0], clusters[1]
	s, _ := deploy(t, 1)
	ca := string(pki.CA())
	cert, key := pki.Issue(t, "mirror-client", kafkatest.ClientCert)
	for name, c := range map[string]struct {
		listener string
		security object
	}{
		"SCRAM-SHA-512 over TLS": {kafkatest.ListenerSCRAMTLS, object{
			"protocol": "SASL_SSL", "tls": object{"ca": ca},
			"sasl": object{"mechanism": "SCRAM-SHA-512", "username": kafkatest.UserName, "password": kafkatest.UserPassword},
		}},
		"SCRAM-SHA-256 over TLS": {kafkatest.ListenerSCRAMTLS, object{
			"protocol": "SASL_SSL", "tls": object{"ca": ca},
			"sasl": object{"mechanism": "SCRAM-SHA-256", "username": kafkatest.UserName, "password": kafkatest.UserPassword},
		}},
		"PLAIN over TLS": {kafkatest.ListenerPlainTLS, object{
			"protocol": "SASL_SSL", "tls": object{"ca": ca},
			"sasl": object{"mechanism": "PLAIN", "username": kafkatest.UserName, "password": kafkatest.UserPassword},
		}},
		"mTLS": {kafkatest.ListenerMTLS, object{"protocol": "SSL", "tls": object{"ca": ca, "cert": string(cert), "key": string(key)}}},
		"OAUTHBEARER over TLS": {kafkatest.ListenerOAuthTLS, object{
			"protocol": "SASL_SSL", "tls": object{"ca": ca},
			"sasl": object{"mechanism": "OAUTHBEARER", "tokenEndpoint": issuer.TokenURL(), "clientId": oauthtest.ClientID, "clientSecret": oauthtest.ClientSecret, "scope": "kafka"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &system{tb: t, base: s.base, database: s.database, keys: s.keys}
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 3, nil)
			kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 20_000, Partitions: 3})
			p := s.bind(s.kafkaService(source.Bootstraps(c.listener)[0], "", c.security), s.kafkaService(target.Bootstraps(c.listener)[0], "", c.security))
			require.Equal(t, "READY", p.source.str("status"))
			s.waitIdle(p.flow(object{"topics": []string{topic}}), 60*time.Second)
			kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, p.remote(topic), kafkatest.ReadUncommitted))
		})
	}
}

func deleteRecordsBefore(tb testing.TB, c *kafkatest.Cluster, topic string, partition int32, offset int64) {
	tb.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset})
	rs, err := kafkatest.Admin(tb, c).DeleteRecords(tb.Context(), o)
	require.NoError(tb, err)
	require.NoError(tb, rs.Error())
}

package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestAStoredSecretIsNeverSentToAChangedPlaceNotEvenForACheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen []flows.CheckServicePayload
	stop := w.answerChecks(func(p flows.CheckServicePayload) flows.CheckServiceResult {
		seen = append(seen, p)
		return fine(p)
	})
	ctx, m := t.Context(), w.manager
	first, second := "first", "second"
	in := flows.ServiceInput{
		Engine: flows.EngineKafka, BootstrapServers: []string{"a:9092"},
		Security: flows.Security{Protocol: "SASL_SSL", SASL: &flows.SASLSpec{Mechanism: "SCRAM-SHA-512", Username: "u"}},
		Secrets:  flows.SecretChange{flows.SecretSASLPassword: &first},
	}
	s, err := m.CreateService(ctx, w.project, in, false)
	require.NoError(t, err)
	in.Secrets = nil
	for name, change := range map[string]func(*flows.ServiceInput){
		"another address":         func(in *flows.ServiceInput) { in.BootstrapServers = []string{"evil:9092"} },
		"one address more":        func(in *flows.ServiceInput) { in.BootstrapServers = []string{"a:9092", "evil:9092"} },
		"in the clear":            func(in *flows.ServiceInput) { in.Security.Protocol = "SASL_PLAINTEXT" },
		"under another mechanism": func(in *flows.ServiceInput) { in.Security.SASL = &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"} },
		"to another host's name":  func(in *flows.ServiceInput) { in.Security.TLS = &flows.TLSSpec{ServerName: "evil"} },
	} {
		moved := in
		change(&moved)
		for _, force := range []bool{false, true} {
			_, err := m.UpdateService(ctx, w.project, s.ID, moved, flows.AnyRevision, force)
			requireFields(t, err, "/security/sasl/password")
			require.Zero(t, w.queryInt("SELECT count(*) FROM jobs"), name)
		}
	}
	got, err := m.GetService(ctx, w.project, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)

	in.Description, in.Security.SASL = "words", &flows.SASLSpec{Mechanism: "SCRAM-SHA-512", Username: "other"}
	kept, err := m.UpdateService(ctx, w.project, s.ID, in, flows.AnyRevision, false)
	require.NoError(t, err, "the cluster is the same")
	require.Equal(t, s.Sealed, kept.Sealed)

	in.BootstrapServers, in.Secrets = []string{"b:9092"}, flows.SecretChange{flows.SecretSASLPassword: &second}
	moved, err := m.UpdateService(ctx, w.project, s.ID, in, flows.AnyRevision, false)
	require.NoError(t, err, "whoever moves it knows the secret")
	require.NotEqual(t, s.Sealed, moved.Sealed)
	stop()
	for _, p := range seen {
		want := s.Sealed
		if p.BootstrapServers[0] == "b:9092" {
			want = moved.Sealed
		}
		require.Equal(t, want, p.Sealed)
		require.NotContains(t, p.BootstrapServers, "evil:9092")
	}
	require.Len(t, seen, 3)
}

package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func inputOf(s flows.Service) flows.ServiceInput {
	return flows.ServiceInput{Engine: s.Engine, Description: s.Description, BootstrapServers: s.BootstrapServers, Security: s.Security}
}

func TestUpdatingAServiceChecksItsConnectionAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	ctx, m := t.Context(), w.manager

	in := inputOf(p.source)
	in.Description = "new words"
	s, err := m.UpdateService(ctx, w.project, p.source.ID, in, p.source.Revision, false)
	require.NoError(t, err, "words need no check, and there is no worker here")
	require.Equal(t, p.source.Revision+1, s.Revision)
	require.Equal(t, p.source.CredentialsRevision, s.CredentialsRevision)
	_, err = m.UpdateService(ctx, w.project, p.source.ID, in, p.source.Revision, false)
	requireCode(t, flows.CodePreconditionFailed, err)
	in.Engine = flows.EngineKafkaMirrorMaker
	_, err = m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	requireFields(t, err, "/engine")

	alias := "renamed"
	in = inputOf(p.source)
	in.Alias = &alias
	_, err = m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, f.ID.String())
	same := p.source.Alias
	in.Alias = &same
	_, err = m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	free := w.kafka("free", "F")
	in = inputOf(free)
	in.Alias = &alias
	_, err = m.UpdateService(ctx, w.project, free.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	taken := p.source.Alias
	in.Alias = &taken
	_, err = m.UpdateService(ctx, w.project, free.ID, in, flows.AnyRevision, false)
	requireCode(t, flows.CodeConflict, err)

	var seen []flows.CheckServicePayload
	stop := w.answerChecks(func(p flows.CheckServicePayload) flows.CheckServiceResult {
		seen = append(seen, p)
		return flows.CheckServiceResult{KafkaClusterID: "A", KafkaVersion: "3.9"}
	})
	password := "p1"
	in = inputOf(p.source)
	in.Security = flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}}
	in.Secrets = flows.SecretChange{flows.SecretSASLPassword: &password}
	moved, err := m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	require.Equal(t, int64(2), moved.CredentialsRevision)
	got, err := m.GetFlow(ctx, w.project, f.ID)
	require.NoError(t, err)
	require.Equal(t, f.Revision+1, got.Revision, "another protocol makes tasks start again")

	in.Secrets = nil
	in.Security.SASL = &flows.SASLSpec{Mechanism: "PLAIN", Username: "other"}
	swapped, err := m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	require.Equal(t, int64(3), swapped.CredentialsRevision)
	require.Equal(t, moved.Sealed, swapped.Sealed, "an absent secret is kept")
	got, err = m.GetFlow(ctx, w.project, f.ID)
	require.NoError(t, err)
	require.Equal(t, f.Revision+1, got.Revision, "credentials are swapped in place")
	require.Equal(t, swapped.Sealed, seen[1].Sealed, "the check uses kept secrets")

	in.Secrets = flows.SecretChange{flows.SecretSASLPassword: nil}
	_, err = m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	requireFields(t, err, "/security/sasl/password")

	in = inputOf(p.source)
	in.Secrets = flows.SecretChange{flows.SecretSASLPassword: nil}
	in.BootstrapServers = []string{"elsewhere:9092"}
	plain, err := m.UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	require.NoError(t, err)
	require.Empty(t, plain.Sealed)
	require.Equal(t, "A", plain.KafkaClusterID)
	require.Equal(t, "3.9", plain.KafkaVersion)

	stop()
}

func TestAServiceThatFlowsUseStaysItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	ctx, m := t.Context(), w.manager
	broken := refused(flows.CheckServicePayload{})
	broken.KafkaClusterID = "Z"
	results := map[string]flows.CheckServiceResult{
		"target:1": {KafkaClusterID: "B"}, "another:1": {KafkaClusterID: "Z"}, "broken:1": broken, "same:1": {KafkaClusterID: "A"},
	}
	stop := w.answerChecks(func(p flows.CheckServicePayload) flows.CheckServiceResult { return results[p.BootstrapServers[0]] })
	move := func(s flows.Service, server string, force bool) (flows.Service, error) {
		in := inputOf(s)
		in.BootstrapServers = []string{server}
		return m.UpdateService(ctx, w.project, s.ID, in, flows.AnyRevision, force)
	}
	for _, server := range []string{"target:1", "another:1", "broken:1"} {
		for _, force := range []bool{false, true} {
			_, err := move(p.source, server, force)
			requireCode(t, flows.CodeConflict, err)
			require.ErrorContains(t, err, f.ID.String())
			require.ErrorContains(t, err, "as a service of its own")
		}
	}
	got, err := m.GetService(ctx, w.project, p.source.ID)
	require.NoError(t, err)
	require.Equal(t, p.source, got)
	_, err = move(p.source, "same:1", false)
	require.NoError(t, err)
	free, err := move(w.kafka("free", "F"), "another:1", false)
	require.NoError(t, err, "nobody relies on it")
	require.Equal(t, "Z", free.KafkaClusterID)

	unknown := w.kafka("unknown", "")
	in := p.input("y")
	in.SourceIntegration = w.integration(unknown, p.mm).ID
	g, err := m.CreateFlow(ctx, w.project, in)
	require.NoError(t, err)
	_, err = move(unknown, "target:1", true)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, g.ID.String())
	learnt, err := move(unknown, "another:1", false)
	require.NoError(t, err, "what is not known may be learnt")
	require.Equal(t, "Z", learnt.KafkaClusterID)
	stop()

	// Found after the change was accepted, since no worker was there.
	pending, err := func() (flows.Service, error) {
		in := inputOf(p.source)
		in.BootstrapServers = []string{"later:1"}
		return w.managerWith(time.Millisecond).UpdateService(ctx, w.project, p.source.ID, in, flows.AnyRevision, false)
	}()
	require.NoError(t, err)
	require.Equal(t, flows.StatusPending, pending.Status)
	defer w.answerChecks(func(flows.CheckServicePayload) flows.CheckServiceResult {
		return flows.CheckServiceResult{KafkaClusterID: "Z", KafkaVersion: "4.0"}
	})()
	until(t, "the service is in error", func() bool {
		got, err = m.GetService(ctx, w.project, p.source.ID)
		require.NoError(t, err)
		return got.Status == flows.StatusError
	})
	require.Contains(t, got.StatusDetail, "as a service of its own")
	require.Equal(t, "A", got.KafkaClusterID)
}

func TestAFailedCheckLeavesTheServiceAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.kafka("a", "A")
	defer w.answerChecks(refused)()
	in := inputOf(s)
	in.BootstrapServers = []string{"b:1"}
	_, err := w.manager.UpdateService(t.Context(), w.project, s.ID, in, flows.AnyRevision, false)
	requireCode(t, flows.CodeCheckFailed, err)
	got, err := w.manager.GetService(t.Context(), w.project, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)
	forced, err := w.manager.UpdateService(t.Context(), w.project, s.ID, in, flows.AnyRevision, true)
	require.NoError(t, err)
	require.Equal(t, flows.StatusError, forced.Status)
	require.Equal(t, []string{"b:1"}, forced.BootstrapServers)
}

func TestAnUpdateThatWasOvertakenIsDoneAgainOrRefused(t *testing.T) {
	t.Parallel()
	for _, withRevision := range []bool{false, true} {
		t.Run(fmt.Sprint("with a revision: ", withRevision), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			defer w.answerChecks(fine)()
			s := w.kafka("a", "A")
			overtaken := false
			m := flows.NewManager(flows.ManagerConfig{Sealer: boxSealer{}, CheckTimeout: 10 * time.Second, Store: lateStore{Store: w.store, before: func() {
				if !overtaken {
					overtaken = true
					w.exec("UPDATE services SET revision = revision + 1, plan = ''")
				}
			}}})
			in := inputOf(s)
			in.BootstrapServers = []string{"b:1"}
			revision := flows.AnyRevision
			if withRevision {
				revision = s.Revision
			}
			got, err := m.UpdateService(t.Context(), w.project, s.ID, in, revision, false)
			if withRevision {
				requireCode(t, flows.CodePreconditionFailed, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, s.Revision+2, got.Revision)
			require.Equal(t, "cluster-of-b:1", got.KafkaClusterID)
		})
	}
}

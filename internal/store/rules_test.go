package store_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestRolesOfAnIntegrationsEndsAreEnforced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for name, c := range map[string]struct {
		in       flows.IntegrationInput
		pointers []string
	}{
		"swapped":    {flows.IntegrationInput{SourceServiceID: p.mm.ID, DestinationServiceID: p.source.ID}, []string{"/sourceServiceId", "/destinationServiceId"}},
		"two kafkas": {flows.IntegrationInput{SourceServiceID: p.source.ID, DestinationServiceID: p.target.ID}, []string{"/destinationServiceId"}},
		"missing":    {flows.IntegrationInput{}, []string{"/sourceServiceId", "/destinationServiceId"}},
		"everything": {
			flows.IntegrationInput{Type: "kafkaLogs", SourceServiceID: uuid.New(), Parameters: map[string]string{"a/b": "\x00"}},
			[]string{"/type", "/parameters/a~1b", "/sourceServiceId", "/destinationServiceId"},
		},
	} {
		_, err := w.manager.CreateIntegration(t.Context(), w.project, c.in)
		require.Error(t, err, name)
		requireFields(t, err, c.pointers...)
	}
	_, err := w.manager.CreateIntegration(t.Context(), w.project, flows.IntegrationInput{SourceServiceID: p.source.ID, DestinationServiceID: p.mm.ID})
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, p.from.ID.String())
	require.Equal(t, 2, w.queryInt("SELECT count(*) FROM integrations"))
}

func TestAFlowsEndsAreResolvedAndNamedWhenWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	mm2 := w.mirrorMaker()
	elsewhere := w.integration(p.target, mm2)
	twin := w.integration(w.kafka("twin", "A"), p.mm)
	for name, c := range map[string]struct {
		from, to uuid.UUID
		pointers []string
		says     string
	}{
		"service ids":           {p.source.ID, p.target.ID, []string{"/sourceIntegration", "/targetIntegration"}, "is a service; this needs the id of an integration"},
		"unknown":               {uuid.New(), p.to.ID, []string{"/sourceIntegration"}, "there is no integration"},
		"missing":               {uuid.Nil, uuid.Nil, []string{"/sourceIntegration", "/targetIntegration"}, "is required"},
		"same integration":      {p.from.ID, p.from.ID, []string{"/targetIntegration"}, "must differ"},
		"two MirrorMakers":      {p.from.ID, elsewhere.ID, []string{"/targetIntegration"}, mm2.ID.String()},
		"one cluster, two ways": {p.from.ID, twin.ID, []string{"/targetIntegration"}, "Kafka cluster A"},
	} {
		in := p.input("x")
		in.SourceIntegration, in.TargetIntegration = c.from, c.to
		_, err := w.manager.CreateFlow(t.Context(), w.project, in)
		require.Error(t, err, name)
		require.ErrorContains(t, err, c.says, name)
		requireFields(t, err, c.pointers...)
	}
	in := p.input("[")
	in.SourceIntegration, in.ReplicationPolicyClass, in.ReplicationPolicySeparator, in.TasksMax = p.source.ID, "X", "/", 0
	_, err := w.manager.CreateFlow(t.Context(), w.project, in)
	requireFields(t, err, "/replicationPolicyClass", "/replicationPolicySeparator", "/topics/0", "/tasksMax", "/sourceIntegration")
	require.Zero(t, w.queryInt("SELECT count(*) FROM flows"))
}

func TestWhatIsUsedIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	ctx, m := t.Context(), w.manager
	for _, id := range []uuid.UUID{p.source.ID, p.target.ID, p.mm.ID} {
		err := m.DeleteService(ctx, w.project, id, flows.AnyRevision)
		requireCode(t, flows.CodeConflict, err)
		require.ErrorContains(t, err, f.ID.String())
	}
	require.ErrorContains(t, m.DeleteService(ctx, w.project, p.source.ID, flows.AnyRevision), p.from.ID.String())
	err := m.DeleteIntegration(ctx, w.project, p.from.ID)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, f.ID.String())

	require.NoError(t, m.DeleteFlow(ctx, w.project, f.ID, false, flows.AnyRevision))
	requireCode(t, flows.CodeNotFound, m.DeleteFlow(ctx, w.project, f.ID, false, flows.AnyRevision))
	err = m.DeleteService(ctx, w.project, p.mm.ID, flows.AnyRevision)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, p.to.ID.String())
	require.NoError(t, m.DeleteIntegration(ctx, w.project, p.from.ID))
	require.NoError(t, m.DeleteIntegration(ctx, w.project, p.to.ID))
	for _, id := range []uuid.UUID{p.source.ID, p.target.ID, p.mm.ID} {
		require.NoError(t, m.DeleteService(ctx, w.project, id, flows.AnyRevision))
		requireCode(t, flows.CodeNotFound, m.DeleteService(ctx, w.project, id, flows.AnyRevision))
	}
	require.Zero(t, w.queryInt("SELECT count(*) FROM tasks"))
}

func TestFlowsThatWouldWriteOneRemoteTopicAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	first := p.flow("orders", "logs.*")
	_, err := w.manager.CreateFlow(t.Context(), w.project, p.input("payments", "orders"))
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, first.ID.String())
	require.ErrorContains(t, err, `"orders"`)

	second := p.flow("payments")
	o := second.Options
	o.Topics = []string{"payments", "logs-eu"}
	_, err = w.manager.UpdateFlow(t.Context(), w.project, second.ID, o, flows.AnyRevision)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, first.ID.String())
	o.Topics = []string{"payments", "payments-eu"}
	second, err = w.manager.UpdateFlow(t.Context(), w.project, second.ID, o, flows.AnyRevision)
	require.NoError(t, err, "a flow does not contradict itself")
	require.Equal(t, o.Topics, second.Topics)

	// The same target cluster known as another service.
	again := w.kafka("dst2", "B")
	in := p.input("orders")
	in.TargetIntegration = w.integration(again, p.mm).ID
	_, err = w.manager.CreateFlow(t.Context(), w.project, in)
	requireCode(t, flows.CodeConflict, err)

	// Another source has another prefix.
	in = p.input("orders")
	in.SourceIntegration = w.integration(w.kafka("third", "C"), p.mm).ID
	_, err = w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err)
}

func TestIdentityFlowsThatGoInCirclesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	third := w.integration(w.kafka("third", "C"), p.mm)
	identity := func(from, to uuid.UUID, topics ...string) (flows.Flow, error) {
		in := p.input(topics...)
		in.SourceIntegration, in.TargetIntegration, in.ReplicationPolicyClass = from, to, flows.IdentityPolicyClass
		return w.manager.CreateFlow(t.Context(), w.project, in)
	}
	ab, err := identity(p.from.ID, p.to.ID, "orders", "eu.*")
	require.NoError(t, err)
	_, err = identity(p.to.ID, p.from.ID, "orders")
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, ab.ID.String())
	ba, err := identity(p.to.ID, p.from.ID, "payments")
	require.NoError(t, err, "other topics may go the other way")
	o := ba.Options
	o.Topics = []string{"eur.*"}
	_, err = w.manager.UpdateFlow(t.Context(), w.project, ba.ID, o, flows.AnyRevision)
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, ab.ID.String())
	require.ErrorContains(t, err, "list only names of topics")

	bc, err := identity(p.to.ID, third.ID, "eu-1")
	require.NoError(t, err)
	_, err = identity(third.ID, p.from.ID, "eu-1")
	requireCode(t, flows.CodeConflict, err)
	require.ErrorContains(t, err, ab.ID.String()+", then flow "+bc.ID.String())

	in := p.input("orders")
	in.SourceIntegration, in.TargetIntegration = p.to.ID, p.from.ID
	_, err = w.manager.CreateFlow(t.Context(), w.project, in)
	require.NoError(t, err, "the default policy gives other names")
}

func TestUpdatesOfAFlowCountAndCompareRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	o := f.Options
	o.Topics, o.SyncInterval, o.Enabled = []string{}, 5*time.Second, false
	second, err := w.manager.UpdateFlow(t.Context(), w.project, f.ID, o, f.Revision)
	require.NoError(t, err)
	require.Equal(t, f.Revision+1, second.Revision)
	require.Equal(t, o, second.Options)
	require.True(t, second.UpdatedAt.After(f.UpdatedAt))
	require.Equal(t, f.CreatedAt, second.CreatedAt)
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, o, f.Revision)
	requireCode(t, flows.CodePreconditionFailed, err)
	o.TasksMax = 0
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, o, flows.AnyRevision)
	requireFields(t, err, "/tasksMax")
	_, err = w.manager.UpdateFlow(t.Context(), w.project, uuid.New(), o, flows.AnyRevision)
	requireCode(t, flows.CodeNotFound, err)
}

func TestAnUpdateThatChangesNothingIsNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	ctx, m := t.Context(), w.manager
	in := p.input("x")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
	in.StartPosition, in.StartTimestamp = flows.StartTimestamp, &at
	in.Groups = nil
	f, err := m.CreateFlow(ctx, w.project, in)
	require.NoError(t, err)
	same, err := m.UpdateFlow(ctx, w.project, f.ID, in.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, f, same)
	_, err = m.UpdateFlow(ctx, w.project, f.ID, in.Options, f.Revision+1)
	requireCode(t, flows.CodePreconditionFailed, err)
	o := in.Options
	o.Topics = []string{"x", "y"}
	changed, err := m.UpdateFlow(ctx, w.project, f.ID, o, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, f.Revision+1, changed.Revision)

	s, err := m.UpdateService(ctx, w.project, p.source.ID, inputOf(p.source), flows.AnyRevision, false)
	require.NoError(t, err)
	require.Equal(t, p.source, s)
	words := flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker, Description: "mm", Plan: "p", NodesPattern: []byte(`{"number":3, "flavor":"x"}`)}
	mm, err := m.CreateService(ctx, w.project, words, false)
	require.NoError(t, err)
	again, err := m.UpdateService(ctx, w.project, mm.ID, words, mm.Revision, false)
	require.NoError(t, err)
	require.Equal(t, mm, again)
	words.NodesPattern = []byte(`{"number":4, "flavor":"x"}`)
	again, err = m.UpdateService(ctx, w.project, mm.ID, words, mm.Revision, false)
	require.NoError(t, err)
	require.Equal(t, mm.Revision+1, again.Revision)
}

func TestAnAliasIsMadeWhenNoneIsGivenAndIsUniqueInItsProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.answerChecks(fine)()
	one, err := w.manager.CreateService(t.Context(), w.project, kafkaInput("a:1"), false)
	require.NoError(t, err)
	two, err := w.manager.CreateService(t.Context(), w.project, kafkaInput("b:1"), false)
	require.NoError(t, err)
	require.Regexp(t, `^[a-z0-9]{9}\.kafka-[a-z0-9]{8}$`, one.Alias)
	require.NotEqual(t, one.Alias, two.Alias)
	in := kafkaInput("c:1")
	in.Alias = &one.Alias
	_, err = w.manager.CreateService(t.Context(), w.project, in, false)
	requireCode(t, flows.CodeConflict, err)
	other, err := w.store.CreateProject(t.Context(), "other")
	require.NoError(t, err)
	_, err = w.manager.CreateService(t.Context(), other.ID, in, false)
	require.NoError(t, err)
	kafkas, err := w.manager.ListServices(t.Context(), w.project, flows.ServiceFilter{Engine: flows.EngineKafka}, flows.Page{})
	require.NoError(t, err)
	require.Equal(t, []flows.Service{one, two}, kafkas.Items)
	mms, err := w.manager.ListServices(t.Context(), w.project, flows.ServiceFilter{Engine: flows.EngineKafkaMirrorMaker}, flows.Page{})
	require.NoError(t, err)
	require.Empty(t, mms.Items)
}

func TestSecretsAreNowhereInTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const marker = "Tr0ub4dor-and-3-staples"
	password := marker
	in := kafkaInput("a:1")
	in.Security = flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "visible-user"}}
	in.Secrets = flows.SecretChange{flows.SecretSASLPassword: &password}
	_, err := w.managerWith(time.Millisecond).CreateService(t.Context(), w.project, in, false) // with the job still there
	require.NoError(t, err)
	_, text, err := w.store.CreateToken(t.Context(), w.project, "ci")
	require.NoError(t, err)
	dump := dumpOf(t, w.url)
	require.Contains(t, dump, "visible-user", "the dump shows what is stored")
	for _, form := range []string{marker, hex.EncodeToString([]byte(marker)), base64.RawStdEncoding.EncodeToString([]byte(marker))} {
		require.NotContains(t, dump, form)
	}
	require.NotContains(t, dump, text)
	require.NotContains(t, dump, strings.TrimPrefix(text, "mft_"))
}

// dumpOf writes all rows of all tables as text.
func dumpOf(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "jobs")
	var dump strings.Builder
	for _, table := range tables {
		rows, err := conn.Query(t.Context(), "SELECT r::text FROM "+pgx.Identifier{table}.Sanitize()+" r")
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		dump.WriteString(strings.Join(lines, "\n"))
	}
	require.NoError(t, conn.Close(t.Context()))
	return dump.String()
}

func TestWithoutAKeyServicesWithoutSecretsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.answerChecks(fine)()
	m := flows.NewManager(flows.ManagerConfig{Store: w.store})
	_, err := m.CreateService(t.Context(), w.project, kafkaInput("a:1"), false)
	require.NoError(t, err)
	in := kafkaInput("a:1")
	password := "p"
	in.Security = flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}}
	in.Secrets = flows.SecretChange{flows.SecretSASLPassword: &password}
	_, err = m.CreateService(t.Context(), w.project, in, false)
	e := requireFields(t, err, "/security/sasl/password")
	require.Contains(t, e.Message, "MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE")
}

func TestTokensBelongToAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	other, err := w.store.CreateProject(ctx, "other")
	require.NoError(t, err)
	token, text, err := w.store.CreateToken(ctx, other.ID, "ci")
	require.NoError(t, err)
	p, err := w.manager.Authenticate(ctx, text)
	require.NoError(t, err)
	require.Equal(t, other, p)
	for _, bad := range []string{"", "mft_", text + "x", strings.ToUpper(text)} {
		_, err = w.manager.Authenticate(ctx, bad)
		requireCode(t, flows.CodeUnauthenticated, err)
	}
	_, err = w.store.AddToken(ctx, w.project, "again", text)
	requireCode(t, flows.CodeConflict, err)
	list, err := w.store.ListTokens(ctx, other.ID)
	require.NoError(t, err)
	require.Equal(t, []flows.Token{token}, list)
	requireCode(t, flows.CodeNotFound, w.store.DeleteToken(ctx, w.project, token.ID))
	require.NoError(t, w.store.DeleteToken(ctx, other.ID, token.ID))
	_, err = w.manager.Authenticate(ctx, text)
	requireCode(t, flows.CodeUnauthenticated, err)
	_, _, err = w.store.CreateToken(ctx, uuid.New(), "ci")
	requireCode(t, flows.CodeNotFound, err)

	_, err = w.store.CreateProject(ctx, "other")
	requireCode(t, flows.CodeConflict, err)
	_, err = w.store.CreateProject(ctx, "")
	requireCode(t, flows.CodeInvalid, err)
	same, err := w.store.EnsureProject(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, other, same)
	p, err = w.manager.ProjectByName(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, other, p)
	_, err = w.manager.ProjectByName(ctx, "none")
	requireCode(t, flows.CodeNotFound, err)
	projects, err := w.store.ListProjects(ctx)
	require.NoError(t, err)
	require.Len(t, projects, 2)
}

func TestStatusFollowsTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.pair().flow("x")
	status := func() flows.FlowStatus {
		s, err := w.manager.FlowStatus(context.Background(), w.project, f.ID)
		require.NoError(t, err)
		return s
	}
	s := status()
	require.Equal(t, flows.StatePending, s.State)
	require.Equal(t, "NO_WORKER", s.Conditions[0].Code)
	require.Equal(t, "no worker is alive", s.Conditions[0].Message)
	require.NotEmpty(t, s.Conditions[0].Remedy)

	key := w.acquire("w1", 1)[0].LeaseKey
	require.Equal(t, flows.StateStarting, status().State)
	now := w.dbNow().UTC()
	lost, err := w.store.ReportTasks(t.Context(), "w1", []flows.TaskReport{{LeaseKey: key, Status: flows.TaskStatus{
		State: flows.StateRunning, Since: now, ObservedAt: now,
		Topics: []flows.TopicStatus{{Name: "x", RemoteName: "a.x", Partitions: []flows.PartitionStatus{{Partition: 1, RecordLag: 5, State: "RUNNING"}, {RecordLag: 2, State: "RUNNING"}}}},
	}}})
	require.NoError(t, err)
	require.Empty(t, lost)
	s = status()
	require.Equal(t, flows.StateRunning, s.State)
	require.Equal(t, now, s.ObservedAt)
	require.EqualValues(t, 7, *s.RecordLag)
	require.Empty(t, s.Conditions)
	require.Equal(t, []flows.TaskAssignment{{Task: 0, Worker: "w1", Epoch: 1}}, s.Tasks)

	w.exec("UPDATE workers SET expires_at = now() - interval '1 s'")
	s = status()
	require.Equal(t, flows.StatePending, s.State, "a report of a dead worker must not look alive")
	require.Equal(t, "WAITING", s.Topics[0].Partitions[0].State)
	require.Equal(t, now, s.ObservedAt)
	require.Empty(t, s.Tasks)

	key = w.acquire("w2", 1)[0].LeaseKey
	require.Equal(t, flows.StateStarting, status().State, "a report of another term is not the new holder's")
	lost, err = w.store.ReportTasks(t.Context(), "w2", []flows.TaskReport{{LeaseKey: key, Status: flows.TaskStatus{State: flows.StateRunning, Since: now, ObservedAt: now}}})
	require.NoError(t, err)
	require.Empty(t, lost)
	f.Enabled = false
	_, err = w.manager.UpdateFlow(t.Context(), w.project, f.ID, f.Options, flows.AnyRevision)
	require.NoError(t, err)
	require.Equal(t, flows.StateRunning, status().State, "it is still running")
	require.NoError(t, w.store.ReleaseTasks(t.Context(), "w2", []flows.LeaseKey{key}))
	s = status()
	require.Equal(t, flows.StateStopped, s.State)
	require.Empty(t, s.Conditions)
}

func TestFlowsLearnAliasesThatANewFlowBringsToThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	first := p.flow("x") // src -> dst
	revision := func(f flows.Flow) int64 {
		got, err := w.manager.GetFlow(t.Context(), w.project, f.ID)
		require.NoError(t, err)
		return got.Revision
	}
	create := func(from, to flows.Integration, topic string) flows.Flow {
		in := p.input(topic)
		in.SourceIntegration, in.TargetIntegration = from.ID, to.ID
		f, err := w.manager.CreateFlow(t.Context(), w.project, in)
		require.NoError(t, err)
		return f
	}
	create(p.to, p.from, "y")
	require.Equal(t, first.Revision, revision(first), "both aliases were known")

	// Another cluster, and one that is src under another name.
	late := w.integration(w.kafka("late", "L"), p.mm)
	twin := w.integration(w.kafka("twin-of-src", "A"), p.mm)
	require.Equal(t, first.Revision, revision(first), "an alias that no flow brings matters to nobody")
	third := create(p.to, late, "z") // dst -> late: downstream of first, which hears nothing new
	require.Equal(t, first.Revision, revision(first))
	create(late, twin, "z")
	require.Equal(t, first.Revision+1, revision(first), "late.z comes to src, where first begins")
	create(late, twin, "zz")
	require.Equal(t, first.Revision+1, revision(first), "it knows now")
	require.Equal(t, third.Revision, revision(third), "third began when late was there")
}

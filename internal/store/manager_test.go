package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestCreateAnswersWhatGetAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.answerChecks(fine)()
	ctx := t.Context()
	secret := "s3cret"
	alias := "my.alias-1"
	s, err := w.manager.CreateService(ctx, w.project, flows.ServiceInput{
		Engine: flows.EngineKafka, Description: "orders", Alias: &alias, BootstrapServers: []string{"a:9092", "[::1]:9093"},
		Security: flows.Security{Protocol: "SASL_PLAINTEXT", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}},
		Secrets:  flows.SecretChange{flows.SecretSASLPassword: &secret},
	}, false)
	require.NoError(t, err)
	require.Equal(t, flows.StatusReady, s.Status)
	require.Equal(t, "cluster-of-a:9092", s.KafkaClusterID)
	require.Equal(t, "3.9", s.KafkaVersion)
	require.Len(t, s.Sealed, 1)
	got, err := w.manager.GetService(ctx, w.project, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)

	mm, err := w.manager.CreateService(ctx, w.project, flows.ServiceInput{
		Engine: flows.EngineKafkaMirrorMaker, Plan: "business", Version: "3.8", NodesPattern: []byte(`{"flavor": "b3-8", "number": 3, "region": "GRA"}`),
	}, false)
	require.NoError(t, err)
	require.JSONEq(t, `{"flavor": "b3-8", "number": 3, "region": "GRA"}`, string(mm.NodesPattern))
	got, err = w.manager.GetService(ctx, w.project, mm.ID)
	require.NoError(t, err)
	require.Equal(t, mm, got)

	i, err := w.manager.CreateIntegration(ctx, w.project, flows.IntegrationInput{
		SourceServiceID: s.ID, DestinationServiceID: mm.ID, Parameters: map[string]string{"a": "b"},
	})
	require.NoError(t, err)
	gotI, err := w.manager.GetIntegration(ctx, w.project, i.ID)
	require.NoError(t, err)
	require.Equal(t, i, gotI)
	require.Equal(t, "kafkaMirrorMaker", i.Type)

	other := w.integration(w.kafka("other", "O"), mm)
	at := time.Date(2024, 5, 6, 7, 8, 9, 123000000, time.FixedZone("x", 3600))
	in := flows.FlowInput{SourceIntegration: i.ID, TargetIntegration: other.ID, Options: flows.DefaultOptions()}
	in.StartPosition, in.StartTimestamp = flows.StartTimestamp, &at
	in.Topics, in.TopicExcludeList = nil, []string{"a", "b.*"}
	rate := int64(2_000_000)
	in.MaxBytesPerSecond = &rate
	f, err := w.manager.CreateFlow(ctx, w.project, in)
	require.NoError(t, err)
	require.Equal(t, []string{}, f.Topics)
	require.True(t, at.Equal(*f.StartTimestamp))
	require.Equal(t, mm.ID, f.MirrorMakerID)
	gotF, err := w.manager.GetFlow(ctx, w.project, f.ID)
	require.NoError(t, err)
	require.Equal(t, f, gotF)
	require.Equal(t, rate, *f.MaxBytesPerSecond)

	less := int64(1024)
	for i, r := range []*int64{&less, nil, &rate} {
		o := f.Options
		o.MaxBytesPerSecond = r
		f, err = w.manager.UpdateFlow(ctx, w.project, f.ID, o, f.Revision)
		require.NoError(t, err)
		require.Equal(t, r, f.MaxBytesPerSecond)
		require.EqualValues(t, 2+i, f.Revision)
	}
}

func TestTwentyParallelCreatesOfDisjointTopicsGiveTwentyFlows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	errs := make([]error, 20)
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() {
			_, errs[n] = w.manager.CreateFlow(t.Context(), w.project, p.input(fmt.Sprintf("topic-%d", n)))
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	l, err := w.manager.ListFlows(t.Context(), w.project, flows.FlowFilter{MirrorMakerID: p.mm.ID}, flows.Page{})
	require.NoError(t, err)
	require.Len(t, l.Items, 20)
	require.Equal(t, 20, w.queryInt("SELECT count(*) FROM tasks WHERE runnable"))
}

func TestOfTwoParallelDoublesOneIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	for round := range 10 {
		var made [2]flows.Flow
		var errs [2]error
		var wg sync.WaitGroup
		for n := range errs {
			wg.Go(func() {
				made[n], errs[n] = w.manager.CreateFlow(t.Context(), w.project, p.input("shared-"+fmt.Sprint(round), fmt.Sprintf("own-%d-%d", round, n)))
			})
		}
		wg.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		require.NoError(t, errs[won])
		requireCode(t, flows.CodeConflict, errs[1-won])
		require.Contains(t, errs[1-won].Error(), made[won].ID.String())
	}
	require.Equal(t, 10, w.queryInt("SELECT count(*) FROM flows"))
}

func TestObjectsOfAnotherProjectDoNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	f := p.flow("x")
	other, err := w.store.CreateProject(t.Context(), "other")
	require.NoError(t, err)
	ctx, m := t.Context(), w.manager

	_, err = m.GetService(ctx, other.ID, p.source.ID)
	requireCode(t, flows.CodeNotFound, err)
	_, err = m.UpdateService(ctx, other.ID, p.mm.ID, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, flows.AnyRevision, false)
	requireCode(t, flows.CodeNotFound, err)
	requireCode(t, flows.CodeNotFound, m.DeleteService(ctx, other.ID, p.source.ID, flows.AnyRevision))
	_, err = m.GetIntegration(ctx, other.ID, p.from.ID)
	requireCode(t, flows.CodeNotFound, err)
	requireCode(t, flows.CodeNotFound, m.DeleteIntegration(ctx, other.ID, p.from.ID))
	_, err = m.GetFlow(ctx, other.ID, f.ID)
	requireCode(t, flows.CodeNotFound, err)
	_, err = m.UpdateFlow(ctx, other.ID, f.ID, f.Options, flows.AnyRevision)
	requireCode(t, flows.CodeNotFound, err)
	requireCode(t, flows.CodeNotFound, m.DeleteFlow(ctx, other.ID, f.ID, false, flows.AnyRevision))
	requireCode(t, flows.CodeNotFound, m.DeleteFlow(ctx, other.ID, f.ID, true, flows.AnyRevision))
	_, err = m.FlowStatus(ctx, other.ID, f.ID)
	requireCode(t, flows.CodeNotFound, err)
	_, err = m.ListFlowEvents(ctx, other.ID, f.ID, flows.Page{})
	requireCode(t, flows.CodeNotFound, err)

	_, err = m.CreateIntegration(ctx, other.ID, flows.IntegrationInput{SourceServiceID: p.source.ID, DestinationServiceID: p.mm.ID})
	requireFields(t, err, "/sourceServiceId", "/destinationServiceId")
	_, err = m.CreateFlow(ctx, other.ID, p.input("y"))
	requireFields(t, err, "/sourceIntegration", "/targetIntegration")
	for _, list := range []func() (int, error){
		func() (int, error) {
			l, err := m.ListServices(ctx, other.ID, flows.ServiceFilter{}, flows.Page{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := m.ListIntegrations(ctx, other.ID, flows.IntegrationFilter{}, flows.Page{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := m.ListFlows(ctx, other.ID, flows.FlowFilter{}, flows.Page{})
			return len(l.Items), err
		},
	} {
		n, err := list()
		require.NoError(t, err)
		require.Zero(t, n)
	}
	_, err = m.GetFlow(ctx, w.project, f.ID)
	require.NoError(t, err)
}

// requireFields wants CodeInvalid with exactly these pointers.
func requireFields(t *testing.T, err error, pointers ...string) *flows.Error {
	t.Helper()
	requireCode(t, flows.CodeInvalid, err)
	var e *flows.Error
	require.ErrorAs(t, err, &e)
	var got []string
	for _, f := range e.Fields {
		got = append(got, f.Pointer)
	}
	require.Equal(t, pointers, got, "%v", err)
	return e
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pair()
	want := map[uuid.UUID]bool{}
	for n := range 7 {
		want[p.flow(fmt.Sprintf("t%d", n)).ID] = true
	}
	got := map[uuid.UUID]bool{}
	page := flows.Page{Limit: 3}
	for pages := 1; ; pages++ {
		l, err := w.manager.ListFlows(t.Context(), w.project, flows.FlowFilter{}, page)
		require.NoError(t, err)
		for _, f := range l.Items {
			require.False(t, got[f.ID])
			got[f.ID] = true
		}
		if page.Cursor = l.Next; page.Cursor == "" {
			require.Equal(t, 3, pages)
			break
		}
	}
	require.Equal(t, want, got)
	for _, bad := range []flows.Page{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}, {Cursor: "AAAA"}} {
		_, err := w.manager.ListFlows(t.Context(), w.project, flows.FlowFilter{}, bad)
		requireCode(t, flows.CodeInvalid, err)
		_, err = w.manager.ListFlowEvents(t.Context(), w.project, p.flow("e"+uuid.NewString()).ID, bad)
		requireCode(t, flows.CodeInvalid, err)
	}
}

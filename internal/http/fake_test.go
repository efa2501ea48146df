package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	httpapi "github.com/mirrorflow/mirrorflow/internal/http"
)

var (
	projectID = uuid.MustParse("0197f3a0-0000-7000-8000-000000000001")
	kafkaID   = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000a1")
	mmID      = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000b1")
	otherMMID = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000b2")
	sourceID  = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000c1")
	targetID  = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000c2")
	flowID    = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000d1")
	missingID = uuid.MustParse("0197f3a0-0000-7000-8000-0000000000ff")
	epoch     = time.Date(2026, 11, 30, 22, 0, 0, 123456000, time.UTC)
)

const (
	bearerToken = "good-token"
	project     = "p1"
	base        = "/cloud/project/p1/database/kafkaMirrorMaker"
)

// script is a flows.API that answers what a test laid out and records what it
// was asked. It knows no rules: those are tested with the Manager.
type script struct {
	mu           sync.Mutex
	services     map[uuid.UUID]flows.Service
	integrations map[uuid.UUID]flows.Integration
	flows        map[uuid.UUID]flows.Flow
	status       flows.FlowStatus
	events       flows.List[flows.Event]

	// fail, when set, is asked before every call by the method's name.
	fail func(method string) error

	calls           []string
	serviceInputs   []flows.ServiceInput
	integrationIns  []flows.IntegrationInput
	flowInputs      []flows.FlowInput
	options         []flows.Options
	revisions       []int64
	forces, forgets []bool
	pages           []flows.Page
}

func (s *script) called(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method)
	if s.fail != nil {
		return s.fail(method)
	}
	return nil
}

func absent() error {
	return &flows.Error{Code: flows.CodeNotFound, Message: "there is no such object"}
}

func (s *script) CreateService(_ context.Context, p uuid.UUID, in flows.ServiceInput, force bool) (flows.Service, error) {
	s.serviceInputs, s.forces = append(s.serviceInputs, in), append(s.forces, force)
	if err := s.called("CreateService"); err != nil {
		return flows.Service{}, err
	}
	out := flows.Service{
		ID: kafkaID, ProjectID: p, Engine: in.Engine, Description: in.Description, BootstrapServers: in.BootstrapServers, Security: in.Security,
		Plan: in.Plan, Version: in.Version, NodesPattern: in.NodesPattern, Status: flows.StatusReady, Revision: 1, CreatedAt: epoch, UpdatedAt: epoch,
	}
	if in.Engine == flows.EngineKafka {
		out.Alias = "generated.kafka-1"
		if out.Security.Protocol == "" {
			out.Security.Protocol = "PLAINTEXT"
		}
	}
	if in.Alias != nil {
		out.Alias = *in.Alias
	}
	return out, nil
}

func (s *script) GetService(_ context.Context, _, id uuid.UUID) (flows.Service, error) {
	if err := s.called("GetService"); err != nil {
		return flows.Service{}, err
	}
	if v, ok := s.services[id]; ok {
		return v, nil
	}
	return flows.Service{}, absent()
}

func (s *script) ListServices(_ context.Context, _ uuid.UUID, f flows.ServiceFilter, p flows.Page) (flows.List[flows.Service], error) {
	s.pages = append(s.pages, p)
	var l flows.List[flows.Service]
	for _, id := range []uuid.UUID{kafkaID, mmID, otherMMID} {
		if v, ok := s.services[id]; ok && (f.Engine == "" || f.Engine == v.Engine) {
			l.Items = append(l.Items, v)
		}
	}
	return l, s.called("ListServices")
}

func (s *script) UpdateService(_ context.Context, _, id uuid.UUID, in flows.ServiceInput, rev int64, force bool) (flows.Service, error) {
	s.serviceInputs, s.forces, s.revisions = append(s.serviceInputs, in), append(s.forces, force), append(s.revisions, rev)
	out := s.services[id]
	out.Description, out.Plan, out.Version, out.NodesPattern, out.Security = in.Description, in.Plan, in.Version, in.NodesPattern, in.Security
	if out.Engine == flows.EngineKafka && out.Security.Protocol == "" {
		out.Security.Protocol = "PLAINTEXT"
	}
	out.Revision++
	return out, s.called("UpdateService")
}

func (s *script) DeleteService(_ context.Context, _, _ uuid.UUID, rev int64) error {
	s.revisions = append(s.revisions, rev)
	return s.called("DeleteService")
}

func (s *script) CreateIntegration(_ context.Context, p uuid.UUID, in flows.IntegrationInput) (flows.Integration, error) {
	s.integrationIns = append(s.integrationIns, in)
	return flows.Integration{
		ID: sourceID, ProjectID: p, Type: "kafkaMirrorMaker", SourceServiceID: in.SourceServiceID, DestinationServiceID: in.DestinationServiceID,
		Parameters: in.Parameters, Status: flows.StatusReady, CreatedAt: epoch,
	}, s.called("CreateIntegration")
}

func (s *script) GetIntegration(_ context.Context, _, id uuid.UUID) (flows.Integration, error) {
	if err := s.called("GetIntegration"); err != nil {
		return flows.Integration{}, err
	}
	if v, ok := s.integrations[id]; ok {
		return v, nil
	}
	return flows.Integration{}, absent()
}

func (s *script) ListIntegrations(_ context.Context, _ uuid.UUID, _ flows.IntegrationFilter, p flows.Page) (flows.List[flows.Integration], error) {
	s.pages = append(s.pages, p)
	var l flows.List[flows.Integration]
	for _, id := range []uuid.UUID{sourceID, targetID} {
		if v, ok := s.integrations[id]; ok {
			l.Items = append(l.Items, v)
		}
	}
	return l, s.called("ListIntegrations")
}

func (s *script) DeleteIntegration(context.Context, uuid.UUID, uuid.UUID) error {
	return s.called("DeleteIntegration")
}

func (s *script) CreateFlow(_ context.Context, p uuid.UUID, in flows.FlowInput) (flows.Flow, error) {
	s.flowInputs = append(s.flowInputs, in)
	out := flows.Flow{
		ID: flowID, ProjectID: p, MirrorMakerID: mmID, SourceIntegration: in.SourceIntegration, TargetIntegration: in.TargetIntegration,
		ReplicationPolicyClass: in.ReplicationPolicyClass, ReplicationPolicySeparator: in.ReplicationPolicySeparator, Options: in.Options,
		Revision: 1, CreatedAt: epoch, UpdatedAt: epoch,
	}
	if out.ReplicationPolicyClass == "" {
		out.ReplicationPolicyClass = flows.DefaultPolicyClass
	}
	if out.ReplicationPolicySeparator == "" {
		out.ReplicationPolicySeparator = "."
	}
	return out, s.called("CreateFlow")
}

func (s *script) GetFlow(_ context.Context, _, id uuid.UUID) (flows.Flow, error) {
	if err := s.called("GetFlow"); err != nil {
		return flows.Flow{}, err
	}
	if v, ok := s.flows[id]; ok {
		return v, nil
	}
	return flows.Flow{}, absent()
}

func (s *script) ListFlows(_ context.Context, _ uuid.UUID, _ flows.FlowFilter, p flows.Page) (flows.List[flows.Flow], error) {
	s.pages = append(s.pages, p)
	l := flows.List[flows.Flow]{}
	if v, ok := s.flows[flowID]; ok {
		l.Items = append(l.Items, v)
	}
	if p.Limit == 1 {
		l.Next = "bmV4dA"
	}
	return l, s.called("ListFlows")
}

func (s *script) UpdateFlow(_ context.Context, _, id uuid.UUID, o flows.Options, rev int64) (flows.Flow, error) {
	s.options, s.revisions = append(s.options, o), append(s.revisions, rev)
	out := s.flows[id]
	out.Options = o
	out.Revision++
	return out, s.called("UpdateFlow")
}

func (s *script) DeleteFlow(_ context.Context, _, _ uuid.UUID, forget bool, rev int64) error {
	s.forgets, s.revisions = append(s.forgets, forget), append(s.revisions, rev)
	return s.called("DeleteFlow")
}

func (s *script) FlowStatus(_ context.Context, _, id uuid.UUID) (flows.FlowStatus, error) {
	if _, ok := s.flows[id]; !ok {
		return flows.FlowStatus{}, absent()
	}
	return s.status, s.called("FlowStatus")
}

func (s *script) ListFlowEvents(_ context.Context, _, id uuid.UUID, p flows.Page) (flows.List[flows.Event], error) {
	s.pages = append(s.pages, p)
	if _, ok := s.flows[id]; !ok {
		return flows.List[flows.Event]{}, absent()
	}
	return s.events, s.called("ListFlowEvents")
}

func (s *script) Authenticate(_ context.Context, text string) (flows.Project, error) {
	if err := s.called("Authenticate"); err != nil {
		return flows.Project{}, err
	}
	if text != bearerToken {
		return flows.Project{}, &flows.Error{Code: flows.CodeUnauthenticated, Message: "the token is unknown"}
	}
	return flows.Project{ID: projectID, Name: project, CreatedAt: epoch}, nil
}

func (s *script) ProjectByName(_ context.Context, name string) (flows.Project, error) {
	return flows.Project{ID: projectID, Name: name, CreatedAt: epoch}, s.called("ProjectByName")
}

func (s *script) Ready(context.Context) error { return s.called("Ready") }

// sampleFlow has no option at its default.
func sampleFlow() flows.Flow {
	start, rate := epoch, int64(9_000_000)
	return flows.Flow{
		ID: flowID, ProjectID: projectID, MirrorMakerID: mmID, SourceIntegration: sourceID, TargetIntegration: targetID,
		ReplicationPolicyClass: flows.IdentityPolicyClass, ReplicationPolicySeparator: "_",
		Options: flows.Options{
			Enabled: true, Topics: []string{"a", "b.*"}, TopicExcludeList: []string{"b.x"}, SyncGroupOffsets: true, SyncInterval: 7 * time.Second,
			EmitHeartbeats: false, Groups: []string{"g"}, GroupExcludeList: []string{}, TasksMax: 3, ReplicationFactor: 2,
			OffsetSyncsTopicLocation: "source", OffsetLagMax: 5, IsolationLevel: "read_uncommitted", StartPosition: flows.StartTimestamp,
			StartTimestamp: &start, SyncTopicConfigs: false, TopicConfigSyncMode: "mirror", ConfigPropertiesExclude: []string{"x"},
			EmitHeartbeatsInterval: 2 * time.Second, EmitBackwardHeartbeats: true, EmitCheckpointsInterval: 3 * time.Second,
			RefreshTopicsInterval: 4 * time.Second, RefreshGroupsInterval: 6 * time.Second,
			MaxBytesPerSecond: &rate,
		},
		Revision: 7, CreatedAt: epoch, UpdatedAt: epoch.Add(time.Minute),
	}
}

func sampleKafka() flows.Service {
	return flows.Service{
		ID: kafkaID, ProjectID: projectID, Engine: flows.EngineKafka, Description: "orders", Alias: "a.kafka-1", BootstrapServers: []string{"10.0.0.5:9092"},
		Security: flows.Security{
			Protocol: "SASL_SSL", TLS: &flows.TLSSpec{CA: "ca", Cert: "cert", ServerName: "name"},
			SASL: &flows.SASLSpec{Mechanism: "SCRAM-SHA-512", Username: "mirror"},
		},
		Sealed: map[flows.SecretField]flows.SealedSecret{
			flows.SecretSASLPassword: {KeyID: "k1", Box: []byte("sealed-box")}, flows.SecretTLSKey: {KeyID: "k1", Box: []byte("sealed-box")},
		},
		KafkaClusterID: "MkU3OEVBNTcwNTJENDM2Qk", KafkaVersion: "3.9", Status: flows.StatusReady, Revision: 4, CreatedAt: epoch, UpdatedAt: epoch,
	}
}

func sampleMM(id uuid.UUID) flows.Service {
	return flows.Service{
		ID: id, ProjectID: projectID, Engine: flows.EngineKafkaMirrorMaker, Description: "mm", Plan: "essential", Version: "3.8",
		NodesPattern: json.RawMessage(`{"flavor":"db1-4","number":2,"region":"GRA"}`), Status: flows.StatusReady, Revision: 2, CreatedAt: epoch, UpdatedAt: epoch,
	}
}

func newScript() *script {
	integration := func(id uuid.UUID) flows.Integration {
		return flows.Integration{ID: id, Type: "kafkaMirrorMaker", SourceServiceID: kafkaID, DestinationServiceID: mmID, Status: flows.StatusReady, CreatedAt: epoch}
	}
	return &script{
		services:     map[uuid.UUID]flows.Service{kafkaID: sampleKafka(), mmID: sampleMM(mmID), otherMMID: sampleMM(otherMMID)},
		integrations: map[uuid.UUID]flows.Integration{sourceID: integration(sourceID), targetID: integration(targetID)},
		flows:        map[uuid.UUID]flows.Flow{flowID: sampleFlow()},
		status:       flows.FlowStatus{TaskStatus: flows.TaskStatus{State: flows.StateRunning, Since: epoch, ObservedAt: epoch}},
	}
}

// edge is a server under test: every answer it gives is held against the contract.
type edge struct {
	t       *testing.T
	api     *script
	handler http.Handler
	log     *bytes.Buffer
	reg     *prometheus.Registry
}

func newEdge(t *testing.T, change ...func(*httpapi.Config)) *edge {
	t.Helper()
	e := &edge{t: t, api: newScript(), log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	cfg := httpapi.Config{
		API: e.api, Registerer: e.reg, Now: func() time.Time { return epoch },
		Logger:            slog.New(slog.NewJSONHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnInvalidResponse: func(_ *http.Request, err error) { t.Error(err) },
	}
	for _, c := range change {
		c(&cfg)
	}
	e.handler = httpapi.New(cfg)
	return e
}

func (e *edge) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	e.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(e.t.Context(), method, path, reader)
	r.Header.Set("Authorization", "Bearer "+bearerToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, r)
	return w
}

// ok wants a status and returns the body.
func (e *edge) ok(status int, w *httptest.ResponseRecorder) map[string]any {
	e.t.Helper()
	require.Equal(e.t, status, w.Code, w.Body.String())
	if w.Body.Len() == 0 {
		return nil
	}
	return tree(e.t, w.Body.Bytes())
}

func tree(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(text, &out), string(text))
	return out
}

// pointers returns where a flat problem says something is wrong.
func pointers(t *testing.T, w *httptest.ResponseRecorder) []string {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	var p struct {
		Errors []struct{ Pointer, Parameter, Message string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	var out []string
	for _, f := range p.Errors {
		require.NotEmpty(t, f.Message)
		if f.Parameter != "" {
			require.Empty(t, f.Pointer)
			f.Pointer = "?" + f.Parameter
		}
		out = append(out, f.Pointer)
	}
	return out
}

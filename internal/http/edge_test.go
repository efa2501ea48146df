package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	httpapi "github.com/mirrorflow/mirrorflow/internal/http"
	"github.com/mirrorflow/mirrorflow/internal/http/client"
)

func TestEveryCodeOfTheDomainHasAnAnswer(t *testing.T) {
	t.Parallel()
	want := map[flows.Code]int{
		flows.CodeInvalid: 400, flows.CodeUnauthenticated: 401, flows.CodeForbidden: 403, flows.CodeNotFound: 404, flows.CodeConflict: 409,
		flows.CodePreconditionFailed: 412, flows.CodeCheckFailed: 422, flows.CodeRateLimited: 429, flows.CodeInternal: 500, flows.CodeLeaseLost: 500,
		flows.CodeUnavailable: 503,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../flows/error.go", nil, 0)
	require.NoError(t, err)
	found := 0
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
				continue
			}
			found++
			code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			status, class := httpapi.StatusOf(flows.Code(code))
			require.NotZero(t, status, code)
			require.Equal(t, want[flows.Code(code)], status, code)
			side := "Client::"
			if status >= 500 {
				side = "Server::"
			}
			require.True(t, strings.HasPrefix(class, side), class)
		}
	}
	require.Equal(t, len(want), found)
}

func TestDomainErrorsBecomeAnswersInBothShapes(t *testing.T) {
	t.Parallel()
	for code, want := range map[flows.Code]struct {
		status     int
		retryAfter string
	}{
		flows.CodeInvalid: {400, ""}, flows.CodeForbidden: {403, ""}, flows.CodeConflict: {409, ""},
		flows.CodeRateLimited: {429, "3"}, flows.CodeUnavailable: {503, "3"}, flows.CodeInternal: {500, ""}, flows.CodeLeaseLost: {500, ""},
	} {
		e := newEdge(t)
		e.api.fail = func(method string) error {
			if method == "CreateFlow" {
				return fmt.Errorf("wrapped: %w", &flows.Error{Code: code, Message: "said to the user", RetryAfter: 2500 * time.Millisecond, Op: "op", Err: errors.New("private cause")})
			}
			return nil
		}
		for _, path := range []string{"/replications", mmPath + "/replication"} {
			w := e.do(http.MethodPost, path, withEnds(`{"enabled":true}`))
			require.Equal(t, want.status, w.Code, w.Body.String())
			require.Equal(t, want.retryAfter, w.Header().Get("Retry-After"))
			require.NotContains(t, w.Body.String(), "private cause")
			if want.status >= 500 && want.status != 503 {
				require.NotContains(t, w.Body.String(), "said to the user")
				require.Contains(t, e.log.String(), "private cause", "the log has what the answer has not")
			} else {
				require.Contains(t, w.Body.String(), "said to the user")
			}
		}
	}
}

func TestACursorOfSomebodyElseIsNamed(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.fail = func(method string) error {
		if strings.HasPrefix(method, "List") {
			return &flows.Error{Code: flows.CodeInvalid, Message: "is not one that this API gave out"}
		}
		return nil
	}
	for _, path := range []string{"/services", "/integrations", "/replications", "/replications/" + flowID.String() + "/events"} {
		w := e.do(http.MethodGet, path+"?cursor=x", "")
		require.Equal(t, http.StatusBadRequest, w.Code, path)
		require.Equal(t, []string{"?cursor"}, pointers(t, w), path)
	}
}

func TestACheckThatFailedIsAnswered422(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.fail = func(method string) error {
		if method == "CreateService" || method == "UpdateService" {
			return &flows.Error{Code: flows.CodeCheckFailed, Message: "step authenticate: the password is wrong"}
		}
		return nil
	}
	body := `{"engine":"kafka","bootstrapServers":["h:1"]}`
	for _, w := range []*httptest.ResponseRecorder{
		e.do(http.MethodPost, "/services", body), e.do(http.MethodPut, "/services/"+kafkaID.String(), body),
		e.do(http.MethodPatch, "/services/"+kafkaID.String(), `{"description":"x"}`),
	} {
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, w.Body.String())
		require.Contains(t, w.Body.String(), "step authenticate")
	}
}

func TestMalformedIdsAreRefusedNamingTheParameter(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, id := range []string{"x", "7", "%7B0197f3a0-0000-7000-8000-0000000000c1%7D", "0197f3a0000070008000000000000000c1", "0197f3a0-0000-7000-8000-0000000000c1x"} {
		for _, path := range []string{"/services/", "/integrations/", "/replications/"} {
			w := e.do(http.MethodGet, path+id, "")
			require.Equal(t, http.StatusBadRequest, w.Code, path+id)
			require.Equal(t, []string{"?id"}, pointers(t, w))
		}
	}
	require.NotContains(t, e.api.calls, "GetFlow")
	for _, path := range []string{"/services/", "/integrations/", "/replications/"} {
		w := e.do(http.MethodGet, path+missingID.String(), "")
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, "urn:mirrorflow:problem:not_found", tree(t, w.Body.Bytes())["type"])
	}
	e.ok(http.StatusOK, e.do(http.MethodGet, "/replications/"+strings.ToUpper(flowID.String()), ""))
}

func TestUnknownRoutesAreAnsweredInTheirFamilysShape(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, path := range []string{"/", "/nothing", "/services/", "/services/x/y", "/v1/services/x/y", "/1.0/replications/", "/metrics", "//services", "/v1/v1/services"} {
		w := e.do(http.MethodGet, path, "", "Authorization", "")
		require.Equal(t, http.StatusNotFound, w.Code, path)
		switch path {
		case "/v1/v1/services":
			require.Contains(t, w.Body.String(), `"class":"Client::NotFound"`)
		default:
			require.Equal(t, "urn:mirrorflow:problem:no_route", tree(t, w.Body.Bytes())["type"], path)
		}
	}
	for _, path := range []string{"/v1/services", "/1.0/services"} {
		require.Equal(t, http.StatusOK, e.do(http.MethodGet, path, "").Code)
	}
	w := e.do("BREW", "/services", "")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Contains(t, w.Header().Get("Content-Type"), "json")
}

func TestHeadAnswersAsGetWithoutABody(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(newEdge(t).handler)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, srv.URL+"/replications/"+flowID.String(), nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+bearerToken)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, `"7"`, res.Header.Get("ETag"))
}

func TestWithoutAuthenticationRequestsActInTheDefaultProject(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(c *httpapi.Config) { c.Auth = httpapi.AuthNone })
	e.ok(http.StatusOK, e.do(http.MethodGet, "/replications", "", "Authorization", ""))
	e.ok(http.StatusOK, e.do(http.MethodGet, "/replications", "", "Authorization", ""))
	found := 0
	for _, c := range e.api.calls {
		require.NotEqual(t, "Authenticate", c)
		if c == "ProjectByName" {
			found++
		}
	}
	require.Equal(t, 1, found, "the project is found once")
	require.Equal(t, http.StatusOK, e.do(http.MethodGet, "/cloud/project/default/database/kafkaMirrorMaker", "").Code)
	require.Equal(t, http.StatusNotFound, e.do(http.MethodGet, "/cloud/project/p1/database/kafkaMirrorMaker", "").Code)
}

func TestReadinessFollowsTheDomainAndLivenessDoesNot(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	require.JSONEq(t, `{"status":"ok"}`, e.do(http.MethodGet, "/readyz", "", "Authorization", "").Body.String())
	e.api.fail = func(string) error { return errors.New("no database") }
	w := e.do(http.MethodGet, "/readyz", "", "Authorization", "")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, e.do(http.MethodGet, "/healthz", "", "Authorization", "").Code)
}

func TestRequestsAreGivenUpAfterTheirTime(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(c *httpapi.Config) { c.RequestTimeout = time.Millisecond; c.API = waiting{API: c.API} })
	for _, path := range []string{"/replications/" + flowID.String(), "/replications"} {
		w := e.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body.String())
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
}

// waiting answers when the request's time is over, in the two ways a domain may say so.
type waiting struct{ flows.API }

func (waiting) GetFlow(ctx context.Context, _, _ uuid.UUID) (flows.Flow, error) {
	<-ctx.Done()
	return flows.Flow{}, ctx.Err()
}

func (waiting) ListFlows(ctx context.Context, _ uuid.UUID, _ flows.FlowFilter, _ flows.Page) (flows.List[flows.Flow], error) {
	<-ctx.Done()
	return flows.List[flows.Flow]{}, &flows.Error{Code: flows.CodeInternal, Err: ctx.Err()}
}

func TestAPanicIsAnswered500AndTheStackIsLogged(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.fail = func(method string) error {
		if method == "GetFlow" {
			panic("marker-of-a-panic")
		}
		return nil
	}
	for _, path := range []string{"/replications/" + flowID.String(), flowPath} {
		w := e.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.NotContains(t, w.Body.String(), "marker")
	}
	require.Contains(t, e.log.String(), "http handler panicked")
	require.NotContains(t, e.log.String(), `"error":"marker`)
}

func TestRequestIdsAreTakenWhenHarmless(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	require.Equal(t, "abc-1.2_3", e.do(http.MethodGet, "/healthz", "", "X-Request-Id", "abc-1.2_3").Header().Get("X-Request-Id"))
	for _, bad := range []string{"", "a b", "a\"b", strings.Repeat("a", 65), "é"} {
		got := e.do(http.MethodGet, "/healthz", "", "X-Request-Id", bad).Header().Get("X-Request-Id")
		require.NotEqual(t, bad, got)
		require.Len(t, got, 36)
	}
	h := e.do(http.MethodGet, "/healthz", "").Header()
	require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", h.Get("Cache-Control"))
	require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
}

func TestMetricsCountByRoutePattern(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics here")) })
	e := newEdge(t, func(c *httpapi.Config) { c.Metrics = metrics })
	e.do(http.MethodGet, "/replications/"+flowID.String(), "")
	e.do(http.MethodGet, "/replications/"+missingID.String(), "")
	e.do(http.MethodGet, "/v1"+flowPath, "")
	e.do(http.MethodGet, "/nothing/"+missingID.String(), "")
	e.do("BREW", "/services", "")
	require.Equal(t, "metrics here", e.do(http.MethodGet, "/metrics", "", "Authorization", "").Body.String())
	families, err := e.reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "http_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	require.Equal(t, map[string]float64{
		"GET /cloud/project/{serviceName}/database/kafkaMirrorMaker/{clusterId}/replication/{replicationId} 2xx": 1,
		"GET /metrics 2xx": 1, "GET /replications/{id} 2xx": 1, "GET /replications/{id} 4xx": 1, "GET none 4xx": 1, "other none 4xx": 1,
	}, got)
}

const marker = "s3cr3t-marker-7f9a"

func TestSecretsAreInNoAnswerAndNoLog(t *testing.T) {
	t.Parallel()
	secrets := `{"engine":"kafka","bootstrapServers":["h:1"],"security":{"protocol":"SASL_SSL","tls":{"cert":"c","key":"` + marker + `"},
		"sasl":{"mechanism":"OAUTHBEARER","password":"` + marker + `","clientSecret":"` + marker + `"}}`
	e := newEdge(t)
	bodies := []string{
		secrets + `}`,                            // fine
		secrets + `,"unknown":"` + marker + `"}`, // refused
		secrets + `,"description":7}`,            // refused
		secrets,                                  // broken
		`{"engine":"kafka","security":{"protocol":"` + marker + `","sasl":{"mechanism":"` + marker + `","password":["` + marker + `"]}}}`,
		`{"engine":"kafka","security":"` + marker + `"}`,
		`"` + marker + `"`,
		`{"engine":"kafka","alias":"` + marker + `/","bootstrapServers":["` + marker + `"],"security":{"protocol":"SASL_SSL","sasl":{"mechanism":"PLAIN","password":"` + strings.Repeat(marker, 2000) + `"}}}`,
	}
	var answers strings.Builder
	for _, body := range bodies {
		for _, w := range []*httptest.ResponseRecorder{
			e.do(http.MethodPost, "/services?force=true", body),
			e.do(http.MethodPut, "/services/"+kafkaID.String(), body),
			e.do(http.MethodPatch, "/services/"+kafkaID.String(), body),
			e.do(http.MethodPost, base, body),
			e.do(http.MethodPut, mmPath, body),
		} {
			fmt.Fprintf(&answers, "%v %s\n", w.Header(), w.Body)
		}
	}
	e.do(http.MethodGet, "/services?token="+marker, "", "Authorization", "Bearer "+marker, "Cookie", marker)
	e.do(http.MethodGet, "/services?cursor="+marker, "")
	e.api.fail = func(method string) error {
		if method == "CreateService" {
			panic(marker)
		}
		return nil
	}
	w := e.do(http.MethodPost, "/services", bodies[0])
	require.Equal(t, http.StatusInternalServerError, w.Code)
	fmt.Fprintf(&answers, "%v %s\n", w.Header(), w.Body)
	require.NotContains(t, answers.String(), marker)
	require.NotContains(t, e.log.String(), marker)
	require.NotContains(t, answers.String(), "sealed-box")
	require.Contains(t, e.log.String(), `"route":"/services/{id}"`)
}

func TestTheGeneratedClientSpeaksTheContract(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	srv := httptest.NewServer(e.handler)
	defer srv.Close()
	c, err := client.NewClientWithResponses(srv.URL, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+bearerToken)
		return nil
	}))
	require.NoError(t, err)
	ctx := t.Context()
	service, err := c.CreateServiceWithResponse(ctx, nil, client.ServiceCreate{Engine: client.EngineKafka, BootstrapServers: &[]string{"h:1"}})
	require.NoError(t, err)
	require.NotNil(t, service.JSON201, string(service.Body))
	integration, err := c.CreateIntegrationWithResponse(ctx, client.IntegrationCreate{SourceServiceId: service.JSON201.Id, DestinationServiceId: mmID})
	require.NoError(t, err)
	require.NotNil(t, integration.JSON201, string(integration.Body))
	replication, err := c.CreateReplicationWithResponse(ctx, client.ReplicationCreate{
		SourceIntegration: integration.JSON201.Id, TargetIntegration: targetID, Topics: &[]string{"inventory"}, Enabled: true,
	})
	require.NoError(t, err)
	require.NotNil(t, replication.JSON201, string(replication.Body))
	require.Equal(t, int64(60), replication.JSON201.SyncInterval)
	tag := replication.HTTPResponse.Header.Get("ETag")
	require.Equal(t, `"1"`, tag)
	stale, err := c.UpdateReplicationWithResponse(ctx, flowID, &client.UpdateReplicationParams{IfMatch: &tag}, client.ReplicationUpdate{Enabled: false})
	require.NoError(t, err)
	require.NotNil(t, stale.ApplicationproblemJSON412, string(stale.Body))
	patched, err := c.PatchReplicationWithApplicationMergePatchPlusJSONBodyWithResponse(ctx, flowID, nil, client.ReplicationPatch{})
	require.NoError(t, err)
	require.NotNil(t, patched.JSON200, string(patched.Body))
	status, err := c.GetReplicationStatusWithResponse(ctx, flowID)
	require.NoError(t, err)
	require.Equal(t, client.FlowStateRUNNING, status.JSON200.State)
	ovh, err := c.OvhGetReplicationWithResponse(ctx, project, mmID, flowID)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b.*"}, ovh.JSON200.Topics)
	gone, err := c.DeleteReplicationWithResponse(ctx, flowID, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, gone.StatusCode())
}

func TestNewPanicsOnWhatCannotWork(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { httpapi.New(httpapi.Config{}) })
	require.Panics(t, func() { httpapi.New(httpapi.Config{API: newScript(), Auth: "maybe"}) })
	require.NotPanics(t, func() { httpapi.New(httpapi.Config{API: newScript()}) })
}

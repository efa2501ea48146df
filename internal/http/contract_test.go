package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

func contract(t *testing.T) *openapi3.T {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromFile("../../openapi.yaml")
	require.NoError(t, err)
	return spec
}

func TestTheContractIsValidOpenAPIAndItsExamplesFollowIt(t *testing.T) {
	t.Parallel()
	require.NoError(t, contract(t).Validate(context.Background()))
}

func TestTheServedContractIsTheFile(t *testing.T) {
	t.Parallel()
	w := newEdge(t).do(http.MethodGet, "/openapi.yaml", "", "Authorization", "")
	require.Equal(t, http.StatusOK, w.Code)
	var got, want map[string]any
	require.NoError(t, yaml.Unmarshal(w.Body.Bytes(), &got))
	text, err := os.ReadFile("../../openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &want))
	delete(want, "x-parts")
	require.Empty(t, cmp.Diff(want, got), "openapi.yaml changed: run go generate ./internal/http/...")
	require.True(t, strings.HasPrefix(w.Body.String(), "components:"), "YAML, not JSON in disguise")
}

var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

func concrete(path string) string {
	path = strings.NewReplacer("{serviceName}", project, "{clusterId}", mmID.String(), "{integrationId}", sourceID.String(),
		"{replicationId}", flowID.String()).Replace(path)
	switch {
	case strings.Contains(path, "/database/kafka/"):
		path = strings.Replace(path, mmID.String(), kafkaID.String(), 1)
	case strings.HasPrefix(path, "/services/"):
		path = strings.Replace(path, "{id}", kafkaID.String(), 1)
	case strings.HasPrefix(path, "/integrations/"):
		path = strings.Replace(path, "{id}", sourceID.String(), 1)
	}
	return placeholder.ReplaceAllString(path, flowID.String())
}

func TestEveryOperationOfTheContractIsRouted(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for path, item := range contract(t).Paths.Map() {
		var allowed []string
		for method, op := range item.Operations() {
			allowed = append(allowed, method)
			body := ""
			if op.RequestBody != nil {
				body = `{}`
			}
			w := e.do(method, concrete(path), body)
			require.NotEqual(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			if w.Code == http.StatusNotFound {
				require.Contains(t, path, "/node/{nodeId}", "%s %s: %s", method, path, w.Body)
			}
			require.Less(t, w.Code, 500, "%s %s: %s", method, path, w.Body)
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if item.GetOperation(method) != nil {
				continue
			}
			w := e.do(method, concrete(path), "{}")
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			require.Contains(t, w.Header().Get("Content-Type"), "json")
			got := strings.Split(strings.ReplaceAll(w.Header().Get("Allow"), ", HEAD", ""), ", ")
			sort.Strings(got)
			sort.Strings(allowed)
			require.Equal(t, allowed, got, path)
		}
	}
}

func TestOperationsNeedATokenUnlessTheContractSaysNot(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	open := map[string]bool{"/healthz": true, "/readyz": true, "/openapi.yaml": true, "/auth/time": true}
	for path, item := range contract(t).Paths.Map() {
		for method := range item.Operations() {
			for _, authorization := range []string{"", "Bearer", "Bearer wrong", "Basic " + bearerToken, bearerToken} {
				w := e.do(method, concrete(path), "{}", "Authorization", authorization)
				if open[path] {
					require.Equal(t, http.StatusOK, w.Code, path)
					continue
				}
				require.Equal(t, http.StatusUnauthorized, w.Code, "%s %s", method, path)
				require.Contains(t, w.Header().Get("Www-Authenticate"), "Bearer")
			}
		}
	}
	for _, call := range e.api.calls {
		require.Contains(t, []string{"Authenticate", "Ready"}, call, "nothing is asked of the domain without a token")
	}
}

func TestSchemasOfFlatBodiesAreClosedAndEveryMemberIsExplained(t *testing.T) {
	t.Parallel()
	for name, ref := range contract(t).Components.Schemas {
		s := ref.Value
		if !s.Type.Is("object") || strings.HasPrefix(name, "Ovh") || name == "Evidence" || name == "Parameters" {
			continue
		}
		require.NotNil(t, s.AdditionalProperties.Has, name)
		require.False(t, *s.AdditionalProperties.Has, name)
	}
	for _, name := range []string{"ServiceCreate", "ServiceUpdate", "IntegrationCreate", "ReplicationCreate", "ReplicationUpdate", "SecurityInput", "TlsInput", "SaslInput"} {
		for member, p := range contract(t).Components.Schemas[name].Value.Properties {
			if p.Ref == "#/components/schemas/Id" || p.Ref == "#/components/schemas/Engine" {
				continue
			}
			require.NotEmpty(t, p.Value.Description, "%s.%s", name, member)
		}
	}
}

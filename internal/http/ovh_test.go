package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

var (
	mmPath   = base + "/" + mmID.String()
	flowPath = mmPath + "/replication/" + flowID.String()
)

// ovhError wants an error of the OVHcloud shape and returns it.
func ovhError(t *testing.T, status int, class string, w interface {
	Header() http.Header
}, code int, body []byte,
) map[string]any {
	t.Helper()
	require.Equal(t, status, code, string(body))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NotEmpty(t, w.Header().Get("X-Ovh-Queryid"))
	e := tree(t, body)
	require.Equal(t, class, e["class"])
	require.IsType(t, "", e["message"])
	require.NotContains(t, e, "code")
	if details, ok := e["details"]; ok {
		for k, v := range details.(map[string]any) {
			require.IsType(t, "", v, k)
		}
	}
	return e
}

func TestTheGuidesRequestsAreAnsweredInTheGuidesOrder(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/1.0", "/v1"} {
		e := newEdge(t)
		for _, side := range []uuid.UUID{kafkaID, kafkaID} {
			w := e.do(http.MethodPost, prefix+mmPath+"/integration",
				`{"type":"kafkaMirrorMaker","sourceServiceId":"`+side.String()+`","destinationServiceId":"`+mmID.String()+`"}`)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			require.JSONEq(t, `{"id":"`+sourceID.String()+`","sourceServiceId":"`+side.String()+`","destinationServiceId":"`+mmID.String()+`",
				"type":"kafkaMirrorMaker","parameters":null,"status":"READY"}`, w.Body.String())
		}
		w := e.do(http.MethodPost, prefix+mmPath+"/replication", `{"sourceIntegration":"`+sourceID.String()+`","targetIntegration":"`+targetID.String()+`",
			"topics":["inventory"],"syncGroupOffsets":true,"syncInterval":60,"emitHeartbeats":true,"enabled":true}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Equal(t, `{"id":"`+flowID.String()+`","sourceIntegration":"`+sourceID.String()+`","targetIntegration":"`+targetID.String()+
			`","replicationPolicyClass":"org.apache.kafka.connect.mirror.DefaultReplicationPolicy","topics":["inventory"],"topicExcludeList":[],`+
			`"syncGroupOffsets":true,"syncInterval":60,"emitHeartbeats":true,"enabled":true}`, strings.TrimSpace(w.Body.String()))
		require.Empty(t, w.Header().Get("Location"))

		w = e.do(http.MethodGet, prefix+flowPath, "")
		require.Equal(t, http.StatusOK, w.Code)
		require.Len(t, tree(t, w.Body.Bytes()), 10)
		requireOrder(t, w.Body.String(), "id", "sourceIntegration", "targetIntegration", "replicationPolicyClass", "topics", "topicExcludeList",
			"syncGroupOffsets", "syncInterval", "emitHeartbeats", "enabled")

		w = e.do(http.MethodDelete, prefix+flowPath, "")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "null\n", w.Body.String(), "python-ovh cannot read an empty 200")
		require.Equal(t, []bool{false}, e.api.forgets)
	}
}

func TestOvhPostReplicationTakesTheDefaults(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodPost, mmPath+"/replication", withEnds(`{"enabled":true,"unknown":{"x":1},"groups":["ignored"],"Topics":["ignored"],"id":"ignored"}`))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	want := flows.DefaultOptions()
	want.Enabled = true
	require.Empty(t, cmp.Diff(want, e.api.flowInputs[0].Options), "unknown members, extended ones and other spellings are ignored")
}

func TestOvhPutReplicationKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want func(*flows.Options)
	}{
		"topics only":       {`{"topics":["z"]}`, func(o *flows.Options) { o.Topics = []string{"z"} }},
		"enabled only":      {`{"enabled":false}`, func(o *flows.Options) { o.Enabled = false }},
		"false and empty":   {`{"syncGroupOffsets":false,"topics":[],"emitHeartbeats":true}`, func(o *flows.Options) { o.SyncGroupOffsets, o.Topics, o.EmitHeartbeats = false, []string{}, true }},
		"an interval":       {`{"syncInterval":9}`, func(o *flows.Options) { o.SyncInterval = 9 * time.Second }},
		"nothing":           {`{}`, func(*flows.Options) {}},
		"read-only members": {`{"id":5,"sourceIntegration":"` + missingID.String() + `","targetIntegration":null,"replicationPolicyClass":"x","status":[],"enabled":true}`, func(*flows.Options) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPut, flowPath, tt.body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			want := sampleFlow().Options
			tt.want(&want)
			require.Empty(t, cmp.Diff(want, e.api.options[0]))
			require.Equal(t, []int64{7}, e.api.revisions)
			require.Equal(t, `"8"`, w.Header().Get("Etag"))
		})
	}
	w := newEdge(t).do(http.MethodPut, flowPath, `{}`, "If-Match", `"6"`)
	ovhError(t, http.StatusPreconditionFailed, "Client::PreconditionFailed", w, w.Code, w.Body.Bytes())
}

func TestOvhBodiesAreHeldAgainstTheContractWhereItNamesThem(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for body, want := range map[string][]string{
		`{"syncInterval":"60"}`:                 {"/syncInterval"},
		`{"syncInterval":0,"topics":[1]}`:       {"/syncInterval", "/topics/0"},
		`{"enabled":null}`:                      {"/enabled"},
		`{"topicExcludeList":"a"}`:              {"/topicExcludeList"},
		`[]`:                                    {"body"},
		`{"topics":["a"],"topics":["b"]}`:       {"/topics"},
		`{"topics":["` + longText(1025) + `"]}`: {"/topics/0"},
	} {
		w := e.do(http.MethodPut, flowPath, body)
		got := ovhError(t, http.StatusBadRequest, "Client::BadRequest", w, w.Code, w.Body.Bytes())
		var keys []string
		for k := range got["details"].(map[string]any) {
			keys = append(keys, k)
		}
		require.ElementsMatch(t, want, keys, body)
		require.Contains(t, got["message"], strings.TrimPrefix(strings.TrimPrefix(want[0], "body"), "/"))
	}
	require.Empty(t, e.api.options)
}

func longText(n int) string { return strings.Repeat("a", n) }

func TestOvhObjectsOfAnotherServiceAreNotThere(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	other, missing := base+"/"+otherMMID.String(), base+"/"+missingID.String()
	for path, class := range map[string]string{
		missing:                                                    "Client::NotFound::ServiceNotFound",
		base + "/" + kafkaID.String():                              "Client::NotFound::ServiceNotFound",
		missing + "/integration":                                   "Client::NotFound::ServiceNotFound",
		missing + "/replication":                                   "Client::NotFound::ServiceNotFound",
		missing + "/node":                                          "Client::NotFound::ServiceNotFound",
		missing + "/advancedConfiguration":                         "Client::NotFound::ServiceNotFound",
		missing + "/capabilities/integration":                      "Client::NotFound::ServiceNotFound",
		other + "/integration/" + sourceID.String():                "Client::NotFound::IntegrationNotFound",
		mmPath + "/integration/" + missingID.String():              "Client::NotFound::IntegrationNotFound",
		other + "/replication/" + flowID.String():                  "Client::NotFound::ReplicationNotFound",
		mmPath + "/replication/" + missingID.String():              "Client::NotFound::ReplicationNotFound",
		mmPath + "/node/" + missingID.String():                     "Client::NotFound::NodeNotFound",
		"/cloud/project/p1/database/kafka/" + mmID.String():        "Client::NotFound::ServiceNotFound",
		"/cloud/project/p1/database/service/" + missingID.String(): "Client::NotFound::ServiceNotFound",
		"/cloud/project/p2":                                        "Client::NotFound::ServiceNotFound",
		strings.Replace(flowPath, "/p1/", "/p2/", 1):               "Client::NotFound::ServiceNotFound",
		"/cloud/project/p1/database/redis":                         "Client::NotFound",
		"/1.0/me":                                                  "Client::NotFound",
		"/v1":                                                      "Client::NotFound",
		"/cloud":                                                   "Client::NotFound",
	} {
		w := e.do(http.MethodGet, path, "")
		ovhError(t, http.StatusNotFound, class, w, w.Code, w.Body.Bytes())
	}
	for _, path := range []string{other + "/replication/" + flowID.String(), other + "/integration/" + sourceID.String(), base + "/" + kafkaID.String()} {
		w := e.do(http.MethodDelete, path, "")
		require.Equal(t, http.StatusNotFound, w.Code, path)
	}
	require.Empty(t, e.api.forgets)
	require.NotContains(t, e.api.calls, "DeleteIntegration")
	require.NotContains(t, e.api.calls, "DeleteService")

	w := e.do(http.MethodPost, other+"/replication", withEnds(`{"enabled":true}`))
	got := ovhError(t, http.StatusBadRequest, "Client::BadRequest", w, w.Code, w.Body.Bytes())
	require.Len(t, got["details"], 2)
	w = e.do(http.MethodPost, other+"/integration", `{"sourceServiceId":"`+kafkaID.String()+`","destinationServiceId":"`+mmID.String()+`"}`)
	got = ovhError(t, http.StatusBadRequest, "Client::BadRequest", w, w.Code, w.Body.Bytes())
	require.Contains(t, got["details"], "/destinationServiceId")
	require.Empty(t, e.api.flowInputs)
	require.Empty(t, e.api.integrationIns)
}

func TestOvhErrorsHaveClassAndMessage(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodGet, flowPath, "", "Authorization", "Bearer wrong")
	require.Equal(t, "Invalid authorization token", ovhError(t, http.StatusUnauthorized, "Client::Unauthorized::InvalidAuthToken", w, w.Code, w.Body.Bytes())["message"])
	w = e.do(http.MethodPatch, flowPath, "{}")
	ovhError(t, http.StatusMethodNotAllowed, "Client::MethodNotAllowed", w, w.Code, w.Body.Bytes())
	w = e.do(http.MethodGet, base+"/not-a-uuid", "")
	got := ovhError(t, http.StatusBadRequest, "Client::BadRequest", w, w.Code, w.Body.Bytes())
	require.Contains(t, got["details"], "clusterId")
	w = e.do(http.MethodPost, mmPath+"/replication", "x=1", "Content-Type", "application/x-www-form-urlencoded")
	ovhError(t, http.StatusUnsupportedMediaType, "Client::UnsupportedMediaType", w, w.Code, w.Body.Bytes())
	w = e.do(http.MethodPost, mmPath+"/replication", `{"x":"`+longText(1<<20)+`"}`)
	ovhError(t, http.StatusRequestEntityTooLarge, "Client::RequestEntityTooLarge", w, w.Code, w.Body.Bytes())

	e.api.fail = func(method string) error {
		if method == "DeleteIntegration" {
			return &flows.Error{Code: flows.CodeConflict, Message: "replication X uses it"}
		}
		return nil
	}
	w = e.do(http.MethodDelete, mmPath+"/integration/"+sourceID.String(), "")
	require.Equal(t, "replication X uses it", ovhError(t, http.StatusConflict, "Client::Conflict", w, w.Code, w.Body.Bytes())["message"])
	e.api.fail = func(method string) error {
		if method == "GetService" {
			return &flows.Error{Code: flows.CodeInternal, Message: "secret detail"}
		}
		return nil
	}
	w = e.do(http.MethodGet, flowPath, "")
	require.Equal(t, "Internal server error", ovhError(t, http.StatusInternalServerError, "Server::InternalServerError", w, w.Code, w.Body.Bytes())["message"])
}

func TestOvhListsAreIdsUnlessObjectsAreAskedFor(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	idsOf := func(path string, headers ...string) []string {
		w := e.do(http.MethodGet, path, "", headers...)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Empty(t, w.Header().Get("X-Pagination-Elements"))
		require.Empty(t, w.Header().Get("X-Pagination-Cursor-Next"))
		var out []string
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		return out
	}
	require.Equal(t, []string{flowID.String()}, idsOf(mmPath+"/replication"))
	require.Equal(t, []string{sourceID.String(), targetID.String()}, idsOf(mmPath+"/integration"))
	require.Equal(t, []string{mmID.String(), otherMMID.String()}, idsOf(base))
	require.Equal(t, []string{kafkaID.String()}, idsOf("/cloud/project/p1/database/kafka"))
	require.Equal(t, []string{kafkaID.String(), mmID.String(), otherMMID.String()}, idsOf("/cloud/project/p1/database/service"))
	require.Len(t, idsOf("/cloud/project/p1/database/service?category=analysis"), 3)
	require.Empty(t, idsOf("/cloud/project/p1/database/service?category=operational"))
	require.Len(t, idsOf(mmPath+"/node"), 2)
	require.Equal(t, []string{project}, idsOf("/cloud/project"))
	require.Equal(t, []string{flowID.String()}, idsOf(mmPath+"/replication", "X-Pagination-Mode", "other"))
	for _, p := range e.api.pages {
		require.Equal(t, 1000, p.Limit)
	}

	objects := func(path, number, size string) ([]map[string]any, http.Header) {
		headers := []string{"X-Pagination-Mode", "CachedObjectList-Pages"}
		if number != "" {
			headers = append(headers, "X-Pagination-Number", number)
		}
		if size != "" {
			headers = append(headers, "X-Pagination-Size", size)
		}
		w := e.do(http.MethodGet, path, "", headers...)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		var out []map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		return out, w.Header()
	}
	all, h := objects(mmPath+"/integration", "", "50000")
	require.Len(t, all, 2)
	require.Equal(t, "2", h.Get("X-Pagination-Elements"))
	require.Equal(t, "50000", h.Get("X-Pagination-Size"))
	require.Equal(t, "1", h.Get("X-Pagination-Number"))
	second, _ := objects(mmPath+"/integration", "2", "1")
	require.Equal(t, all[1:], second)
	none, _ := objects(mmPath+"/integration", "3", "1")
	require.Empty(t, none)
	replications, _ := objects(mmPath+"/replication", "", "")
	require.Len(t, replications[0], 10)
	services, _ := objects("/cloud/project/p1/database/service", "", "")
	require.Equal(t, "kafka", services[0]["engine"])
	nodes, _ := objects(mmPath+"/node", "", "")
	require.Equal(t, "GRA", nodes[0]["region"])
	delete(e.api.flows, flowID)
	empty, _ := objects(mmPath+"/replication", "", "")
	require.Empty(t, empty)

	w := e.do(http.MethodGet, mmPath+"/replication", "", "X-Pagination-Number", "0")
	require.Equal(t, http.StatusBadRequest, w.Code)
}

func TestOvhServicesHaveWhatClientsRead(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.ok(http.StatusOK, e.do(http.MethodGet, mmPath, ""))
	require.Equal(t, "kafkaMirrorMaker", got["engine"])
	require.InDelta(t, 2, got["nodeNumber"], 0)
	require.Len(t, got["nodes"], 2)
	require.Equal(t, "db1-4", got["flavor"])
	require.Equal(t, "essential", got["plan"])
	require.Equal(t, "3.8", got["version"])
	require.Equal(t, map[string]any{"type": nil, "size": map[string]any{"value": 0.0, "unit": "GB"}}, got["storage"])
	require.Equal(t, []any{}, got["endpoints"])
	require.Equal(t, "READY", got["status"])
	require.Equal(t, map[string]any{}, e.ok(http.StatusOK, e.do(http.MethodGet, mmPath+"/advancedConfiguration", "")))

	nodes := got["nodes"].([]any)
	first := nodes[0].(map[string]any)
	require.Equal(t, first, e.ok(http.StatusOK, e.do(http.MethodGet, mmPath+"/node/"+first["id"].(string), "")))
	require.NotEqual(t, first["id"], nodes[1].(map[string]any)["id"])

	got = e.ok(http.StatusOK, e.do(http.MethodGet, "/cloud/project/p1/database/kafka/"+kafkaID.String(), ""))
	require.Equal(t, "3.9", got["version"])
	require.Equal(t, []any{map[string]any{
		"component": "kafkaSASL", "domain": "10.0.0.5", "path": nil, "port": 9092.0, "scheme": nil, "ssl": true, "sslMode": nil, "uri": "10.0.0.5:9092",
	}}, got["endpoints"])
	require.Equal(t, got, e.ok(http.StatusOK, e.do(http.MethodGet, "/cloud/project/p1/database/service/"+kafkaID.String(), "")))

	w := e.do(http.MethodGet, mmPath+"/capabilities/integration", "")
	require.JSONEq(t, `[{"type":"kafkaMirrorMaker","sourceEngine":"kafka","destinationEngine":"kafkaMirrorMaker","parameters":null}]`, w.Body.String())
}

func TestOvhMirrorMakersAreMadeAndChanged(t *testing.T) {
	t.Parallel()
	const terraform = `{"plan":"business","version":"3.8","nodesPattern":{"flavor":"db1-4","number":3,"region":"GRA","x":1},"disk":{},"description":"mm","ipRestrictions":[],"networkId":null}`
	creations := map[string]struct{ body, want string }{
		"as Terraform sends it": {terraform, `{"flavor":"db1-4","number":3,"region":"GRA"}`},
		"by a list":             {`{"nodesList":[{"flavor":"f","region":"r","role":"STANDARD"},{"flavor":"f","region":"r"}]}`, `{"flavor":"f","number":2,"region":"r"}`},
		"nulls":                 {`{"description":null,"plan":null,"version":null,"nodesPattern":null,"nodesList":null}`, ``},
		"nothing":               {`{}`, ``},
	}
	for name, tt := range creations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPost, base, tt.body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			require.Equal(t, tt.want, string(e.api.serviceInputs[0].NodesPattern))
			require.Equal(t, flows.EngineKafkaMirrorMaker, e.api.serviceInputs[0].Engine)
		})
	}
	for body, class := range map[string]string{
		`{"nodesPattern":{"number":1},"nodesList":[{"flavor":"f"}]}`: "Client::BadRequest::OnlyNodeListOrPattern",
		`{"nodesList":[{"flavor":"f"},{"flavor":"g"}]}`:              "Client::BadRequest::NodesFlavorMismatch",
		`{"nodesList":[{"region":"f"},{"region":"g"}]}`:              "Client::BadRequest::NodesRegionMismatch",
		`{"nodesPattern":{"number":"1"}}`:                            "Client::BadRequest",
		`{"nodesPattern":{"number":0}}`:                              "Client::BadRequest",
	} {
		e := newEdge(t)
		w := e.do(http.MethodPost, base, body)
		ovhError(t, http.StatusBadRequest, class, w, w.Code, w.Body.Bytes())
		require.Empty(t, e.api.serviceInputs)
	}
	updates := map[string]struct {
		body string
		want func(*flows.ServiceInput)
	}{
		"a description":        {`{"description":"x"}`, func(in *flows.ServiceInput) { in.Description = "x" }},
		"an empty description": {`{"description":""}`, func(in *flows.ServiceInput) { in.Description = "" }},
		"a plan and a version": {`{"plan":"p","version":"3.9"}`, func(in *flows.ServiceInput) { in.Plan, in.Version = "p", "3.9" }},
		"nulls are kept":       {`{"description":null,"plan":null,"flavor":null,"nodeNumber":null}`, func(*flows.ServiceInput) {}},
		"what was shown":       {`{"flavor":"db1-4","nodeNumber":2}`, func(*flows.ServiceInput) {}},
		"another flavor":       {`{"flavor":"db1-7"}`, func(in *flows.ServiceInput) { in.NodesPattern = []byte(`{"flavor":"db1-7","number":2,"region":"GRA"}`) }},
		"more nodes":           {`{"nodeNumber":6}`, func(in *flows.ServiceInput) { in.NodesPattern = []byte(`{"flavor":"db1-4","number":6,"region":"GRA"}`) }},
		"all that is ignored":  {`{"deletionProtection":false,"backups":{},"storage":{},"status":"X","enablePrometheus":true}`, func(*flows.ServiceInput) {}},
	}
	for name, tt := range updates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPut, mmPath, tt.body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			stored := sampleMM(mmID)
			want := flows.ServiceInput{Engine: stored.Engine, Description: stored.Description, Plan: stored.Plan, Version: stored.Version, NodesPattern: stored.NodesPattern}
			tt.want(&want)
			require.Empty(t, cmp.Diff(want, e.api.serviceInputs[0]))
			require.Equal(t, []int64{2}, e.api.revisions)
		})
	}
	t.Run("a client that sends back one node leaves no pattern behind", func(t *testing.T) {
		t.Parallel()
		e := newEdge(t)
		bare := sampleMM(mmID)
		bare.NodesPattern = nil
		e.api.services[mmID] = bare
		require.Equal(t, http.StatusOK, e.do(http.MethodPut, mmPath, `{"flavor":"","nodeNumber":1}`).Code)
		require.Nil(t, e.api.serviceInputs[0].NodesPattern)
	})
}

func TestOvhKafkaServicesAreRegisteredElsewhere(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodPost, "/cloud/project/p1/database/kafka", `{"plan":"business","version":"3.9","anything":[1]}`)
	got := ovhError(t, http.StatusBadRequest, "Client::BadRequest", w, w.Code, w.Body.Bytes())
	require.Contains(t, got["message"], "POST /services")
	require.Empty(t, e.api.serviceInputs)
}

func TestOvhParametersAreEchoedAsSent(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	ends := `"sourceServiceId":"` + kafkaID.String() + `","destinationServiceId":"` + mmID.String() + `"`
	for sent, want := range map[string]any{``: nil, `,"parameters":null`: nil, `,"parameters":{}`: map[string]any{}, `,"parameters":{"A b":"1","c":""}`: map[string]any{"A b": "1", "c": ""}} {
		got := e.ok(http.StatusOK, e.do(http.MethodPost, mmPath+"/integration", "{"+ends+sent+"}"))
		require.Equal(t, want, got["parameters"], sent)
	}
	w := e.do(http.MethodPost, mmPath+"/integration", "{"+ends+`,"parameters":{"a":1}}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	w = e.do(http.MethodPost, mmPath+"/integration", "{"+ends+`,"type":"kafkaConnect"}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
}

func TestOvhStartUpCallsOfClients(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodGet, "/1.0/auth/time", "", "Authorization", "")
	require.Equal(t, "1796076000\n", w.Body.String())
	got := e.ok(http.StatusOK, e.do(http.MethodGet, "/1.0/auth/details", ""))
	require.Equal(t, project, got["account"])
	require.Equal(t, "account", got["method"])
	got = e.ok(http.StatusOK, e.do(http.MethodGet, "/v1/cloud/project/p1", ""))
	require.Equal(t, project, got["project_id"])
}

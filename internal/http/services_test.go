package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func pointer[T any](v T) *T { return &v }

func TestPostServiceHandsEveryFieldToTheDomain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want flows.ServiceInput
	}{
		"the least of a kafka service": {
			`{"engine":"kafka","bootstrapServers":["h:1"]}`,
			flows.ServiceInput{Engine: flows.EngineKafka, BootstrapServers: []string{"h:1"}, Secrets: flows.SecretChange{}},
		},
		"everything of a kafka service": {
			`{"engine":"kafka","description":"d","alias":"a.b_c-d","bootstrapServers":["10.0.0.5:9092","[::1]:9093","kafka.example:9094"],
			  "security":{"protocol":"SASL_SSL","tls":{"ca":"CA","cert":"CERT","key":"KEY","serverName":"N"},
			  "sasl":{"mechanism":"OAUTHBEARER","username":"U","password":"P","tokenEndpoint":"https://id/t","clientId":"C","clientSecret":"S","scope":"X"}}}`,
			flows.ServiceInput{
				Engine: flows.EngineKafka, Description: "d", Alias: pointer("a.b_c-d"), BootstrapServers: []string{"10.0.0.5:9092", "[::1]:9093", "kafka.example:9094"},
				Security: flows.Security{
					Protocol: "SASL_SSL", TLS: &flows.TLSSpec{CA: "CA", Cert: "CERT", ServerName: "N"},
					SASL: &flows.SASLSpec{Mechanism: "OAUTHBEARER", Username: "U", TokenEndpoint: "https://id/t", ClientID: "C", Scope: "X"},
				},
				Secrets: flows.SecretChange{flows.SecretTLSKey: pointer("KEY"), flows.SecretSASLPassword: pointer("P"), flows.SecretClientSecret: pointer("S")},
			},
		},
		"nulls are absence on create": {
			`{"engine":"kafka","bootstrapServers":["h:1"],"security":{"protocol":"SSL","tls":null,"sasl":null}}`,
			flows.ServiceInput{Engine: flows.EngineKafka, BootstrapServers: []string{"h:1"}, Security: flows.Security{Protocol: "SSL"}, Secrets: flows.SecretChange{}},
		},
		"a MirrorMaker service": {
			`{"engine":"kafkaMirrorMaker","description":"mm","plan":"business","version":"3.8","nodesPattern":{"flavor":"db1-4","number":3,"region":"GRA"}}`,
			flows.ServiceInput{
				Engine: flows.EngineKafkaMirrorMaker, Description: "mm", Plan: "business", Version: "3.8",
				NodesPattern: []byte(`{"flavor":"db1-4","number":3,"region":"GRA"}`), Secrets: flows.SecretChange{},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPost, "/services", tt.body)
			e.ok(http.StatusCreated, w)
			require.Equal(t, "/services/"+kafkaID.String(), w.Header().Get("Location"))
			require.Equal(t, `"1"`, w.Header().Get("Etag"))
			require.Empty(t, cmp.Diff(tt.want, e.api.serviceInputs[0]))
			require.Equal(t, []bool{false}, e.api.forces)
			e.ok(http.StatusCreated, e.do(http.MethodPost, "/services?force=true", tt.body))
			require.True(t, e.api.forces[1])
		})
	}
}

func TestServicesAreShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodGet, "/services/"+kafkaID.String(), "")
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"id":"0197f3a0-0000-7000-8000-0000000000a1","engine":"kafka","description":"orders","alias":"a.kafka-1","bootstrapServers":["10.0.0.5:9092"],
		"security":{"protocol":"SASL_SSL","tls":{"ca":"ca","cert":"cert","serverName":"name"},"sasl":{"mechanism":"SCRAM-SHA-512","username":"mirror"}},
		"version":"3.9","status":"READY","statusDetail":"","storedSecrets":["sasl.password","tls.key"],"kafkaClusterId":"MkU3OEVBNTcwNTJENDM2Qk",
		"createdAt":"2026-11-30T22:00:00.123456Z","updatedAt":"2026-11-30T22:00:00.123456Z"}`, w.Body.String())
	require.Equal(t, `"4"`, w.Header().Get("Etag"))
	requireOrder(t, w.Body.String(), "id", "engine", "description", "alias", "bootstrapServers", "security", "status", "kafkaClusterId", "createdAt", "updatedAt")

	w = e.do(http.MethodGet, "/services/"+mmID.String(), "")
	require.JSONEq(t, `{"id":"0197f3a0-0000-7000-8000-0000000000b1","engine":"kafkaMirrorMaker","description":"mm","plan":"essential","version":"3.8",
		"nodesPattern":{"flavor":"db1-4","number":2,"region":"GRA"},"status":"READY","statusDetail":"",
		"createdAt":"2026-11-30T22:00:00.123456Z","updatedAt":"2026-11-30T22:00:00.123456Z"}`, w.Body.String())

	unchecked := sampleKafka()
	unchecked.KafkaVersion, unchecked.KafkaClusterID, unchecked.Sealed, unchecked.Security = "", "", nil, flows.Security{Protocol: "PLAINTEXT"}
	unchecked.Status, unchecked.StatusDetail = flows.StatusPending, "no worker has answered yet"
	e.api.services[kafkaID] = unchecked
	got := e.ok(http.StatusOK, e.do(http.MethodGet, "/services/"+kafkaID.String(), ""))
	require.Nil(t, got["version"])
	require.Contains(t, got, "kafkaClusterId")
	require.Nil(t, got["kafkaClusterId"])
	require.Equal(t, []any{}, got["storedSecrets"])
	require.Equal(t, "PENDING", got["status"])
}

func TestPutServiceKeepsSecretsThatAreOmittedAndClearsThoseThatAreNull(t *testing.T) {
	t.Parallel()
	const start = `{"bootstrapServers":["h:1"],"security":`
	tests := map[string]struct {
		security string
		want     flows.SecretChange
	}{
		"omitted in their objects": {`{"protocol":"SASL_SSL","tls":{"cert":"c"},"sasl":{"mechanism":"PLAIN","username":"u"}}`, flows.SecretChange{}},
		"null": {
			`{"protocol":"SASL_SSL","tls":{"key":null},"sasl":{"mechanism":"PLAIN","password":null,"clientSecret":null}}`,
			flows.SecretChange{flows.SecretTLSKey: nil, flows.SecretSASLPassword: nil, flows.SecretClientSecret: nil},
		},
		"new ones":          {`{"protocol":"SASL_SSL","tls":{},"sasl":{"mechanism":"PLAIN","password":"p2"}}`, flows.SecretChange{flows.SecretSASLPassword: pointer("p2")}},
		"tls left out":      {`{"protocol":"SASL_PLAINTEXT","sasl":{"mechanism":"PLAIN"}}`, flows.SecretChange{flows.SecretTLSKey: nil}},
		"both left out":     {`{"protocol":"PLAINTEXT"}`, flows.SecretChange{flows.SecretTLSKey: nil, flows.SecretSASLPassword: nil}},
		"sasl null":         {`{"protocol":"SSL","tls":{"cert":"c"},"sasl":null}`, flows.SecretChange{flows.SecretSASLPassword: nil}},
		"tls is empty only": {`{"protocol":"SSL","tls":{},"sasl":null}`, flows.SecretChange{flows.SecretSASLPassword: nil}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			e.ok(http.StatusOK, e.do(http.MethodPut, "/services/"+kafkaID.String(), start+tt.security+"}"))
			require.Empty(t, cmp.Diff(tt.want, e.api.serviceInputs[0].Secrets))
		})
	}
}

func TestPutServiceIsWhole(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.ok(http.StatusOK, e.do(http.MethodGet, "/services/"+kafkaID.String(), ""))
	e.ok(http.StatusOK, e.do(http.MethodPut, "/services/"+kafkaID.String(), text(t, got), "If-Match", `"4"`))
	stored := sampleKafka()
	require.Empty(t, cmp.Diff(flows.ServiceInput{
		Engine: flows.EngineKafka, Description: stored.Description, Alias: &stored.Alias, BootstrapServers: stored.BootstrapServers,
		Security: stored.Security, Secrets: flows.SecretChange{},
	}, e.api.serviceInputs[0]))
	require.Equal(t, []int64{4}, e.api.revisions)

	e.ok(http.StatusOK, e.do(http.MethodPut, "/services/"+kafkaID.String()+"?force=true", `{"bootstrapServers":["h:1"]}`))
	in := e.api.serviceInputs[1]
	require.Empty(t, in.Description)
	require.Nil(t, in.Alias, "an omitted alias stays")
	require.Equal(t, flows.Security{}, in.Security)
	require.Equal(t, []bool{false, true}, e.api.forces)

	e.ok(http.StatusOK, e.do(http.MethodPut, "/services/"+mmID.String(), `{"description":"x"}`))
	require.Empty(t, cmp.Diff(flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker, Description: "x", Secrets: flows.SecretChange{}}, e.api.serviceInputs[2]))

	got = e.ok(http.StatusOK, e.do(http.MethodGet, "/services/"+mmID.String(), ""))
	e.ok(http.StatusOK, e.do(http.MethodPut, "/services/"+mmID.String(), text(t, got)))
	require.Equal(t, "3.8", e.api.serviceInputs[3].Version)
	require.Equal(t, "essential", e.api.serviceInputs[3].Plan)
	require.JSONEq(t, `{"flavor":"db1-4","number":2,"region":"GRA"}`, string(e.api.serviceInputs[3].NodesPattern))
}

func TestPutAndPatchServiceRefuseOtherValuesForReadOnlyMembers(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"id": missingID.String(), "engine": "kafkaMirrorMaker", "status": "ERROR", "statusDetail": "x", "storedSecrets": []string{},
		"kafkaClusterId": "x", "version": "4.0", "createdAt": "2020-01-01T00:00:00Z", "updatedAt": "2020-01-01T00:00:00Z",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPut, "/services/"+kafkaID.String(), text(t, map[string]any{"bootstrapServers": []string{"h:1"}, name: v}))
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
			require.Equal(t, []string{"/" + name}, pointers(t, w))
			w = e.do(http.MethodPatch, "/services/"+kafkaID.String(), text(t, map[string]any{name: v}))
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
			require.Equal(t, []string{"/" + name}, pointers(t, w))
			require.Empty(t, e.api.serviceInputs)
		})
	}
}

func TestPatchServiceMergesAndCarriesSecrets(t *testing.T) {
	t.Parallel()
	stored := sampleKafka()
	tests := map[string]struct {
		body string
		want func(*flows.ServiceInput)
	}{
		"a description":          {`{"description":"x"}`, func(in *flows.ServiceInput) { in.Description = "x" }},
		"no description":         {`{"description":null}`, func(in *flows.ServiceInput) { in.Description = "" }},
		"an alias of null stays": {`{"alias":null}`, func(in *flows.ServiceInput) { in.Alias = nil }},
		"a new password":         {`{"security":{"sasl":{"password":"p2"}}}`, func(in *flows.ServiceInput) { in.Secrets[flows.SecretSASLPassword] = pointer("p2") }},
		"no password":            {`{"security":{"sasl":{"password":null}}}`, func(in *flows.ServiceInput) { in.Secrets[flows.SecretSASLPassword] = nil }},
		"no key":                 {`{"security":{"tls":{"key":null}}}`, func(in *flows.ServiceInput) { in.Secrets[flows.SecretTLSKey] = nil }},
		"no TLS settings":        {`{"security":{"tls":null}}`, func(in *flows.ServiceInput) { in.Security.TLS = nil; in.Secrets[flows.SecretTLSKey] = nil }},
		"another server name":    {`{"security":{"tls":{"serverName":"n2"}}}`, func(in *flows.ServiceInput) { in.Security.TLS.ServerName = "n2" }},
		"no server name":         {`{"security":{"tls":{"serverName":null}}}`, func(in *flows.ServiceInput) { in.Security.TLS.ServerName = "" }},
		"security back to default": {`{"security":null}`, func(in *flows.ServiceInput) {
			in.Security = flows.Security{}
			in.Secrets = flows.SecretChange{flows.SecretTLSKey: nil, flows.SecretSASLPassword: nil}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			e.ok(http.StatusOK, e.do(http.MethodPatch, "/services/"+kafkaID.String(), tt.body))
			tls, sasl := *stored.Security.TLS, *stored.Security.SASL
			want := flows.ServiceInput{
				Engine: flows.EngineKafka, Description: stored.Description, Alias: &stored.Alias, BootstrapServers: stored.BootstrapServers,
				Security: flows.Security{Protocol: "SASL_SSL", TLS: &tls, SASL: &sasl}, Secrets: flows.SecretChange{},
			}
			tt.want(&want)
			require.Empty(t, cmp.Diff(want, e.api.serviceInputs[0]))
			require.Equal(t, []int64{4}, e.api.revisions)
		})
	}
}

func TestDeleteServiceComparesWhenAsked(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	require.Equal(t, http.StatusPreconditionFailed, e.do(http.MethodDelete, "/services/"+kafkaID.String(), "", "If-Match", `"3"`).Code)
	require.NotContains(t, e.api.calls, "DeleteService")
	require.Equal(t, http.StatusNoContent, e.do(http.MethodDelete, "/services/"+kafkaID.String(), "", "If-Match", `"4"`).Code)
	require.Equal(t, http.StatusNoContent, e.do(http.MethodDelete, "/services/"+kafkaID.String(), "").Code)
	require.Equal(t, []int64{4, flows.AnyRevision}, e.api.revisions)
}

func TestServicesAreListedByEngine(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for query, n := range map[string]int{"": 3, "?engine=kafka": 1, "?engine=kafkaMirrorMaker": 2} {
		got := e.ok(http.StatusOK, e.do(http.MethodGet, "/services"+query, ""))
		require.Len(t, got["items"], n, query)
	}
	w := e.do(http.MethodGet, "/services?engine=redis", "")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Equal(t, []string{"?engine"}, pointers(t, w))
}

func TestIntegrationsAreMadeShownAndRemoved(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	ends := `"sourceServiceId":"` + kafkaID.String() + `","destinationServiceId":"` + mmID.String() + `"`
	w := e.do(http.MethodPost, "/integrations", `{"type":"kafkaMirrorMaker",`+ends+`}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	require.JSONEq(t, `{"id":"`+sourceID.String()+`","type":"kafkaMirrorMaker",`+ends+`,"parameters":null,"status":"READY","createdAt":"2026-11-30T22:00:00.123456Z"}`, w.Body.String())
	require.Equal(t, "/integrations/"+sourceID.String(), w.Header().Get("Location"))
	e.ok(http.StatusCreated, e.do(http.MethodPost, "/integrations", `{`+ends+`,"parameters":{"a":"b"}}`))
	require.Empty(t, cmp.Diff([]flows.IntegrationInput{
		{Type: "kafkaMirrorMaker", SourceServiceID: kafkaID, DestinationServiceID: mmID},
		{SourceServiceID: kafkaID, DestinationServiceID: mmID, Parameters: map[string]string{"a": "b"}},
	}, e.api.integrationIns))

	require.Equal(t, sourceID.String(), e.ok(http.StatusOK, e.do(http.MethodGet, "/integrations/"+sourceID.String(), ""))["id"])
	require.Len(t, e.ok(http.StatusOK, e.do(http.MethodGet, "/integrations?serviceId="+mmID.String(), ""))["items"], 2)
	require.Equal(t, http.StatusNoContent, e.do(http.MethodDelete, "/integrations/"+sourceID.String(), "").Code)
	require.Equal(t, http.StatusMethodNotAllowed, e.do(http.MethodPut, "/integrations/"+sourceID.String(), "{}").Code)
}

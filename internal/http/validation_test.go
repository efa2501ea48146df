package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	httpapi "github.com/mirrorflow/mirrorflow/internal/http"
)

func TestWrongReplicationsAreRefusedNamingEveryField(t *testing.T) {
	t.Parallel()
	many := func(n int) string { return `["` + strings.Repeat(`a","`, n-1) + `a"]` }
	tests := map[string]struct {
		members string
		want    []string
	}{
		"an unknown member":            {`"enabled":true,"colour":"red"`, []string{"/colour"}},
		"unknown members":              {`"enabled":true,"b":1,"a":2,"x/y~z":3`, []string{"/a", "/b", "/x~1y~0z"}},
		"a member spelt another way":   {`"enabled":true,"Topics":["x"],"syncinterval":3`, []string{"/Topics", "/syncinterval"}},
		"nothing required":             {``, []string{"/enabled"}},
		"a misspelt class":             {`"enabled":true,"replicationPolicyClass":"DefaultReplicationPolicy"`, []string{"/replicationPolicyClass"}},
		"an empty class":               {`"enabled":true,"replicationPolicyClass":""`, []string{"/replicationPolicyClass"}},
		"an interval as text":          {`"enabled":true,"syncInterval":"60"`, []string{"/syncInterval"}},
		"a negative interval":          {`"enabled":true,"syncInterval":-1`, []string{"/syncInterval"}},
		"an interval of zero":          {`"enabled":true,"refreshTopicsInterval":0`, []string{"/refreshTopicsInterval"}},
		"a huge interval":              {`"enabled":true,"syncInterval":1000000000000`, []string{"/syncInterval"}},
		"a number beyond numbers":      {`"enabled":true,"syncInterval":1e400`, []string{"/syncInterval"}},
		"a broken interval":            {`"enabled":true,"syncInterval":1.5`, []string{"/syncInterval"}},
		"a flag as text":               {`"enabled":"true"`, []string{"/enabled"}},
		"a flag as number":             {`"enabled":1`, []string{"/enabled"}},
		"null for a flag":              {`"enabled":null`, []string{"/enabled"}},
		"null for a list":              {`"enabled":true,"topics":null`, []string{"/topics"}},
		"null for a number":            {`"enabled":true,"tasksMax":null`, []string{"/tasksMax"}},
		"null for a word":              {`"enabled":true,"isolationLevel":null`, []string{"/isolationLevel"}},
		"a list as text":               {`"enabled":true,"topics":"a,b"`, []string{"/topics"}},
		"a list of numbers":            {`"enabled":true,"topics":["a",1,null]`, []string{"/topics/1", "/topics/2"}},
		"an empty pattern":             {`"enabled":true,"topicExcludeList":["a",""]`, []string{"/topicExcludeList/1"}},
		"a long pattern":               {`"enabled":true,"groups":["` + strings.Repeat("a", 1025) + `"]`, []string{"/groups/0"}},
		"10,000 topics":                {`"enabled":true,"topics":` + many(10000), []string{"/topics"}},
		"a replication factor of zero": {`"enabled":true,"replicationFactor":0`, []string{"/replicationFactor"}},
		"a replication factor below":   {`"enabled":true,"replicationFactor":-2`, []string{"/replicationFactor"}},
		"too many tasks":               {`"enabled":true,"tasksMax":1025`, []string{"/tasksMax"}},
		"no tasks":                     {`"enabled":true,"tasksMax":0`, []string{"/tasksMax"}},
		"a word out of the list":       {`"enabled":true,"offsetSyncsTopicLocation":"both","isolationLevel":"none","startPosition":"now","topicConfigSyncMode":"x"`, []string{"/isolationLevel", "/offsetSyncsTopicLocation", "/startPosition", "/topicConfigSyncMode"}},
		"a time that is none":          {`"enabled":true,"startPosition":"timestamp","startTimestamp":"yesterday"`, []string{"/startTimestamp"}},
		"a time without a zone":        {`"enabled":true,"startTimestamp":"2026-01-01T00:00:00"`, []string{"/startTimestamp"}},
		"an impossible time":           {`"enabled":true,"startTimestamp":"2026-13-41T00:00:00Z"`, []string{"/startTimestamp"}},
		"a time as number":             {`"enabled":true,"startTimestamp":1700000000`, []string{"/startTimestamp"}},
		"a long separator":             {`"enabled":true,"replicationPolicySeparator":"123456789"`, []string{"/replicationPolicySeparator"}},
		"a separator of spaces":        {`"enabled":true,"replicationPolicySeparator":" "`, []string{"/replicationPolicySeparator"}},
		"a rate too low":               {`"enabled":true,"maxBytesPerSecond":1023`, []string{"/maxBytesPerSecond"}},
		"a rate without end":           {`"enabled":true,"maxBytesPerSecond":1e30`, []string{"/maxBytesPerSecond"}},
		"read-only members on create":  {`"enabled":true,"id":"` + flowID.String() + `","createdAt":"2026-01-01T00:00:00Z"`, []string{"/createdAt", "/id"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			body := withEnds(`{` + tt.members + `}`)
			if tt.members == "" {
				body = strings.Replace(body, ",}", "}", 1)
			}
			w := e.do(http.MethodPost, "/replications", body)
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
			require.Equal(t, tt.want, pointers(t, w))
			require.Empty(t, e.api.flowInputs, "nothing is stored")
		})
	}
}

func TestReferencesMustBeUUIDs(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, id := range []string{`""`, `"x"`, `7`, `null`, `"{0197f3a0-0000-7000-8000-0000000000c1}"`, `"urn:uuid:0197f3a0-0000-7000-8000-0000000000c1"`, `"0197f3a0000070008000000000000000c1"`} {
		w := e.do(http.MethodPost, "/replications", `{"sourceIntegration":`+id+`,"targetIntegration":"`+targetID.String()+`","enabled":true}`)
		require.Equal(t, http.StatusBadRequest, w.Code, id)
		require.Equal(t, []string{"/sourceIntegration"}, pointers(t, w), id)
	}
	w := e.do(http.MethodPost, "/replications", `{"enabled":true}`)
	require.Equal(t, []string{"/sourceIntegration", "/targetIntegration"}, pointers(t, w))
	require.Empty(t, e.api.flowInputs)
}

func TestWrongServicesAreRefusedNamingEveryField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want []string
	}{
		"no engine":                {`{}`, []string{"/engine"}},
		"another engine":           {`{"engine":"redis"}`, []string{"/engine"}},
		"an address without port":  {`{"engine":"kafka","bootstrapServers":["host"]}`, []string{"/bootstrapServers/0"}},
		"addresses in one text":    {`{"engine":"kafka","bootstrapServers":["a:1,b:2"]}`, []string{"/bootstrapServers/0"}},
		"no addresses":             {`{"engine":"kafka","bootstrapServers":[]}`, []string{"/bootstrapServers"}},
		"an alias with a slash":    {`{"engine":"kafka","alias":"a/b"}`, []string{"/alias"}},
		"a long alias":             {`{"engine":"kafka","alias":"` + strings.Repeat("a", 65) + `"}`, []string{"/alias"}},
		"a long description":       {`{"engine":"kafka","description":"` + strings.Repeat("a", 1025) + `"}`, []string{"/description"}},
		"an unknown protocol":      {`{"engine":"kafka","security":{"protocol":"TLS"}}`, []string{"/security/protocol"}},
		"no protocol":              {`{"engine":"kafka","security":{}}`, []string{"/security/protocol"}},
		"no mechanism":             {`{"engine":"kafka","security":{"protocol":"SASL_SSL","sasl":{}}}`, []string{"/security/sasl/mechanism"}},
		"an unknown mechanism":     {`{"engine":"kafka","security":{"protocol":"SASL_SSL","sasl":{"mechanism":"GSSAPI"}}}`, []string{"/security/sasl/mechanism"}},
		"unknown members within":   {`{"engine":"kafka","security":{"protocol":"SSL","tls":{"insecure":true},"kerberos":{}}}`, []string{"/security/kerberos", "/security/tls/insecure"}},
		"an empty password":        {`{"engine":"kafka","security":{"protocol":"SASL_SSL","sasl":{"mechanism":"PLAIN","password":""}}}`, []string{"/security/sasl/password"}},
		"a password of digits":     {`{"engine":"kafka","security":{"protocol":"SASL_SSL","sasl":{"mechanism":"PLAIN","password":123456}}}`, []string{"/security/sasl/password"}},
		"a token endpoint of file": {`{"engine":"kafka","security":{"protocol":"SASL_SSL","sasl":{"mechanism":"OAUTHBEARER","tokenEndpoint":"file:///x"}}}`, []string{"/security/sasl/tokenEndpoint"}},
		"a pattern of nodes":       {`{"engine":"kafkaMirrorMaker","nodesPattern":{"number":0,"colour":1}}`, []string{"/nodesPattern/colour", "/nodesPattern/number"}},
		"read-only on create":      {`{"engine":"kafka","status":"READY","kafkaClusterId":"x"}`, []string{"/kafkaClusterId", "/status"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPost, "/services", tt.body)
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
			require.Equal(t, tt.want, pointers(t, w))
			require.Empty(t, e.api.serviceInputs)
		})
	}
}

func TestPatchIsHeldAgainstTheContractBeforeAndAfterTheMerge(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"colour":"red"}`:         {"/colour"},
		`{"syncInterval":"60"}`:    {"/syncInterval"},
		`{"enabled":null}`:         {"/enabled"},
		`{"replicationFactor":0}`:  {"/replicationFactor"},
		`{"topics":["a",""]}`:      {"/topics/1"},
		`{"topics":[null]}`:        {"/topics/0"},
		`{"startTimestamp":"now"}`: {"/startTimestamp"},
		`[]`:                       {""},
		`null`:                     {""},
		`"x"`:                      {""},
	} {
		e := newEdge(t)
		w := e.do(http.MethodPatch, "/replications/"+flowID.String(), body)
		require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", body, w.Body)
		require.Equal(t, want, pointers(t, w), body)
		require.Empty(t, e.api.options)
	}
	e := newEdge(t)
	for body, want := range map[string][]string{
		`{"security":{"protocol":null}}`:           {"/security/protocol"},
		`{"security":{"sasl":{"mechanism":null}}}`: {"/security/sasl/mechanism"},
		`{"security":{"tls":{"x":null}}}`:          {"/security/tls/x"},
	} {
		w := e.do(http.MethodPatch, "/services/"+kafkaID.String(), body)
		require.Equal(t, http.StatusBadRequest, w.Code, body)
		require.Equal(t, want, pointers(t, w), body)
	}
}

func TestBodiesMustBeOneJSONObjectOfTheRightType(t *testing.T) {
	t.Parallel()
	valid := withEnds(`{"enabled":true}`)
	const deep = 40
	tests := map[string]struct {
		body, contentType, encoding string
		status                      int
		pointer                     string
	}{
		"as it should be":               {valid, "application/json", "", http.StatusCreated, ""},
		"with a charset":                {valid, "application/json; charset=UTF-8", "", http.StatusCreated, ""},
		"no type":                       {valid, "", "", http.StatusUnsupportedMediaType, ""},
		"a form":                        {valid, "application/x-www-form-urlencoded", "", http.StatusUnsupportedMediaType, ""},
		"a patch":                       {valid, "application/merge-patch+json", "", http.StatusUnsupportedMediaType, ""},
		"another charset":               {valid, "application/json; charset=latin1", "", http.StatusUnsupportedMediaType, ""},
		"compressed":                    {valid, "application/json", "gzip", http.StatusUnsupportedMediaType, ""},
		"nonsense":                      {valid, "application", "", http.StatusUnsupportedMediaType, ""},
		"empty":                         {" ", "application/json", "", http.StatusBadRequest, ""},
		"not JSON":                      {"{", "application/json", "", http.StatusBadRequest, ""},
		"not JSON either":               {`{"enabled":tru}`, "application/json", "", http.StatusBadRequest, ""},
		"a comma too many":              {`{"enabled":true,}`, "application/json", "", http.StatusBadRequest, ""},
		"an array":                      {"[]", "application/json", "", http.StatusBadRequest, ""},
		"null":                          {"null", "application/json", "", http.StatusBadRequest, ""},
		"two values":                    {valid + "{}", "application/json", "", http.StatusBadRequest, ""},
		"something after":               {valid + "x", "application/json", "", http.StatusBadRequest, ""},
		"a member twice":                {`{"enabled":true,"enabled":false}`, "application/json", "", http.StatusBadRequest, "/enabled"},
		"a member twice by escapes":     {`{"enabled":true,"\u0065nabled":false}`, "application/json", "", http.StatusBadRequest, "/enabled"},
		"NUL":                           {withEnds(`{"enabled":true,"topics":["a\u0000"]}`), "application/json", "", http.StatusBadRequest, "/topics/0"},
		"half a surrogate":              {withEnds(`{"enabled":true,"topics":["\ud800"]}`), "application/json", "", http.StatusBadRequest, "/topics/0"},
		"a whole surrogate pair":        {withEnds(`{"enabled":true,"topics":["\ud83d\ude00"]}`), "application/json", "", http.StatusCreated, ""},
		"the replacement mark":          {withEnds(`{"enabled":true,"topics":["\ufffd"]}`), "application/json", "", http.StatusCreated, ""},
		"not UTF-8":                     {"{\"enabled\":true,\"\xff\":1}", "application/json", "", http.StatusBadRequest, ""},
		"nested without end":            {strings.Repeat("[", deep) + strings.Repeat("]", deep), "application/json", "", http.StatusBadRequest, strings.Repeat("/0", 33)},
		"1 MiB and a byte":              {`{"enabled":true,"x":"` + strings.Repeat("a", 1<<20) + `"}`, "application/json", "", http.StatusRequestEntityTooLarge, ""},
		"large and within the contract": {withEnds(`{"enabled":true,"topics":["` + strings.Repeat(strings.Repeat("a", 100)+`","`, 8000) + `z"]}`), "application/json", "", http.StatusCreated, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPost, "/replications", tt.body, "Content-Type", tt.contentType, "Content-Encoding", tt.encoding)
			require.Equal(t, tt.status, w.Code, w.Body.String())
			if tt.status == http.StatusCreated {
				return
			}
			require.Empty(t, e.api.flowInputs)
			if tt.status == http.StatusBadRequest {
				require.Contains(t, pointers(t, w), tt.pointer)
			}
		})
	}
}

func TestManyViolationsAreCutShort(t *testing.T) {
	t.Parallel()
	w := newEdge(t).do(http.MethodPost, "/replications", withEnds(`{"enabled":true,"topics":[`+strings.Repeat(`1,`, 8000)+`1]}`))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Len(t, pointers(t, w), 101)
	require.Contains(t, w.Body.String(), "and 7901 more")
}

func TestDomainErrorsTakeTheFlatShape(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.fail = func(method string) error {
		if method == "CreateFlow" {
			return &flows.Error{Code: flows.CodeInvalid, Message: "2 members are wrong", Fields: []flows.FieldError{
				{Pointer: "/topics/0", Message: "is no pattern"}, {Pointer: "/sourceIntegration", Message: "is a service"},
			}}
		}
		return nil
	}
	w := e.do(http.MethodPost, "/replications", withEnds(`{"enabled":true}`), "X-Request-Id", "req-1")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.JSONEq(t, `{"type":"urn:mirrorflow:problem:invalid","title":"The request is wrong","status":400,"detail":"2 members are wrong",
		"errors":[{"pointer":"/topics/0","message":"is no pattern"},{"pointer":"/sourceIntegration","message":"is a service"}],"requestId":"req-1"}`, w.Body.String())
	require.Equal(t, "req-1", w.Header().Get("X-Request-Id"))
}

func TestADetailNamesTheFieldWhenThereIsOne(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.fail = func(method string) error {
		if method == "CreateFlow" {
			return flows.Invalid("/topics/0", "is no pattern")
		}
		return nil
	}
	w := e.do(http.MethodPost, "/replications", withEnds(`{"enabled":true}`))
	require.Equal(t, "topics/0: is no pattern", tree(t, w.Body.Bytes())["detail"])
}

// FuzzBodies: whatever is sent, the answer is JSON within the contract and never a 5xx.
func FuzzBodies(f *testing.F) {
	for _, s := range []string{`{}`, everyOption, `{"topics":null}`, `{"security":{"tls":{"key":null}}}`, `[[[`, `{"a":1,"a":2}`, `"\ud800"`, `{"enabled":true,"syncInterval":6e1}`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		e := newEdge(t)
		for _, call := range [][2]string{
			{http.MethodPost, "/replications"},
			{http.MethodPatch, "/replications/" + flowID.String()},
			{http.MethodPut, "/replications/" + flowID.String()},
			{http.MethodPatch, "/services/" + kafkaID.String()},
			{http.MethodPut, base + "/" + mmID.String() + "/replication/" + flowID.String()},
			{http.MethodPost, base},
		} {
			if body == "" {
				continue
			}
			w := e.do(call[0], call[1], body)
			require.Less(t, w.Code, 500, w.Body.String())
			require.True(t, json.Valid(w.Body.Bytes()))
		}
	})
}

// FuzzMergePatch holds the merge against the rules of RFC 7396.
func FuzzMergePatch(f *testing.F) {
	f.Add(`{"a":{"b":1,"c":2}}`, `{"a":{"b":null,"d":3},"e":null}`)
	f.Add(`{}`, `{"a":{"b":{"c":null}}}`)
	f.Add(`[1]`, `{"a":1}`)
	f.Fuzz(func(t *testing.T, target, patch string) {
		a, err1 := httpapi.DecodeJSON([]byte(target))
		p, err2 := httpapi.DecodeJSON([]byte(patch))
		if err1 != nil || err2 != nil {
			return
		}
		before, patchBefore := text(t, a), text(t, p)
		merged := httpapi.MergePatch(a, p)
		require.Equal(t, before, text(t, a), "the target stays")
		require.Equal(t, patchBefore, text(t, p), "the patch stays")
		again := httpapi.MergePatch(merged, p)
		require.Equal(t, text(t, merged), text(t, again), "a patch twice is a patch once")
		if object, ok := p.(map[string]any); ok {
			m, ok := merged.(map[string]any)
			require.True(t, ok)
			for k, v := range object {
				if v == nil {
					require.NotContains(t, m, k)
				} else {
					require.Contains(t, m, k)
				}
			}
			require.Equal(t, text(t, merged), text(t, httpapi.MergePatch(merged, map[string]any{})), "an empty patch changes nothing")
		} else {
			require.Equal(t, patchBefore, text(t, merged))
		}
	})
}

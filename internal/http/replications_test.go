package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// everyOption is the body of a replication with no option at its default; it is sampleFlow's.
const everyOption = `{
 "replicationPolicyClass":"org.apache.kafka.connect.mirror.IdentityReplicationPolicy","replicationPolicySeparator":"_",
 "topics":["a","b.*"],"topicExcludeList":["b.x"],"syncGroupOffsets":true,"syncInterval":7,"emitHeartbeats":false,"enabled":true,
 "groups":["g"],"groupExcludeList":[],"tasksMax":3,"replicationFactor":2,"offsetSyncsTopicLocation":"source","offsetLagMax":5,
 "isolationLevel":"read_uncommitted","startPosition":"timestamp","startTimestamp":"2026-11-30T23:00:00.123456+01:00","syncTopicConfigs":false,
 "topicConfigSyncMode":"mirror","configPropertiesExclude":["x"],"syncTopicAcls":false,"emitHeartbeatsInterval":2,"emitBackwardHeartbeats":true,
 "emitCheckpointsInterval":3,"refreshTopicsInterval":4,"refreshGroupsInterval":6,"maxBytesPerSecond":9000000}`

func withEnds(body string) string {
	return fmt.Sprintf(`{"sourceIntegration":%q,"targetIntegration":%q,`, sourceID, targetID) + strings.TrimPrefix(strings.TrimSpace(body), "{")
}

func TestPostReplicationHandsEveryFieldToTheDomainAndShowsItAgain(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	w := e.do(http.MethodPost, "/replications", withEnds(everyOption))
	got := e.ok(http.StatusCreated, w)
	require.Equal(t, "/replications/"+flowID.String(), w.Header().Get("Location"))
	require.Equal(t, `"1"`, w.Header().Get("Etag"))
	want := sampleFlow()
	in := e.api.flowInputs[0]
	require.Empty(t, cmp.Diff(want.Options, in.Options))
	require.Equal(t, want.ReplicationPolicyClass, in.ReplicationPolicyClass)
	require.Equal(t, want.ReplicationPolicySeparator, in.ReplicationPolicySeparator)
	require.Equal(t, sourceID, in.SourceIntegration)
	require.Equal(t, targetID, in.TargetIntegration)

	sent := tree(t, []byte(withEnds(everyOption)))
	sent["startTimestamp"] = "2026-11-30T22:00:00.123456Z"
	for name, v := range sent {
		require.Equal(t, v, got[name], name)
	}
	require.Len(t, got, len(sent)+3, "id and the two times are all there is beside what can be sent")
}

func TestPostReplicationFillsInTheDefaults(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.ok(http.StatusCreated, e.do(http.MethodPost, "/replications", withEnds(`{"enabled":false}`)))
	require.Empty(t, cmp.Diff(flows.DefaultOptions(), e.api.flowInputs[0].Options))
	require.Equal(t, flows.DefaultPolicyClass, got["replicationPolicyClass"])
	require.Equal(t, []any{".*"}, got["topics"])
	require.Equal(t, []any{}, got["topicExcludeList"])
	require.Nil(t, got["maxBytesPerSecond"])
	require.Nil(t, got["startTimestamp"])

	spec := contract(t).Components.Schemas["ReplicationCreate"].Value
	for name, p := range spec.Properties {
		if p.Value.Default == nil {
			continue
		}
		want, err := json.Marshal(p.Value.Default)
		require.NoError(t, err)
		have, err := json.Marshal(got[name])
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(have), "the contract's default of %s is the domain's", name)
	}
}

func TestReplicationAnswersAreInTheGuidesOrder(t *testing.T) {
	t.Parallel()
	w := newEdge(t).do(http.MethodGet, "/replications/"+flowID.String(), "")
	require.Equal(t, http.StatusOK, w.Code)
	requireOrder(t, w.Body.String(), "id", "sourceIntegration", "targetIntegration", "replicationPolicyClass", "topics", "topicExcludeList",
		"syncGroupOffsets", "syncInterval", "emitHeartbeats", "enabled", "groups", "createdAt", "updatedAt")
	require.Equal(t, `"7"`, w.Header().Get("Etag"))
}

func requireOrder(t *testing.T, text string, names ...string) {
	t.Helper()
	last := -1
	for _, n := range names {
		at := strings.Index(text, `"`+n+`":`)
		require.Greater(t, at, last, "%s in %s", n, text)
		last = at
	}
}

// shown is what GET answers for sampleFlow, as a tree to change.
func shown(t *testing.T, e *edge) map[string]any {
	t.Helper()
	return e.ok(http.StatusOK, e.do(http.MethodGet, "/replications/"+flowID.String(), ""))
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestPutReplicationTakesBackWhatGetShows(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	body := shown(t, e)
	e.ok(http.StatusOK, e.do(http.MethodPut, "/replications/"+flowID.String(), text(t, body)))
	require.Empty(t, cmp.Diff(sampleFlow().Options, e.api.options[0]))
	require.Equal(t, []int64{flows.AnyRevision}, e.api.revisions)
}

func TestPutReplicationIsWholeAndOmittedMembersTakeTheirDefaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want func(*flows.Options)
	}{
		"nothing but enabled": {`{"enabled":true}`, func(o *flows.Options) { o.Enabled = true }},
		"false is false":      {`{"enabled":false,"emitHeartbeats":false,"syncTopicConfigs":false}`, func(o *flows.Options) { o.EmitHeartbeats, o.SyncTopicConfigs = false, false }},
		"an empty list is an empty list": {`{"enabled":false,"topics":[],"groups":[],"configPropertiesExclude":[],"groupExcludeList":[]}`, func(o *flows.Options) {
			o.Topics, o.Groups, o.ConfigPropertiesExclude, o.GroupExcludeList = []string{}, []string{}, []string{}, []string{}
		}},
		"null where null is allowed": {`{"enabled":false,"startTimestamp":null,"maxBytesPerSecond":null}`, func(*flows.Options) {}},
		"a number for a limit":       {`{"enabled":false,"maxBytesPerSecond":5000}`, func(o *flows.Options) { n := int64(5000); o.MaxBytesPerSecond = &n }},
		"integers written as JSON allows": {`{"enabled":false,"syncInterval":6e1,"tasksMax":2.0}`, func(o *flows.Options) {
			o.SyncInterval, o.TasksMax = time.Minute, 2
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			e.ok(http.StatusOK, e.do(http.MethodPut, "/replications/"+flowID.String(), tt.body))
			want := flows.DefaultOptions()
			tt.want(&want)
			require.Empty(t, cmp.Diff(want, e.api.options[0]))
		})
	}
}

func TestPutReplicationRefusesOtherValuesForWhatNeverChanges(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"id": missingID.String(), "createdAt": "2020-01-01T00:00:00Z", "updatedAt": "2020-01-01T00:00:00Z", "sourceIntegration": missingID.String(),
		"targetIntegration": missingID.String(), "replicationPolicyClass": flows.DefaultPolicyClass, "replicationPolicySeparator": ".",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			body := shown(t, e)
			body[name] = v
			w := e.do(http.MethodPut, "/replications/"+flowID.String(), text(t, body))
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, []string{"/" + name}, pointers(t, w))
			w = e.do(http.MethodPatch, "/replications/"+flowID.String(), text(t, map[string]any{name: v}))
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, []string{"/" + name}, pointers(t, w))
			require.Empty(t, e.api.options)
		})
	}
}

func TestReadOnlyMembersMayBeSpeltAnotherWay(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	body := shown(t, e)
	body["id"] = strings.ToUpper(flowID.String())
	body["createdAt"] = "2026-12-01T00:00:00.123456+02:00"
	e.ok(http.StatusOK, e.do(http.MethodPut, "/replications/"+flowID.String(), text(t, body)))
}

func TestPatchReplicationChangesWhatItNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want func(*flows.Options)
	}{
		"nothing":                   {`{}`, func(*flows.Options) {}},
		"one flag":                  {`{"enabled":false}`, func(o *flows.Options) { o.Enabled = false }},
		"null takes the default":    {`{"topics":null,"syncInterval":null,"emitHeartbeats":null,"isolationLevel":null}`, defaultsOf("topics", "syncInterval", "emitHeartbeats", "isolationLevel")},
		"an empty list":             {`{"topics":[]}`, func(o *flows.Options) { o.Topics = []string{} }},
		"lists are replaced whole":  {`{"topics":["c"]}`, func(o *flows.Options) { o.Topics = []string{"c"} }},
		"no start time any more":    {`{"startPosition":"latest","startTimestamp":null}`, func(o *flows.Options) { o.StartPosition, o.StartTimestamp = flows.StartLatest, nil }},
		"null for what never moves": {`{"replicationPolicyClass":null,"id":null}`, func(*flows.Options) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			w := e.do(http.MethodPatch, "/replications/"+flowID.String(), tt.body)
			e.ok(http.StatusOK, w)
			require.Equal(t, `"8"`, w.Header().Get("Etag"))
			want := sampleFlow().Options
			tt.want(&want)
			require.Empty(t, cmp.Diff(want, e.api.options[0]))
			require.Equal(t, []int64{7}, e.api.revisions, "a patch is of what was read")
		})
	}
}

func defaultsOf(names ...string) func(*flows.Options) {
	return func(o *flows.Options) {
		d := flows.DefaultOptions()
		for _, n := range names {
			switch n {
			case "topics":
				o.Topics = d.Topics
			case "syncInterval":
				o.SyncInterval = d.SyncInterval
			case "emitHeartbeats":
				o.EmitHeartbeats = d.EmitHeartbeats
			case "isolationLevel":
				o.IsolationLevel = d.IsolationLevel
			}
		}
	}
}

func TestPatchReplicationIsBuiltAnewWhenOthersChangeTheFlowMeanwhile(t *testing.T) {
	t.Parallel()
	stale := &flows.Error{Code: flows.CodePreconditionFailed, Message: "changed"}
	for name, tt := range map[string]struct {
		path, body, ifMatch string
		failures, status    int
	}{
		"twice":               {"/replications/" + flowID.String(), `{"enabled":false}`, "", 2, http.StatusOK},
		"nineteen times":      {"/replications/" + flowID.String(), `{"enabled":false}`, "", 19, http.StatusOK},
		"for ever":            {"/replications/" + flowID.String(), `{"enabled":false}`, "", 1000, http.StatusConflict},
		"with If-Match never": {"/replications/" + flowID.String(), `{"enabled":false}`, `"7"`, 1, http.StatusPreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			n := 0
			e.api.fail = func(method string) error {
				if method == "UpdateFlow" {
					if n++; n <= tt.failures {
						return stale
					}
				}
				return nil
			}
			var headers []string
			if tt.ifMatch != "" {
				headers = []string{"If-Match", tt.ifMatch}
			}
			w := e.do(http.MethodPatch, tt.path, tt.body, headers...)
			require.Equal(t, tt.status, w.Code, w.Body.String())
		})
	}
}

func TestIfMatchComparesBeforeAnythingChanges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		tag      string
		status   int
		revision int64
	}{
		"the right one":      {`"7"`, http.StatusOK, 7},
		"one of several":     {`"3", "7"`, http.StatusOK, 7},
		"any":                {`*`, http.StatusOK, flows.AnyRevision},
		"an old one":         {`"6"`, http.StatusPreconditionFailed, 0},
		"a weak one":         {`W/"7"`, http.StatusPreconditionFailed, 0},
		"zero is no wild":    {`"0"`, http.StatusPreconditionFailed, 0},
		"not a tag":          {`7`, http.StatusPreconditionFailed, 0},
		"another text":       {`"abc"`, http.StatusPreconditionFailed, 0},
		"a negative":         {`"-7"`, http.StatusPreconditionFailed, 0},
		"a leading zero":     {`"07"`, http.StatusPreconditionFailed, 0},
		"quotes around many": {`"6,7"`, http.StatusPreconditionFailed, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{http.MethodPut, http.MethodPatch} {
				e := newEdge(t)
				w := e.do(method, "/replications/"+flowID.String(), `{"enabled":true}`, "If-Match", tt.tag)
				require.Equal(t, tt.status, w.Code, w.Body.String())
				if tt.status == http.StatusOK && method == http.MethodPut {
					require.Equal(t, []int64{tt.revision}, e.api.revisions)
				}
				if tt.status != http.StatusOK {
					require.Empty(t, e.api.options)
				}
			}
			e := newEdge(t)
			w := e.do(http.MethodDelete, "/replications/"+flowID.String(), "", "If-Match", tt.tag)
			if tt.status == http.StatusOK {
				require.Equal(t, http.StatusNoContent, w.Code)
				require.Equal(t, []int64{tt.revision}, e.api.revisions, "compared once more in the step that deletes")
			} else {
				require.Equal(t, tt.status, w.Code)
				require.Empty(t, e.api.forgets)
			}
		})
	}
}

func TestDeleteReplicationForgetsPositionsOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, query := range []string{"", "?forget=false", "?forget=true"} {
		w := e.do(http.MethodDelete, "/replications/"+flowID.String()+query, "")
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Zero(t, w.Body.Len())
	}
	require.Equal(t, []bool{false, false, true}, e.api.forgets)
}

func TestReplicationStatusShowsWhatTheWorkersReported(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.ok(http.StatusOK, e.do(http.MethodGet, "/replications/"+flowID.String()+"/status", ""))
	require.JSONEq(t, `{"state":"RUNNING","since":"2026-11-30T22:00:00.123456Z","observedAt":"2026-11-30T22:00:00.123456Z","recordLag":null,
		"conditions":[],"topics":[],"excludedTopics":[],"groups":[],"tasks":[]}`, text(t, got), "only what is not known is null")

	partition, offset, lag := int32(0), int64(9007199254740993), int64(3)
	e.api.status = flows.FlowStatus{
		RecordLag: &lag, Tasks: []flows.TaskAssignment{{Task: 0, Worker: "w1", Epoch: 3}},
		TaskStatus: flows.TaskStatus{
			State: flows.StateDegraded, Since: epoch, ObservedAt: epoch,
			Conditions: []flows.Condition{
				{Code: "SOURCE_AUTH_FAILED", Severity: flows.SeverityError, Since: epoch, Message: "m", Remedy: "r"},
				{Code: "OFFSETS_LOST", Severity: flows.SeverityWarning, Since: epoch, Subject: flows.Subject{Topic: "t", Partition: &partition}, Evidence: map[string]any{"from": 1}},
			},
			Topics: []flows.TopicStatus{{Name: "t", RemoteName: "a.t", Partitions: []flows.PartitionStatus{
				{Partition: 1, LogStartOffset: 2, LogEndOffset: 3, Position: 4, TargetLogEndOffset: 5, RecordLag: 6, State: "FAILED"},
			}}},
			ExcludedTopics: []flows.ExcludedTopic{{Name: "__x", Reason: "internal name"}},
			Groups: []flows.GroupStatus{{Group: "g", State: "Empty", Topics: []flows.GroupTopicStatus{
				{Topic: "t", Partition: 1, SourceOffset: offset, TargetOffset: &offset, Exact: true}, {Topic: "t", SourceOffset: 1, Bound: 2, Reason: "why"},
			}}},
		},
	}
	w := e.do(http.MethodGet, "/replications/"+flowID.String()+"/status", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"state":"DEGRADED","since":"2026-11-30T22:00:00.123456Z","observedAt":"2026-11-30T22:00:00.123456Z","recordLag":3,
		"conditions":[
		 {"code":"SOURCE_AUTH_FAILED","severity":"error","since":"2026-11-30T22:00:00.123456Z","subject":{"topic":null,"partition":null,"group":null},"message":"m","evidence":{},"remedy":"r"},
		 {"code":"OFFSETS_LOST","severity":"warning","since":"2026-11-30T22:00:00.123456Z","subject":{"topic":"t","partition":0,"group":null},"message":"","evidence":{"from":1},"remedy":""}],
		"topics":[{"name":"t","remoteName":"a.t","partitions":[{"partition":1,"logStartOffset":2,"logEndOffset":3,"position":4,"targetLogEndOffset":5,"recordLag":6,"state":"FAILED"}]}],
		"excludedTopics":[{"name":"__x","reason":"internal name"}],
		"groups":[{"group":"g","state":"Empty","topics":[
		 {"topic":"t","partition":1,"sourceOffset":9007199254740993,"targetOffset":9007199254740993,"exact":true,"bound":0,"reason":""},
		 {"topic":"t","partition":0,"sourceOffset":1,"targetOffset":null,"exact":false,"bound":2,"reason":"why"}]}],
		"tasks":[{"task":0,"worker":"w1","epoch":3}]}`, w.Body.String())
	require.Contains(t, w.Body.String(), "9007199254740993", "offsets are exact")
}

func TestEventsAreShownWithExactEvidence(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.api.events = flows.List[flows.Event]{Next: "bmV4dA", Items: []flows.Event{
		{ID: 9, FlowID: flowID, At: epoch, Code: "OFFSETS_LOST", Subject: flows.Subject{Topic: "t"}, Message: "m", Evidence: json.RawMessage(`{"from":9007199254740993}`), Worker: "w", TaskEpoch: 2},
		{ID: 8, FlowID: flowID, At: epoch, Code: "GROUP_SYNC_FAILED"},
	}}
	w := e.do(http.MethodGet, "/replications/"+flowID.String()+"/events?limit=2&cursor=abc", "")
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.JSONEq(t, `{"nextCursor":"bmV4dA","items":[
		{"id":9,"at":"2026-11-30T22:00:00.123456Z","code":"OFFSETS_LOST","subject":{"topic":"t","partition":null,"group":null},"message":"m","evidence":{"from":9007199254740993},"worker":"w","taskEpoch":2},
		{"id":8,"at":"2026-11-30T22:00:00.123456Z","code":"GROUP_SYNC_FAILED","subject":{"topic":null,"partition":null,"group":null},"message":"","evidence":{},"worker":"","taskEpoch":0}]}`, w.Body.String())
	require.Contains(t, w.Body.String(), "9007199254740993")
	require.Equal(t, flows.Page{Limit: 2, Cursor: "abc"}, e.api.pages[0])
}

func TestListsArePagedByOpaqueCursors(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.ok(http.StatusOK, e.do(http.MethodGet, "/replications?limit=1&serviceId="+mmID.String(), ""))
	require.Equal(t, "bmV4dA", got["nextCursor"])
	got = e.ok(http.StatusOK, e.do(http.MethodGet, "/replications?limit=2&cursor=bmV4dA", ""))
	require.Nil(t, got["nextCursor"])
	require.Contains(t, got, "nextCursor")
	e.ok(http.StatusOK, e.do(http.MethodGet, "/replications", ""))
	require.Equal(t, []flows.Page{{Limit: 1}, {Limit: 2, Cursor: "bmV4dA"}, {}}, e.api.pages)

	delete(e.api.flows, flowID)
	got = e.ok(http.StatusOK, e.do(http.MethodGet, "/replications", ""))
	require.Equal(t, []any{}, got["items"])

	for query, parameter := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "limit=1&limit=2": "limit", "cursor=": "cursor", "offset=3": "offset",
		"serviceId=7": "serviceId", "limit=1.5": "limit", "limit=": "limit",
	} {
		w := e.do(http.MethodGet, "/replications?"+query, "")
		require.Equal(t, http.StatusBadRequest, w.Code, query)
		require.Equal(t, []string{"?" + parameter}, pointers(t, w), query)
	}
}

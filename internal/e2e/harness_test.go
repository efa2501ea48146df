package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
	"github.com/mirrorflow/mirrorflow/internal/test/proctest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(runner(func() int { return kafkatest.Run(m) }), store.Migrate))
}

type runner func() int

func (r runner) Run() int { return r() }

// system is one deployment: a database, key files, APIs and workers.
type system struct {
	tb       testing.TB
	database string
	keys     string
	api      *proctest.Process
	base     string
	token    string // sent when set
	dataPath string // MIRRORFLOW_DATA_PATH of the workers; "" is the default
	mu       sync.Mutex
	workers  int
}

const leaseTTL = 3 * time.Second

// deploy starts Postgres' database, an API without authentication and the given number of workers.
func deploy(tb testing.TB, workers int) (*system, []*proctest.Process) {
	tb.Helper()
	s := &system{tb: tb, database: pgtest.NewDB(tb), keys: tb.TempDir()}
	ctl := s.ctl("keys", "new", "--public", filepath.Join(s.keys, "public"), "--private", filepath.Join(s.keys, "private"))
	require.NoError(tb, ctl.ExitErr(tb, 20*time.Second), ctl.Output())
	s.api, s.base = s.startAPI(map[string]string{"MIRRORFLOW_AUTH": "none"})
	var ps []*proctest.Process
	for range workers {
		ps = append(ps, s.startWorker())
	}
	return s, ps
}

// ctl runs mirrorctl.
func (s *system) ctl(args ...string) *proctest.Process {
	return proctest.Start(s.tb, proctest.Options{Pkg: "cmd/mirrorctl", Args: args, Env: map[string]string{"MIRRORFLOW_DATABASE_URL": s.database}})
}

func (s *system) startAPI(env map[string]string) (*proctest.Process, string) {
	s.tb.Helper()
	all := map[string]string{
		"MIRRORFLOW_LISTEN": "127.0.0.1:0", "MIRRORFLOW_DATABASE_URL": s.database,
		"MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE": filepath.Join(s.keys, "public"),
	}
	for k, v := range env {
		all[k] = v
	}
	p := proctest.Start(s.tb, proctest.Options{Pkg: "cmd/api", Env: all})
	m := p.WaitMatch(s.tb, `"msg":"listening"[^\n]*"address":"([^"]+)"`, 60*time.Second)
	return p, "http://" + m[1]
}

func (s *system) startWorker() *proctest.Process {
	s.tb.Helper()
	s.mu.Lock()
	s.workers++
	id := fmt.Sprintf("w%d", s.workers)
	s.mu.Unlock()
	p := proctest.Start(s.tb, proctest.Options{Pkg: "cmd/worker", Env: map[string]string{
		"MIRRORFLOW_DATABASE_URL": s.database, "MIRRORFLOW_WORKER_ID": id, "MIRRORFLOW_WORKER_LISTEN": "127.0.0.1:0",
		"MIRRORFLOW_DATA_PATH": s.dataPath, // empty counts as unset
		"MIRRORFLOW_LEASE_TTL": leaseTTL.String(), "MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE": filepath.Join(s.keys, "private"),
	}})
	p.WaitMatch(s.tb, `"msg":"listening"[^\n]*"address":"([^"]+)"`, 60*time.Second)
	return p
}

// answer is what the API said.
type answer struct {
	Status int
	Body   []byte
	Header http.Header
}

func (a answer) decode(tb testing.TB, v any) {
	tb.Helper()
	require.NoError(tb, json.Unmarshal(a.Body, v), string(a.Body))
}

// do sends a request; a string body is sent as it is, anything else as JSON.
func (s *system) do(method, path string, body any) (answer, error) {
	return s.doAs(s.token, method, path, body)
}

func (s *system) doAs(token, method, path string, body any) (answer, error) {
	var r io.Reader
	if body != nil {
		b, ok := body.(string)
		if !ok {
			j, err := json.Marshal(body)
			if err != nil {
				return answer{}, err
			}
			b = string(j)
		}
		r = strings.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, r)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{Status: resp.StatusCode, Body: b, Header: resp.Header}, err
}

// want sends a request and requires the status.
func (s *system) want(status int, method, path string, body any) answer {
	s.tb.Helper()
	a, err := s.do(method, path, body)
	require.NoError(s.tb, err)
	require.Equalf(s.tb, status, a.Status, "%s %s: %s", method, path, a.Body)
	return a
}

type object map[string]any

func (s *system) create(path string, body any) object {
	s.tb.Helper()
	var o object
	s.want(http.StatusCreated, http.MethodPost, path, body).decode(s.tb, &o)
	return o
}

func (o object) str(key string) string { v, _ := o[key].(string); return v }

// kafkaService registers a cluster; more members may be given.
func (s *system) kafkaService(bootstrap, alias string, security object) object {
	s.tb.Helper()
	if security == nil {
		security = object{"protocol": "PLAINTEXT"}
	}
	body := object{"engine": "kafka", "description": alias, "bootstrapServers": []string{bootstrap}, "security": security}
	if alias != "" {
		body["alias"] = alias
	}
	return s.create("/services", body)
}

// pair is a source and a target bound to one MirrorMaker service.
type pair struct {
	s                        *system
	mm, source, target       object
	sourceAlias, targetAlias string
	sourceInt, targetInt     string
}

// bind makes a MirrorMaker service and the two integrations of the services.
func (s *system) bind(source, target object) pair {
	s.tb.Helper()
	mm := s.create("/services", object{"engine": "kafkaMirrorMaker", "description": "e2e"})
	p := pair{s: s, mm: mm, source: source, target: target, sourceAlias: source.str("alias"), targetAlias: target.str("alias")}
	p.sourceInt = s.create("/integrations", object{"type": "kafkaMirrorMaker", "sourceServiceId": source["id"], "destinationServiceId": mm["id"]}).str("id")
	p.targetInt = s.create("/integrations", object{"type": "kafkaMirrorMaker", "sourceServiceId": target["id"], "destinationServiceId": mm["id"]}).str("id")
	return p
}

// flow creates a replication with the given members over the common ones.
func (p pair) flow(more object) string {
	p.s.tb.Helper()
	return p.s.create("/replications", p.body(more)).str("id")
}

func (p pair) body(more object) object {
	b := object{"sourceIntegration": p.sourceInt, "targetIntegration": p.targetInt, "enabled": true, "syncGroupOffsets": true, "syncInterval": 1}
	for k, v := range more {
		b[k] = v
	}
	return b
}

func (p pair) remote(topic string) string { return p.sourceAlias + "." + topic }

type condition struct {
	Code, Severity, Message, Remedy string
	Subject                         struct {
		Topic     *string
		Partition *int32
		Group     *string
	}
	Evidence map[string]any
}

// flowStatus is the part of a status that tests look at.
type flowStatus struct {
	State      string      `json:"state"`
	ObservedAt time.Time   `json:"observedAt"`
	RecordLag  *int64      `json:"recordLag"`
	Conditions []condition `json:"conditions"`
	Topics     []struct {
		Name, RemoteName string
		Partitions       []struct {
			Partition                         int32
			Position, LogEndOffset, RecordLag int64
			State                             string
		}
	} `json:"topics"`
	ExcludedTopics []struct{ Name, Reason string } `json:"excludedTopics"`
	Groups         []struct {
		Group, State string
		Topics       []struct {
			Topic        string
			Partition    int32
			SourceOffset int64
			TargetOffset *int64
			Exact        bool
			Reason       string
		}
	} `json:"groups"`
	Tasks []struct {
		Task   int
		Worker string
		Epoch  int64
	} `json:"tasks"`
}

func (s *system) status(flow string) flowStatus {
	s.tb.Helper()
	var st flowStatus
	s.want(http.StatusOK, http.MethodGet, "/replications/"+flow+"/status", nil).decode(s.tb, &st)
	return st
}

func (st flowStatus) has(code string) bool {
	return slices.ContainsFunc(st.Conditions, func(c condition) bool { return c.Code == code })
}

func (s *system) waitState(flow, state string, d time.Duration) {
	s.tb.Helper()
	wait.For(s.tb, d, "state "+state, func() error {
		if st := s.status(flow); st.State != state {
			return fmt.Errorf("state is %s, conditions %+v", st.State, st.Conditions)
		}
		return nil
	})
}

// waitIdle waits until the flow runs and nothing lags, by a status observed after the call.
func (s *system) waitIdle(flow string, d time.Duration) {
	s.tb.Helper()
	after := time.Now()
	wait.For(s.tb, d, "record lag 0", func() error {
		st := s.status(flow)
		if st.State != "RUNNING" && st.State != "DEGRADED" || st.RecordLag == nil || *st.RecordLag != 0 || !st.ObservedAt.After(after) || len(st.Topics) == 0 {
			lag := "unknown"
			if st.RecordLag != nil {
				lag = strconv.FormatInt(*st.RecordLag, 10)
			}
			return fmt.Errorf("state %s, lag %s, %d topics, observed %s, conditions %+v", st.State, lag, len(st.Topics), st.ObservedAt, st.Conditions)
		}
		return nil
	})
}

// ends returns the end offset of each partition; nil when the topic does not exist.
func ends(tb testing.TB, adm *kadm.Client, topic string) map[int32]int64 {
	tb.Helper()
	l, err := adm.ListEndOffsets(tb.Context(), topic)
	require.NoError(tb, err)
	if err := l.Error(); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	} else if err != nil {
		require.NoError(tb, err)
	}
	m := map[int32]int64{}
	l.Each(func(o kadm.ListedOffset) { m[o.Partition] = o.Offset })
	return m
}

func sum(m map[int32]int64) int64 {
	var n int64
	for _, v := range m {
		n += v
	}
	return n
}

// waitRecords waits until a topic's end offsets add up to at least n.
func waitRecords(tb testing.TB, c *kafkatest.Cluster, topic string, n int64, d time.Duration) {
	tb.Helper()
	adm := kafkatest.Admin(tb, c)
	wait.For(tb, d, fmt.Sprintf("%d records in %s", n, topic), func() error {
		if got := sum(ends(tb, adm, topic)); got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

func pretty(b []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return string(b)
	}
	return out.String()
}

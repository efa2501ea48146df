package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/obs"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestEndpointsTellHealthReadinessAndMetrics(t *testing.T) {
	t.Parallel()
	var notReady error
	reg := obs.NewRegistry()
	h := obs.Endpoints(reg, func(context.Context) error { return notReady }, slog.New(slog.DiscardHandler))

	code, body := get(t, h, "/healthz")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\n", body)
	code, _ = get(t, h, "/readyz")
	require.Equal(t, 200, code)
	code, body = get(t, h, "/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, "mirrorflow_build_info{")
	require.Contains(t, body, "go_goroutines")

	notReady = errors.New("postgres://u:hunter2@host does not answer")
	code, body = get(t, h, "/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "not ready\n", body, "the reason is for the log")
	code, _ = get(t, h, "/healthz")
	require.Equal(t, 200, code)
}

func TestOneBrokenCollectorDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	reg := obs.NewRegistry()
	reg.MustRegister(broken{})
	var log bytes.Buffer
	code, body := get(t, obs.Metrics(reg, slog.New(slog.NewJSONHandler(&log, nil))), "/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, "mirrorflow_build_info{")
	require.Contains(t, log.String(), "metrics not gathered")
}

type broken struct{}

func (broken) Describe(c chan<- *prometheus.Desc) { c <- prometheus.NewDesc("broken", "x", nil, nil) }

func (broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "x", nil, nil), errors.New("broken"))
}

func TestLogLinesAreJSONAtTheChosenLevel(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	log := obs.NewLogger(&buf, slog.LevelInfo, "mirrorflow-test")
	log.Debug("unseen")
	obs.LogStart(log, []string{"MIRRORFLOW_X is not a setting"})
	lines := bytes.Split(bytes.TrimSpace(buf.Bytes()), []byte("\n"))
	require.Len(t, lines, 2)
	var first map[string]any
	require.NoError(t, json.Unmarshal(lines[0], &first))
	require.Equal(t, "starting", first["msg"])
	require.Equal(t, "mirrorflow-test", first["process"])
	require.NotEmpty(t, first["version"])
	require.Contains(t, string(lines[1]), "MIRRORFLOW_X")
}

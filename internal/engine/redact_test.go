package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestABrokerThatEchoesTheLoginPutsNoSecretIntoTheFlowsLogOrStatus(t *testing.T) {
	t.Parallel()
	const marker = "marker-password"
	w := fakes(t, "echo")
	echo, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "someone", "else"))
	require.NoError(t, err)
	t.Cleanup(echo.Close)
	echo.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		echo.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = new(fmt.Sprintf("denied: %s", req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes))
		return resp, nil, true
	})
	var log lockedBuffer
	cfg := settings(w.name, echo.ListenAddrs()[0], w.tgt, ".*")
	cfg.Source.Credentials = kafka.NewCredentials(kafka.Security{
		Protocol: kafka.SASLPlaintext, SASL: kafka.SASL{Mechanism: kafka.Plain, Username: "mirror", Password: marker},
	})
	cfg.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f := run(t, cfg)
	f.untilCondition("SOURCE_AUTH_FAILED")
	eventually(t, "the log quotes the broker", func() bool { return bytes.Contains([]byte(log.String()), []byte("denied")) })
	require.NotContains(t, log.String(), marker)
	require.NotContains(t, fmt.Sprintf("%+v", f.sink.status()), marker)
	require.Contains(t, log.String(), kafka.Redacted)
	require.Contains(t, log.String(), "cluster does not answer")
}

func TestWhatATaskTellsHoldsNoSecret(t *testing.T) {
	t.Parallel()
	const marker = "marker-password"
	out := newSink()
	task, _, _ := idle(t, func(c *Config) {
		c.Sink = out
		c.Target.Credentials = kafka.NewCredentials(kafka.Security{SASL: kafka.SASL{Password: marker}})
	})
	evidence := map[string]any{"reason": "says " + marker, "list": []string{marker}, "count": 3}
	task.cfg.Sink.Status(report.Status{Conditions: []report.Condition{{Code: "X", Message: marker, Remedy: marker, Evidence: evidence}}})
	require.NoError(t, task.cfg.Sink.Event(t.Context(), report.Event{Code: "X", Message: marker, Evidence: evidence}))
	got := out.status().Conditions[0]
	require.NotContains(t, fmt.Sprint(got, out.eventsOf("X")), marker)
	require.Equal(t, 3, got.Evidence["count"])
	require.Equal(t, "says "+marker, evidence["reason"], "the original is not touched")
}

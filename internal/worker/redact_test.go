package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestWhatEnginesAndJobsAnswerShowsNoSecret(t *testing.T) {
	t.Parallel()
	const marker = "marker-password"
	sealer, opener := keyPair(t, "k1")
	sealed := seal(t, sealer, marker)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, opener)
		var log bytes.Buffer
		b.s.log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b.make = func(e *fakeEngine) error {
			switch len(b.engines) {
			case 0:
				e.fail <- fmt.Errorf("broker says: %w", errors.New("denied: "+marker))
			case 1:
				e.onRun = func() { panic(errors.New("panicked over " + marker)) }
			}
			return nil
		}
		b.s.forget = func(_ context.Context, cfg engine.Config) error {
			cfg.Logger.Warn("forget says " + marker)
			return errors.New("forget: denied: " + marker)
		}
		secured := func(s *flows.FlowSpec) {
			s.Target.Security, s.Target.Sealed = flows.Security{Protocol: "SASL_PLAINTEXT"}, sealed
		}
		spec := testSpec()
		secured(&spec)
		raw, err := json.Marshal(flows.ForgetPayload{Spec: spec})
		require.NoError(t, err)
		id := uuid.Must(uuid.NewV7())
		b.store.jobs = []flows.Job{{ID: id, Kind: flows.JobForgetPositions, Payload: raw}}
		key := b.lease(secured)
		b.start()
		pass(400 * time.Millisecond)
		first := b.store.lastReport(key)
		pass(5 * time.Second)
		require.GreaterOrEqual(t, b.made(), 3)
		b.shutdown()
		require.Contains(t, first.Conditions[0].Message, "broker says: denied: [redacted]")
		require.Contains(t, string(b.store.results[id]), "forget: denied: [redacted]")
		require.Len(t, b.store.events, 2)
		for where, text := range map[string]string{
			"log": log.String(), "job": string(b.store.results[id]), "status": fmt.Sprintf("%+v", b.store.reports), "events": fmt.Sprintf("%+v", b.store.events),
		} {
			require.NotContains(t, text, marker, where)
		}
		require.Contains(t, log.String(), "forget says [redacted]")
		require.Contains(t, log.String(), "panicked over [redacted]")
	})
}

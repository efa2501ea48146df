package worker

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// A database that swallows reports must not keep leases from being given back: without them the flow stands still for a TTL.
func TestLeasesAreReleasedThoughTheLastStatusIsNotStored(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		b.start()
		e := b.engine(0)
		hangs := func(hang bool) {
			b.store.setBefore(func(ctx context.Context, name string) error {
				if name != "report" {
					return ctx.Err()
				}
				if hang {
					<-ctx.Done()
				}
				return errDown
			})
		}
		hangs(false)
		e.cfg.Sink.Status(report.Status{State: report.Running, Since: time.Now(), ObservedAt: time.Now()})
		pass(100 * time.Millisecond) // it could not be stored, so it is still to be
		hangs(true)
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.Enabled = false; s.Flow.Revision++ })
		b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
		pass(lastWordsTimeout)
		require.False(t, b.store.holds(key))
	})
}

func TestALeaseIsCalledReleasedOnlyWhenItIs(t *testing.T) {
	for name, fails := range map[string]bool{"released": false, "not released": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				var text bytes.Buffer
				b.s.log = slog.New(slog.NewJSONHandler(&text, nil))
				key := b.lease(nil)
				b.start()
				b.engine(0)
				b.store.setBefore(func(_ context.Context, name string) error {
					if fails && name == "release" {
						return errDown
					}
					return nil
				})
				b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.Enabled = false; s.Flow.Revision++ })
				b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
				pass(lastWordsTimeout + releaseTimeout + time.Second)
				require.Equal(t, fails, b.store.holds(key))
				b.shutdown() // the log is nobody else's from here on
				require.Equal(t, fails, bytes.Contains(text.Bytes(), []byte(`"leases not released, they run out by themselves"`)))
				require.Equal(t, !fails, bytes.Contains(text.Bytes(), []byte(`"lease released"`)))
			})
		})
	}
}

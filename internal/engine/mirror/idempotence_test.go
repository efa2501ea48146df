package mirror

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestDeniedIdempotentWritesAreToldOnceUntilTheyAreGranted(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
		require.NoError(t, err)
		t.Cleanup(source.Close)
		target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
		require.NoError(t, err)
		t.Cleanup(target.Close)
		var asked atomic.Int32
		var granted atomic.Bool
		target.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			asked.Add(1)
			if granted.Load() {
				return nil, nil, false
			}
			resp, ok := req.ResponseKind().(*kmsg.InitProducerIDResponse)
			if !ok {
				return nil, fmt.Errorf("answer %T", req.ResponseKind()), true
			}
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return resp, nil, true
		})
		write(t, source, 0, 100)
		seen := newWatcher()
		p, err := newMirror(Config{
			PassThrough: on == batches,
			Source:      plain("source", source.ListenAddrs()...), Target: plain("target", target.ListenAddrs()...), ClientID: "s->t|flow-0",
			Flow: "flow", Observer: seen, Registry: prometheus.NewRegistry(),
		})
		require.NoError(t, err)
		p.askAgain = 50 * time.Millisecond
		b := start(t, p, seen)
		b.assign(topic, 2, 0)
		b.untilAt(first, 100)
		b.untilAt(TP{topic, 1}, 100)
		wait.For(t, 10*time.Second, "the target asked again", func() error {
			if n := asked.Load(); n < 3 {
				return fmt.Errorf("asked %d times", n)
			}
			return nil
		})
		told := func() []error {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return append([]error(nil), seen.idempotence...)
		}
		require.Len(t, told(), 1)
		require.ErrorIs(t, told()[0], kerr.ClusterAuthorizationFailed)
		granted.Store(true)
		wait.For(t, 10*time.Second, "the end of the denial", func() error {
			if n := len(told()); n != 2 {
				return fmt.Errorf("told %d times", n)
			}
			return nil
		})
		require.NoError(t, told()[1])
		write(t, source, 100, 100)
		b.untilAt(first, 200)
		requireNumbers(t, target, 200)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.GreaterOrEqual(t, p.parts[first].id.pid, int64(0), "idempotent from the next batch on")
	})
}

package lifecycle_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(s string) { j.mu.Lock(); j.lines = append(j.lines, s); j.mu.Unlock() }

func (j *journal) component(name string) lifecycle.Component {
	return lifecycle.Component{Name: name, Run: func(ctx context.Context, ready func()) error {
		j.add("start " + name)
		ready()
		ready() // a second call does nothing
		<-ctx.Done()
		j.add("stop " + name)
		return nil
	}}
}

var quiet = slog.New(slog.DiscardHandler)

func TestComponentsStartInOrderAndStopInReverse(t *testing.T) {
	t.Parallel()
	var j journal
	ctx, cancel := context.WithCancelCause(t.Context())
	last := lifecycle.Component{Name: "last", Run: func(ctx context.Context, ready func()) error {
		ready()
		cancel(lifecycle.ErrShutdown)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrShutdown)
		j.add("stop last")
		return nil
	}}
	require.NoError(t, lifecycle.Run(ctx, quiet, j.component("a"), j.component("b"), last))
	require.Equal(t, []string{"start a", "start b", "stop last", "stop b", "stop a"}, j.lines)
}

func TestAFallenComponentStopsTheOthersAndIsTheError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		run  func(context.Context, func()) error
		says string
	}{
		"while running":    {func(_ context.Context, ready func()) error { ready(); return boom }, "bad: boom"},
		"while starting":   {func(context.Context, func()) error { return boom }, "bad: boom"},
		"without an error": {func(_ context.Context, ready func()) error { ready(); return nil }, "bad: stopped unasked"},
		"with a panic":     {func(context.Context, func()) error { panic("at the disco") }, "at the disco"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j journal
			err := lifecycle.Run(t.Context(), quiet, j.component("a"), lifecycle.Component{Name: "bad", Run: tc.run})
			require.ErrorContains(t, err, tc.says)
			require.Equal(t, []string{"start a", "stop a"}, j.lines)
		})
	}
}

func TestStartingEndsWhenTheContextDoes(t *testing.T) {
	t.Parallel()
	var j journal
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := lifecycle.Component{Name: "waits", Run: func(ctx context.Context, _ func()) error {
		cancel(lifecycle.ErrShutdown) // never ready
		<-ctx.Done()
		return nil
	}}
	require.NoError(t, lifecycle.Run(ctx, quiet, waits, j.component("never")))
	require.Empty(t, j.lines)
}

func TestASignalCancelsWithShutdownAsCause(t *testing.T) {
	ctx, stop := lifecycle.Notify(t.Context())
	defer stop()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrShutdown)
}

func TestBackoffDoublesUpToItsMaximumWithJitter(t *testing.T) {
	t.Parallel()
	b := lifecycle.Backoff{Base: time.Second, Max: 5 * time.Second}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		d := b.Next()
		require.LessOrEqual(t, d, want)
		require.GreaterOrEqual(t, d, want/2)
	}
	b.Reset()
	require.LessOrEqual(t, b.Next(), time.Second)
	var zero lifecycle.Backoff
	for range 100 {
		d := zero.Next()
		require.Positive(t, d)
		require.LessOrEqual(t, d, 10*time.Second)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := time.Now()
		time.AfterFunc(time.Second, func() { cancel(why) })
		b := lifecycle.Backoff{Base: time.Hour, Max: time.Hour}
		require.ErrorIs(t, b.Wait(ctx), why)
		require.Equal(t, time.Second, time.Since(begin))
		require.NoError(t, lifecycle.Sleep(t.Context(), time.Minute))
	})
}

// A server on port 0 names its address in the log; requests in flight end
// before it stops, and those that do not are cut off after the drain time.
func TestServerTellsItsAddressAndDrains(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"in time": 10 * time.Second, "cut off": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pr, pw := io.Pipe()
			log := slog.New(slog.NewJSONHandler(pw, nil))
			entered, leave := make(chan struct{}), make(chan struct{})
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				select {
				case <-leave:
				case <-r.Context().Done():
				}
				_, _ = w.Write([]byte("done"))
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			result := make(chan error, 1)
			go func() {
				result <- lifecycle.Run(ctx, log, lifecycle.Server("api", "127.0.0.1:0", h, drain, log))
			}()

			lines := bufio.NewScanner(pr)
			require.True(t, lines.Scan())
			var line struct{ Msg, Address string }
			require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
			require.Equal(t, "listening", line.Msg)
			go func() { _, _ = io.Copy(io.Discard, pr) }()

			answer := make(chan error, 1)
			go func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+line.Address, nil)
				if err != nil {
					answer <- err
					return
				}
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := client.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				answer <- err
			}()
			<-entered
			cancel(lifecycle.ErrShutdown)
			if name == "in time" {
				close(leave)
				require.NoError(t, <-answer)
			} else {
				require.Error(t, <-answer)
			}
			require.NoError(t, <-result)
			require.NoError(t, pw.Close())
		})
	}
}

func TestServerOnATakenAddressFails(t *testing.T) {
	t.Parallel()
	err := lifecycle.Run(t.Context(), quiet, lifecycle.Server("api", "256.0.0.1:1", http.NotFoundHandler(), time.Second, quiet))
	require.ErrorContains(t, err, "256.0.0.1:1")
}

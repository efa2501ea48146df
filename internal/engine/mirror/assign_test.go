package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// numbers reads n records of the copy's first partition.
func numbers(t *testing.T, target *kfake.Cluster, n int) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(target.ListenAddrs()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{remote(topic): {0: kgo.NewOffset().AtStart()}}))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	for len(got) < n {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
		require.NoError(t, ctx.Err(), "%d records", len(got))
	}
	return got
}

// unassignInVain takes the first partition back for a moment that is too short.
func (b *bench) unassignInVain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.path.Unassign(ctx, []TP{first}), context.DeadlineExceeded)
	b.seen.forget(first)
}

func TestAPartitionAssignedAnewWritesNothingBeforeTheRequestOfItsFormerLifeIsAnswered(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		_, target, b := fakes(t, on, 500)
		var requests atomic.Int32
		held := make(chan struct{})
		target.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			if requests.Add(1) == 1 {
				target.SleepControl(func() { <-held })
			}
			return nil, nil, false
		})
		b.assign(topic, 1, 0)
		wait.For(t, 5*time.Second, "a request under way", func() error {
			if requests.Load() == 0 {
				return errors.New("none")
			}
			return nil
		})
		b.unassignInVain(t)
		b.assign(topic, 1, 0)
		// The new life is ready to work; what is under way is the old one's still.
		wait.For(t, 5*time.Second, "the new life's metadata", func() error {
			b.path.mu.Lock()
			defer b.path.mu.Unlock()
			p := b.path.parts[first]
			if p == nil || p.src.leader < 0 || p.tgt.leader < 0 {
				return errors.New("not known")
			}
			require.Equal(t, 1, p.stale, "the request was forgotten")
			return nil
		})
		require.EqualValues(t, 1, requests.Load())
		close(held)
		b.untilAt(first, 500)
		end := target.PartitionInfo(remote(topic), 0).HighWatermark
		require.Greater(t, end, int64(500), "the first batch was written twice: in the former life, and in the new one")
		got := numbers(t, target, int(end))
		again := int(end) - 500
		for i, v := range got[:again] {
			require.Equal(t, fmt.Sprint(i), v)
		}
		for i, v := range got[again:] {
			require.Equal(t, fmt.Sprint(i), v)
		}
	})
}

func TestABatchOfAFormerLifeThatWasGivenUpCannotLandAmongTheNewOnes(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		_, target, b := fakes(t, on, 500)
		lost := make(chan *kmsg.ProduceRequest, 1)
		var dead atomic.Bool
		dead.Store(true)
		target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			target.KeepControl()
			if !dead.Load() {
				return nil, nil, false
			}
			if pr, ok := req.(*kmsg.ProduceRequest); ok {
				select {
				case lost <- pr:
				default:
				}
			}
			return nil, errors.New("the connection ends"), true
		})
		b.assign(topic, 1, 0)
		late := <-lost
		b.unassignInVain(t)
		dead.Store(false)
		b.assign(topic, 1, 0)
		b.untilAt(first, 500)
		client, err := kgo.NewClient(kgo.SeedBrokers(target.ListenAddrs()...))
		require.NoError(t, err)
		defer client.Close()
		answer, err := client.Broker(0).Request(t.Context(), late)
		require.NoError(t, err)
		resp, ok := answer.(*kmsg.ProduceResponse)
		require.True(t, ok)
		require.ErrorIs(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode), kerr.InvalidProducerEpoch)
		require.EqualValues(t, 500, target.PartitionInfo(remote(topic), 0).HighWatermark)
	})
}

// gated is a watcher that waits in Passed until it may go on.
type gated struct {
	*watcher
	entered, leave chan struct{}
	after          atomic.Int32 // calls that ended once Assign had returned
	assigned       atomic.Bool
}

func (g *gated) Passed(tp TP, next int64) {
	select {
	case g.entered <- struct{}{}:
		<-g.leave
		if g.assigned.Load() {
			g.after.Add(1)
		}
	default:
	}
	g.watcher.Passed(tp, next)
}

func TestAssignReturnsWhenNoCallOfTheFormerLifeIsUnderWay(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
		require.NoError(t, err)
		t.Cleanup(source.Close)
		target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
		require.NoError(t, err)
		t.Cleanup(target.Close)
		write(t, source, 0, 50)
		g := &gated{watcher: newWatcher(), entered: make(chan struct{}), leave: make(chan struct{})}
		b := run(t, on, plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...), func(c *Config) { c.Observer = g })
		b.assign(topic, 1, 0)
		<-g.entered
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.assign(topic, 1, 50)
			g.assigned.Store(true)
		}()
		select {
		case <-done:
			t.Error("Assign returned while a call was under way")
		case <-time.After(100 * time.Millisecond):
		}
		close(g.leave)
		<-done
		require.Zero(t, g.after.Load())
	})
}

// explosive is a watcher that panics in Mirrored.
type explosive struct{ *watcher }

func (explosive) Mirrored(TP, []Span, Point) { panic("boom") }

// explosiveHandler panics at a log line that the path writes with its lock held.
type explosiveHandler struct{ slog.Handler }

func (explosiveHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h explosiveHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "partition stopped" {
		panic("boom")
	}
	return h.Handler.Handle(ctx, r)
}

func TestAPanicIsTheErrorThatRunReturns(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		for name, change := range map[string]func(*Config){
			"the observer":  func(c *Config) { c.Observer = explosive{newWatcher()} },
			"the data path": func(c *Config) { c.Logger = slog.New(explosiveHandler{slog.DiscardHandler}) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
				require.NoError(t, err)
				t.Cleanup(source.Close)
				target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
				require.NoError(t, err)
				t.Cleanup(target.Close)
				write(t, source, 0, 50)
				if strings.Contains(name, "path") {
					target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
						target.KeepControl()
						return answerProduce(t, req, kerr.TopicAuthorizationFailed), nil, true
					})
				}
				registry := prometheus.NewRegistry()
				cfg := Config{
					Source: plain("source", source.ListenAddrs()...), Target: plain("target", target.ListenAddrs()...), ClientID: "s->t|flow-0",
					Flow: "flow", Observer: newWatcher(), Registry: registry,
				}
				change(&cfg)
				cfg.PassThrough = on == batches
				p, err := New(cfg)
				require.NoError(t, err)
				p.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}}, {Source: TP{topic, 1}, Target: TP{remote(topic), 1}}})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err = p.Run(ctx)
				require.NoError(t, ctx.Err())
				var fault *report.PanicError
				require.ErrorAs(t, err, &fault)
				require.Contains(t, fault.Where, name)
				require.Equal(t, "boom", fault.Value)
				families, err := registry.Gather()
				require.NoError(t, err)
				require.Empty(t, families, "metrics of a path that ended")
				// Nobody waits for what is gone.
				require.NoError(t, p.Drain(ctx))
			})
		}
	})
}

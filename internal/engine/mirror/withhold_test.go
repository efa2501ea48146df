package mirror

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// withheld is a path whose right to write the test decides about, at each question if it likes; produced counts the
// Produce requests that the target got.
func withheld(t *testing.T, on way, may func() bool) (source, target *kfake.Cluster, b *bench, produced *atomic.Int32) {
	t.Helper()
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	target, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	produced = &atomic.Int32{}
	target.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		produced.Add(1)
		return nil, nil, false
	})
	b = run(t, on, plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...), func(c *Config) { c.MayWrite = may })
	return source, target, b, produced
}

func TestB93NothingIsWrittenWithoutTheRightToAndNothingIsLostWhenItComesBack(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		var gone atomic.Bool
		source, target, b, produced := withheld(t, on, func() bool { return !gone.Load() })
		write(t, source, 0, 100)
		b.assign(topic, 2, 0)
		b.untilAt(first, 100)
		b.untilAt(TP{topic, 1}, 100)
		gone.Store(true)
		before := produced.Load()
		write(t, source, 100, 100)
		untilFetched(t, b)
		require.Equal(t, before, produced.Load())
		gone.Store(false)
		b.untilAt(first, 200)
		b.untilAt(TP{topic, 1}, 200)
		requireNumbers(t, target, 200)
	})
}

func TestB93ARequestThatWasMadeIsNotSentWhenTheRightEndsMeanwhile(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		// The right ends behind each first question, as when the process stands still between making a request and sending it.
		var ending atomic.Bool
		var asked, limit atomic.Int32
		source, target, b, produced := withheld(t, on, func() bool { return !ending.Load() || asked.Add(1) <= limit.Load() })
		b.assign(topic, 2, 0)
		ending.Store(true)
		write(t, source, 0, 100)
		untilFetched(t, b)
		limit.Store(asked.Load() + 1)
		wait.For(t, 10*time.Second, "the question before sending", func() error {
			if asked.Load() < limit.Load()+2 {
				return errors.New("not asked yet")
			}
			return nil
		})
		require.Zero(t, produced.Load())
		ending.Store(false)
		b.untilAt(first, 100)
		b.untilAt(TP{topic, 1}, 100)
		requireNumbers(t, target, 100)
	})
}

// untilFetched waits until records wait in the path, and the loop that would write them has had time to.
func untilFetched(t *testing.T, b *bench) {
	t.Helper()
	began := time.Now()
	wait.For(t, 10*time.Second, "records waiting in the path", func() error {
		if b.path.InFlight() == 0 || time.Since(began) < 5*withheldPause {
			return errors.New("not yet")
		}
		return nil
	})
}

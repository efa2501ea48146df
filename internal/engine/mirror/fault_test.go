package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// proxied are two brokers behind proxies, for tests that break them.
func proxied(t *testing.T) (source, target *kafkatest.Cluster, toSource, toTarget *faultnet.Proxy) {
	t.Helper()
	toSrc, srcProxies := faultnet.Advertise(t)
	toTgt, tgtProxies := faultnet.Advertise(t)
	// The brokers clean their tables of producers often, as long-running ones do at times.
	props := map[string]string{"producer.id.expiration.check.interval.ms": "500"}
	all := kafkatest.StartAll(t,
		kafkatest.Options{Version: kafkatest.V39, Listeners: []kafkaproc.Listener{{Name: "PLAINTEXT", Advertise: toSrc}}},
		kafkatest.Options{Version: kafkatest.V43, Listeners: []kafkaproc.Listener{{Name: "PLAINTEXT", Advertise: toTgt}}, Props: props})
	return all[0], all[1], srcProxies[1], tgtProxies[1]
}

func (b *bench) untilConnection(want string) {
	b.tb.Helper()
	wait.For(b.tb, 30*time.Second, "connection report "+want, func() error {
		all := b.connections()
		if n := len(all); n > 0 && strings.HasPrefix(all[n-1], want) {
			return nil
		}
		return fmt.Errorf("%q", all)
	})
}

func requireExact(t *testing.T, source, target *kafkatest.Cluster, topic string) {
	t.Helper()
	account := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, remote(topic), kafkatest.ReadCommitted))
	require.True(t, account.Exact(), account.String())
}

func TestB24_B26_B102_FaultsOfEitherSideNeitherLoseNorRepeatNorReorder(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, on way) {
		source, target, toSource, toTarget := proxied(t)
		const budget = 4 << 20
		b := run(t, on, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), func(c *Config) {
			c.MaxBytesInFlight, c.FetchBytes = budget, 1<<20
		})
		topic := kafkatest.UniqueName(t)
		kafkatest.CreateTopic(t, source, topic, 4, map[string]string{"retention.ms": "-1"})
		kafkatest.CreateTopic(t, target, remote(topic), 4, map[string]string{"retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807"})
		next := uint64(0)
		fill := func(records int) {
			// Of all kinds: some of the timestamps are older than what brokers remember of producers.
			next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: records, Partitions: 4, FirstID: next, ValueBytes: 500})
		}
		fill(12_000)
		b.assign(topic, 4, 0)
		b.until(source, topic)

		for range 6 {
			// The target appends, and its answers are lost.
			require.NoError(t, toTarget.Stall(faultnet.Downward))
			fill(3000)
			wait.For(t, 5*time.Second, "a batch under way", func() error {
				if b.path.InFlight() == 0 {
					return errors.New("none")
				}
				return nil
			})
			fill(100)
			toTarget.Reset()
			require.NoError(t, toTarget.Heal())
			toSource.Reset()
		}
		b.until(source, topic)
		requireExact(t, source, target, topic)

		// The target dies, and nothing of ours grows.
		fill(5_000)
		target.Kill(t)
		killed := time.Now()
		fill(15_000)
		b.untilConnection("target ")
		require.Less(t, time.Since(killed), 15*time.Second)
		for range 20 {
			require.LessOrEqual(t, b.path.InFlight(), int64(budget+2<<20))
			fill(10)
		}
		target.Restart(t)
		b.until(source, topic)
		b.untilConnection("target <nil>")
		requireExact(t, source, target, topic)

		// The source dies.
		fill(5_000)
		source.Kill(t)
		b.untilConnection("source ")
		source.Restart(t)
		fill(1000)
		b.until(source, topic)
		b.untilConnection("source <nil>")
		requireExact(t, source, target, topic)

		// The source falls silent with its connections open.
		require.NoError(t, toSource.Stall(faultnet.Both))
		silent := time.Now()
		b.untilConnection("source ")
		require.Less(t, time.Since(silent), 4500*time.Millisecond)
		require.NoError(t, toSource.Heal())
		b.untilConnection("source <nil>")
		fill(10)
		b.until(source, topic)
		requireExact(t, source, target, topic)

		// A slow line is no failure.
		reports := len(b.connections())
		require.NoError(t, toSource.Throttle(400_000))
		require.NoError(t, toTarget.Throttle(400_000))
		fill(5000)
		b.until(source, topic)
		requireExact(t, source, target, topic)
		require.Len(t, b.connections(), reports)
	})
}

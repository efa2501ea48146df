package mirror

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// plenty writes n MB to each of the partitions of a topic of a kfake cluster.
func plenty(t *testing.T, c *kfake.Cluster, topic string, partitions int32, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for i := range n {
		for p := range partitions {
			for range 5 { // batches of 200 KB
				r := &kgo.Record{Topic: topic, Partition: p, Value: make([]byte, 200_000), Timestamp: time.Now()}
				require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr(), "MB %d", i)
			}
		}
	}
}

func TestStoppedTargetsLeaveOthersTheirShareAndMemoryStaysFlat(t *testing.T) {
	t.Parallel()
	const budget, answer, stopped = 8 << 20, 2 << 20, 3
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "stuck"), kfake.SeedTopics(2, "flows"))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	plenty(t, source, "stuck", 4, 6)
	plenty(t, source, "flows", 2, 6)
	h := hub.New(hub.Config{MaxBytesInFlight: budget, FetchBytes: answer})
	t.Cleanup(h.Close)
	path := func(name string, topic string, refuse bool) *bench {
		target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, remote(topic)))
		require.NoError(t, err)
		t.Cleanup(target.Close)
		if refuse {
			target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				target.KeepControl()
				return answerProduce(t, req, kerr.NotEnoughReplicas), nil, true
			})
		}
		from, to := plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...)
		from.Key, to.Key = "source", name
		return run(t, batches, from, to, func(c *Config) { c.Hub, c.Flow = h, name })
	}
	var stuck []*bench
	for i := range stopped {
		b := path(fmt.Sprint("stuck-", i), "stuck", true)
		b.assign("stuck", 4, 0)
		stuck = append(stuck, b)
	}
	for _, b := range stuck {
		b.untilStopped(TP{"stuck", 0}, StopTargetUnavailable)
	}
	// Each holds less than what is free.
	wait.For(t, 10*time.Second, "room for others", func() error {
		if free := h.Free(); free < budget/8 {
			return fmt.Errorf("%d bytes free", free)
		}
		return nil
	})
	b := path("flows", "flows", false)
	b.assign("flows", 2, 0)
	b.untilAt(TP{"flows", 0}, 30)
	b.untilAt(TP{"flows", 1}, 30)
	require.LessOrEqual(t, h.Pool().InUse(), int64(budget+2*answer))
	for _, one := range append(stuck, b) {
		one.end()
	}
	wait.For(t, 10*time.Second, "all buffers to come back", func() error {
		if n := h.Pool().InUse(); n != 0 {
			return fmt.Errorf("%d bytes in use", n)
		}
		return nil
	})
}

func TestPartitionsOfABrokerThatIsAwayLeaveTheirNeighboursTheBudget(t *testing.T) {
	t.Parallel()
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	plenty(t, source, topic, 4, 6)
	target, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(4, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	for p := range int32(4) {
		require.NoError(t, target.MoveTopicPartition(remote(topic), p, min(p, 1)))
	}
	b := run(t, batches, plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...), func(c *Config) {
		c.MaxBytesInFlight, c.FetchBytes = 4<<20, 1<<20
	})
	b.path.locked(func() { // nobody can be reached there
		for i := range maxLanes {
			k := laneKey{1, i}
			b.path.lanes[k] = &lane{laneKey: k, wake: make(chan struct{}, 1), limit: requestBytes, failures: 100}
		}
	})
	b.assign(topic, 4, 0)
	b.untilAt(first, 30)
	require.Zero(t, b.seen.position(TP{topic, 1}))
}

func TestAPathKeepsToItsRateAndTheRateChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	plenty(t, source, topic, 1, 6)
	b := run(t, batches, plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...), nil)
	b.path.SetMaxBytesPerSecond(1_000_000)
	began := time.Now()
	b.assign(topic, 1, 0)
	b.untilAt(first, 15) // 3 MB
	took := time.Since(began)
	// The first answer is free, and a quarter of a second may have been saved.
	require.Greater(t, took, 1500*time.Millisecond, "3 MB at 1 MB/s")
	b.path.SetMaxBytesPerSecond(0)
	began = time.Now()
	b.untilAt(first, 30)
	require.Less(t, time.Since(began), took, "the rest without a limit")
}

func TestARateIsOwedAndSavedOnlyForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var b bucket
	b.charge(1<<40, now)
	require.Zero(t, b.debt(now), "no limit")
	require.EqualValues(t, 1<<20, b.bound(1<<20, 0))
	b.set(1000, now)
	require.Zero(t, b.debt(now))
	b.charge(500, now)
	require.Equal(t, 500*time.Millisecond, b.debt(now))
	require.Equal(t, 250*time.Millisecond, b.debt(now.Add(250*time.Millisecond)))
	now = now.Add(time.Hour)
	require.Zero(t, b.debt(now))
	b.charge(1250, now) // 250 were saved
	require.Equal(t, time.Second, b.debt(now))
	b.set(2000, now)
	require.Equal(t, 500*time.Millisecond, b.debt(now), "what is owed stays owed")
	require.EqualValues(t, leastAnswer, b.bound(1<<20, 0), "nothing is known yet")
	require.EqualValues(t, 1, b.bound(1<<20, 300), "one batch at a time")
	require.EqualValues(t, 500, b.bound(1<<20, 50), "a quarter of a second")
	require.EqualValues(t, 960, b.bound(1<<20, 160), "several batches")
	b.set(0, now)
	require.Zero(t, b.debt(now))
}

func TestAPathThatEndsLeavesTheConnectionsOfOthersAlone(t *testing.T) {
	t.Parallel()
	source, target, _ := fakes(t, batches, 100)
	h := hub.New(hub.Config{})
	t.Cleanup(h.Close)
	held := make(chan struct{})
	first := true
	target.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		if first {
			first = false
			target.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	from, to := plain("source", source.ListenAddrs()...), plain("target", target.ListenAddrs()...)
	from.Key, to.Key = "s", "t"
	a := run(t, batches, from, to, func(c *Config) { c.Hub, c.Flow = h, "a" })
	a.assign(topic, 1, 0)
	wait.For(t, 10*time.Second, "a request under way", func() error {
		if a.path.InFlight() == 0 {
			return fmt.Errorf("nothing in flight")
		}
		return nil
	})
	b := run(t, batches, from, to, func(c *Config) { c.Hub, c.Flow = h, "b" })
	b.path.Assign([]Assignment{{Source: TP{topic, 1}, Target: TP{remote(topic), 1}}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.end()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-ended: // though its request has no answer
	case <-ctx.Done():
		require.Fail(t, "the path does not end")
	}
	close(held)
	b.untilAt(TP{topic, 1}, 100)
}

package wire

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// A request that waits behind another one for a broker which does not read must not be written when that ends, if the right
// to write has ended before.
func TestTheRightToWriteIsAskedWhenItIsTheRequestsTurn(t *testing.T) {
	t.Parallel()
	ours, broker := net.Pipe()
	versions := kafka.APIVersions{keyProduce: {0, maxProduce}}
	c := newConn(&kafka.Connection{Conn: ours, Versions: versions}, Config{ClientID: "wire", Silence: time.Minute, SlowestRate: 1 << 20}, kgo.BrokerMetadata{})
	t.Cleanup(func() { c.Close(); <-c.Done() })
	request := func(name string, may func() bool) *ProduceRequest {
		return &ProduceRequest{Timeout: time.Second, May: may, Topics: []ProduceTopic{{Name: name, Partitions: []ProducePartition{{Records: []byte(name)}}}}}
	}
	none := func(*ProduceResponse, error) {}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Produce(request("before", nil), none) }()
	wait.For(t, 10*time.Second, "the first request", func() error {
		if c.InFlight() != 1 {
			return io.ErrNoProgress
		}
		return nil
	})
	var asked atomic.Int32
	var ended atomic.Bool
	go func() {
		second <- c.Produce(request("late", func() bool { asked.Add(1); return !ended.Load() }), none)
	}()
	ended.Store(true)
	require.Zero(t, asked.Load(), "it is not its turn")

	got := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(broker) // until the connection is closed
		got <- all
	}()
	require.NoError(t, <-first)
	require.ErrorIs(t, <-second, ErrWithheld)
	require.EqualValues(t, 1, asked.Load())
	require.NoError(t, c.Err(), "the connection works on")
	require.NoError(t, c.Produce(request("after", func() bool { return true }), none))
	c.Close()
	all := string(<-got)
	require.Contains(t, all, "before")
	require.Contains(t, all, "after")
	require.NotContains(t, all, "late")
}

func TestATimeThatABrokerTookForOthersIsNotTheRequests(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		wrote, answered, throttled time.Duration // before now
		took                       time.Duration
	}{
		"alone":           {wrote: 3 * time.Second, answered: time.Hour, throttled: time.Hour, took: 3 * time.Second},
		"behind another":  {wrote: 3 * time.Second, answered: time.Second, throttled: time.Hour, took: time.Second},
		"behind a quota":  {wrote: 3 * time.Second, answered: time.Hour, throttled: time.Second, took: time.Second},
		"behind its lock": {wrote: time.Second, answered: 3 * time.Second, throttled: time.Hour, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, broker := net.Pipe()
			defer broker.Close()
			now := time.Now()
			c := &Conn{net: ours, answered: now.Add(-one.answered), throttled: now.Add(-one.throttled)}
			c.calls = []*call{{since: now.Add(-time.Minute), wrote: now.Add(-one.wrote), written: true}}
			took := c.pop(0)
			require.GreaterOrEqual(t, took, one.took)
			require.LessOrEqual(t, took, one.took+time.Since(now))
			require.NoError(t, ours.Close())
		})
	}
}

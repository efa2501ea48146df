package delayproxy_test

import (
	"crypto/sha256"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/bench/internal/delayproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each connection with what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
	})
	return listener.Addr().String()
}

func proxied(t *testing.T, roundTrip time.Duration) net.Conn {
	t.Helper()
	addr := echo(t)
	p, err := delayproxy.New(addr)
	require.NoError(t, err)
	p.SetRoundTrip(roundTrip)
	t.Cleanup(p.Close)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

func TestAByteTakesTheRoundTrip(t *testing.T) {
	t.Parallel()
	const roundTrip = 80 * time.Millisecond
	c := proxied(t, roundTrip)
	for range 3 {
		begin := time.Now()
		_, err := c.Write([]byte{1})
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), roundTrip)
	}
}

func TestTheDelayDoesNotLimitWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	// A line with one chunk under way at a time would take 64 MB / 256 KB × 100 ms = 25 s.
	const roundTrip, size = 100 * time.Millisecond, 64 << 20
	c := proxied(t, roundTrip)
	begin := time.Now()
	sent, got := sha256.New(), sha256.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		block := make([]byte, 1<<20)
		for i := range size >> 20 {
			block[0], block[len(block)-1] = byte(i), byte(i)
			sent.Write(block)
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	_, err := io.CopyN(got, c, size)
	require.NoError(t, err)
	wg.Wait()
	require.Equal(t, sent.Sum(nil), got.Sum(nil))
	require.Less(t, time.Since(begin), 10*time.Second)
}

func TestTheEndIsPassedOn(t *testing.T) {
	t.Parallel()
	c := proxied(t, 10*time.Millisecond)
	_, err := c.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "last words", string(all))
}

package faultnet

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	return serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a word and returns what comes back within the time.
func ask(c net.Conn, within time.Duration) (string, error) {
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	return hear(c, within)
}

func hear(c net.Conn, within time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

func TestAProxyPassesBytesOnUntilItIsTold(t *testing.T) {
	t.Parallel()
	const patience, moment = 10 * time.Second, 100 * time.Millisecond
	cases := []struct {
		name string
		run  func(t *testing.T, p *Proxy, c net.Conn)
	}{
		{"cut breaks connections and refuses new ones until healed", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Cut())
			_, err := hear(c, patience)
			require.ErrorContains(t, err, "reset")
			_, err = net.Dial("tcp", p.Addr())
			require.ErrorContains(t, err, "refused")
			require.NoError(t, p.Heal())
			got, err := ask(dial(t, p.Addr()), patience)
			require.NoError(t, err)
			require.Equal(t, "hello", got)
		}},
		{"reset breaks connections only", func(t *testing.T, p *Proxy, c net.Conn) {
			p.Reset()
			_, err := hear(c, patience)
			require.ErrorContains(t, err, "reset")
			_, err = ask(dial(t, p.Addr()), patience)
			require.NoError(t, err)
			require.Equal(t, 2, p.Accepted())
		}},
		{"stall holds bytes back and heal lets them go", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Stall(Downward))
			_, err := ask(c, moment)
			require.ErrorContains(t, err, "timeout")
			require.NoError(t, p.Heal())
			got, err := hear(c, patience)
			require.NoError(t, err)
			require.Equal(t, "hello", got)
		}},
		{"stall of the other direction", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Stall(Upward))
			_, err := ask(c, moment)
			require.ErrorContains(t, err, "timeout")
		}},
		{"delay", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Delay(moment))
			begin := time.Now()
			_, err := ask(c, patience)
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(begin), 2*moment)
		}},
		{"a longer line, on which much may be under way", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Latency(moment))
			begin := time.Now()
			for range 20 {
				_, err := c.Write([]byte("x"))
				require.NoError(t, err)
			}
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			n, err := io.Copy(io.Discard, c)
			require.NoError(t, err)
			require.EqualValues(t, 20, n)
			took := time.Since(begin)
			require.GreaterOrEqual(t, took, 2*moment)
			require.Less(t, took, 10*moment)
		}},
		{"throttle", func(t *testing.T, p *Proxy, c net.Conn) {
			require.NoError(t, p.Throttle(100_000))
			begin := time.Now()
			_, err := c.Write(bytes.Repeat([]byte("x"), 20_000))
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			n, err := io.Copy(io.Discard, c)
			require.NoError(t, err)
			require.EqualValues(t, 20_000, n)
			require.GreaterOrEqual(t, time.Since(begin), 2*moment)
		}},
		{"hang up", func(t *testing.T, p *Proxy, _ net.Conn) {
			require.NoError(t, p.HangUp())
			_, err := hear(dial(t, p.Addr()), patience)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "timeout")
		}},
		{"garbage", func(t *testing.T, p *Proxy, _ net.Conn) {
			require.NoError(t, p.Garbage([]byte("nonsense")))
			got, err := ask(dial(t, p.Addr()), patience)
			require.NoError(t, err)
			require.Equal(t, "nonsense", got)
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := NewProxy(t, "")
			p.SetTarget(echo(t))
			c := dial(t, p.Addr())
			got, err := ask(c, patience)
			require.NoError(t, err)
			require.Equal(t, "hello", got)
			tc.run(t, p, c)
		})
	}
}

func TestOddServersBehaveAsNamed(t *testing.T) {
	t.Parallel()
	_, err := net.Dial("tcp", RefusedAddr(t))
	require.ErrorContains(t, err, "refused")
	got, err := ask(dial(t, JunkServer(t)), 10*time.Second)
	require.NoError(t, err)
	require.NotContains(t, got, "hello")
	_, err = ask(dial(t, SilentServer(t)), 100*time.Millisecond)
	require.ErrorContains(t, err, "timeout")
	_, err = hear(dial(t, HangUpServer(t)), 10*time.Second)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "timeout")
	c := dial(t, HTTPServer(t))
	_, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	require.NoError(t, err)
	got, err = hear(c, 10*time.Second)
	require.NoError(t, err)
	require.Contains(t, got, "418")
}

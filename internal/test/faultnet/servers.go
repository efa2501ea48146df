package faultnet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
)

// HTTPServer is the address of a web server on loopback.
func HTTPServer(tb testing.TB) string {
	tb.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this is a web server", http.StatusTeapot)
	}))
	tb.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// JunkServer is the address of a server that answers whatever it gets with bytes of no protocol.
func JunkServer(tb testing.TB) string {
	tb.Helper()
	return serve(tb, func(c net.Conn) { answerWith(c, []byte("220 welcome\r\n\x00\x01\x02 whatever you said\r\n")) })
}

// SilentServer is the address of a server that accepts connections, reads, and never answers.
func SilentServer(tb testing.TB) string {
	tb.Helper()
	return serve(tb, func(c net.Conn) { answerWith(c, nil) })
}

// HangUpServer is the address of a server that closes each connection at once.
func HangUpServer(tb testing.TB) string {
	tb.Helper()
	return serve(tb, func(net.Conn) {})
}

// RefusedAddr is a loopback address where nobody listens, now or later in this test process.
func RefusedAddr(tb testing.TB) string {
	tb.Helper()
	port, err := freeport.One()
	require.NoError(tb, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// serve runs handle for every connection of a listener that ends with the test, and closes the connection after it.
func serve(tb testing.TB, handle func(net.Conn)) string {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	closed := false
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if closed {
				abort(c)
			}
			conns[c] = true
			mu.Unlock()
			wg.Go(func() {
				handle(c)
				_ = c.Close()
				mu.Lock()
				delete(conns, c)
				mu.Unlock()
			})
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		closed = true
		for c := range conns {
			abort(c)
		}
		mu.Unlock()
		wg.Wait()
	})
	return listener.Addr().String()
}

// answerWith answers each piece of data with text, until the client goes; nil text answers nothing.
func answerWith(c net.Conn, text []byte) {
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
		if text == nil {
			continue
		}
		if _, err := c.Write(text); err != nil {
			return
		}
	}
}

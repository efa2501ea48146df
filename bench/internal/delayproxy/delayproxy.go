// Package delayproxy puts a line with a round-trip time before a server on loopback, without limiting what the line carries.
//
// Each direction delays every byte by half of the round trip: what was read is queued with the time at which it is due, so
// that any amount may be under way at once, as on a fat long line. Making a connection takes no longer than on loopback.
// There is no loss and no limit of bandwidth. Start with New.
package delayproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy listens on a free port of 127.0.0.1. Its methods may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	oneWay   atomic.Int64 // nanoseconds
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// chunkBytes is read at once; as much as a connection's buffer in the kernel gives.
const chunkBytes = 256 << 10

// New starts a proxy before the server at target, with no delay.
func New(target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the delay proxy: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, target: target, stop: stop}
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			p.wg.Go(func() { p.serve(ctx, client) })
		}
	})
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetRoundTrip delays what is read from now on, in both directions together by d.
func (p *Proxy) SetRoundTrip(d time.Duration) { p.oneWay.Store(int64(d / 2)) }

// Close cuts all connections and returns when all of the proxy has ended.
func (p *Proxy) Close() {
	p.stop()
	p.listener.Close()
	p.wg.Wait()
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	ended := context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	defer ended()
	var pair sync.WaitGroup
	pair.Go(func() { p.pass(server, client) })
	pair.Go(func() { p.pass(client, server) })
	pair.Wait()
}

// chunk is what was read at once, and when it is due at the other side. No bytes: the end.
type chunk struct {
	due   time.Time
	bytes []byte
}

var buffers = sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }}

// pass carries one direction until its end, which it passes on too.
func (p *Proxy) pass(dst, src net.Conn) {
	q := newQueue()
	var writer sync.WaitGroup
	writer.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			c := q.take()
			if wait := time.Until(c.due); wait > 0 {
				timer.Reset(wait)
				<-timer.C
			}
			if len(c.bytes) == 0 {
				closeWrite(dst)
				return
			}
			_, err := dst.Write(c.bytes)
			b := c.bytes[:chunkBytes]
			buffers.Put(&b)
			if err != nil {
				// Nobody takes the bytes: the sender must notice, too.
				src.Close()
				q.drop()
				return
			}
		}
	})
	for {
		b := *buffers.Get().(*[]byte)
		n, err := src.Read(b)
		due := time.Now().Add(time.Duration(p.oneWay.Load()))
		if n > 0 {
			q.put(chunk{due: due, bytes: b[:n]})
		} else {
			buffers.Put(&b)
		}
		if err != nil {
			q.put(chunk{due: due})
			break
		}
	}
	writer.Wait()
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return
	}
	c.Close()
}

// queue is first in, first out, without a limit.
type queue struct {
	mu      sync.Mutex
	filled  *sync.Cond
	chunks  []chunk
	dropped bool
}

func newQueue() *queue {
	q := &queue{}
	q.filled = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(c chunk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped {
		return
	}
	q.chunks = append(q.chunks, c)
	q.filled.Signal()
}

func (q *queue) take() chunk {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 {
		q.filled.Wait()
	}
	c := q.chunks[0]
	q.chunks = q.chunks[1:]
	return c
}

// drop forgets what is queued and whatever comes.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped, q.chunks = true, nil
}

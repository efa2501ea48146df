// Package faultnet breaks the network between a client and a server on loopback, in ways that a test chooses, and offers
// servers that are not what a client expects.
//
// It owns a TCP proxy and a few odd listeners. It must be imported by tests only and must never connect to anything but
// loopback. Start with NewProxy; for a Kafka broker behind it see Advertise.
package faultnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
)

// Direction says which bytes a fault concerns.
type Direction int

// The directions.
const (
	Both     Direction = iota
	Upward             // from client to server
	Downward           // from server to client
)

// mode is what the proxy does to connections.
type mode struct {
	refuse     bool // nobody listens
	hangUp     bool // accept and close
	garbage    []byte
	stallUp    bool
	stallDown  bool
	delay      time.Duration
	latency    time.Duration
	bytesPerMs int // 0: unlimited
}

// Proxy passes TCP connections on to a server until told otherwise. Its methods may be called from any goroutine.
type Proxy struct {
	addr string
	ctx  context.Context // ends with the proxy
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	target   string
	mode     mode
	changed  chan struct{} // closed and replaced whenever mode changes
	listener net.Listener  // nil while refusing
	conns    map[net.Conn]struct{}
	accepted int
	resets   int
	closed   bool
}

// NewProxy starts a proxy on a free port of 127.0.0.1 that ends with the test. target may be "" until SetTarget.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := newProxy(target)
	require.NoError(tb, err, "start a proxy")
	tb.Cleanup(p.close)
	return p
}

// Advertise returns a function for a broker listener's Advertise field that puts a proxy before each node, and the proxies
// by node id (from 1), to be read once the cluster has started.
func Advertise(tb testing.TB) (advertise func(node int, addr string) (string, error), proxies map[int]*Proxy) {
	proxies = map[int]*Proxy{}
	return func(node int, addr string) (string, error) {
		p, err := newProxy(addr)
		if err != nil {
			return "", err
		}
		tb.Cleanup(p.close)
		proxies[node] = p
		return p.Addr(), nil
	}, proxies
}

func newProxy(target string) (*Proxy, error) {
	// Outside the kernel's own range, so that the port is still free when the proxy listens again after a refusal.
	port, err := freeport.One()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{
		addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ctx: ctx, stop: stop, target: target,
		changed: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

// Addr is the address that clients connect to. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Accepted counts the connections accepted so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Resets counts the connections that clients ended with a reset.
func (p *Proxy) Resets() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resets
}

// SetTarget changes the server that new connections are passed on to.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Heal ends all faults. Stalled connections go on, with the bytes that were held back.
func (p *Proxy) Heal() error { return p.set(func(m *mode) { *m = mode{} }) }

// Cut resets all connections and refuses new ones until Heal.
func (p *Proxy) Cut() error {
	err := p.set(func(m *mode) { *m = mode{refuse: true} })
	p.Reset()
	return err
}

// Reset breaks the present connections. New ones work.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		abort(c)
	}
}

// Stall holds bytes back while connections stay open and new ones are accepted, as a host that went away does, until Heal.
func (p *Proxy) Stall(d Direction) error {
	return p.set(func(m *mode) {
		m.stallUp = m.stallUp || d != Downward
		m.stallDown = m.stallDown || d != Upward
	})
}

// Delay holds each piece of data back for d, in both directions, until Heal.
func (p *Proxy) Delay(d time.Duration) error { return p.set(func(m *mode) { m.delay = d }) }

// Latency makes the line longer: what is sent arrives d later, in both directions, however much is on its way, until Heal.
func (p *Proxy) Latency(d time.Duration) error { return p.set(func(m *mode) { m.latency = d }) }

// Throttle passes about this many bytes per second in each direction of each connection, until Heal.
func (p *Proxy) Throttle(bytesPerSecond int) error {
	return p.set(func(m *mode) { m.bytesPerMs = max(1, bytesPerSecond/1000) })
}

// HangUp accepts connections and closes them at once, until Heal.
func (p *Proxy) HangUp() error { return p.set(func(m *mode) { m.hangUp = true }) }

// Garbage answers what a client sends on a new connection with text instead of the server, until Heal.
func (p *Proxy) Garbage(text []byte) error { return p.set(func(m *mode) { m.garbage = text }) }

func (p *Proxy) set(change func(*mode)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.mode)
	close(p.changed)
	p.changed = make(chan struct{})
	switch {
	case p.closed:
		return net.ErrClosed
	case p.mode.refuse && p.listener != nil:
		err := p.listener.Close()
		p.listener = nil
		return err
	case !p.mode.refuse && p.listener == nil:
		return p.listen()
	}
	return nil
}

// listen starts accepting; p.mu is held.
func (p *Proxy) listen() error {
	listener, err := new(net.ListenConfig).Listen(p.ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.stop()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// look returns what to do now, and a channel that closes when that changes.
func (p *Proxy) look() (mode, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

// track registers a connection for Reset; false when the proxy is closed or cut.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode.refuse {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) untrack(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(client net.Conn) {
	defer abort(client)
	if !p.track(client) {
		return
	}
	defer p.untrack(client)
	p.mu.Lock()
	p.accepted++
	m, target := p.mode, p.target
	p.mu.Unlock()
	if m.hangUp {
		_ = client.Close()
		return
	}
	if m.garbage != nil {
		answerWith(client, m.garbage)
		return
	}
	server, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(p.ctx, "tcp", target)
	if err != nil {
		return
	}
	defer abort(server)
	if !p.track(server) {
		return
	}
	defer p.untrack(server)
	var pipes sync.WaitGroup
	pipes.Go(func() { p.pipe(server, client, Upward) })
	pipes.Go(func() { p.pipe(client, server, Downward) })
	pipes.Wait()
}

// pipe copies from src to dst under the proxy's faults. When one side ends, the other one's writing half is closed; a
// failure breaks both.
func (p *Proxy) pipe(dst, src net.Conn, d Direction) {
	buf := make([]byte, 32<<10)
	var travel *traveller
	defer func() { travel.end() }()
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !p.pass(n, d) {
				abort(src)
				abort(dst)
				return
			}
			if m, _ := p.look(); travel == nil && m.latency > 0 {
				travel = p.travel(dst, src)
			}
			if travel != nil {
				if !travel.send(buf[:n]) {
					return
				}
			} else if _, err := dst.Write(buf[:n]); err != nil {
				abort(src)
				return
			}
		}
		if err != nil {
			travel.end()
		}
		if errors.Is(err, io.EOF) {
			if half, ok := dst.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			return
		}
		if err != nil {
			if d == Upward && errors.Is(err, syscall.ECONNRESET) {
				p.mu.Lock()
				p.resets++
				p.mu.Unlock()
			}
			abort(dst)
			return
		}
	}
}

// traveller writes pieces when they have been on their way for long enough.
type traveller struct {
	proxy *Proxy
	on    chan piece
	done  chan struct{}
	over  sync.Once
}

type piece struct {
	data []byte
	due  time.Time
}

// travelling is how many pieces are on their way at most.
const travelling = 1024

func (p *Proxy) travel(dst, src net.Conn) *traveller {
	t := &traveller{proxy: p, on: make(chan piece, travelling), done: make(chan struct{})}
	p.wg.Go(func() {
		defer close(t.done)
		for one := range t.on {
			select {
			case <-time.After(time.Until(one.due)):
			case <-p.ctx.Done():
				return
			}
			if _, err := dst.Write(one.data); err != nil {
				abort(src)
				return
			}
		}
	})
	return t
}

// send has a copy of data on its way; false when the other end is gone.
func (t *traveller) send(data []byte) bool {
	m, _ := t.proxy.look()
	select {
	case t.on <- piece{append([]byte(nil), data...), time.Now().Add(m.latency)}:
		return true
	case <-t.done:
		return false
	}
}

// end returns when all that is on its way has arrived.
func (t *traveller) end() {
	if t != nil {
		t.over.Do(func() { close(t.on) })
		<-t.done
	}
}

// pass waits as long as the faults want n bytes held back; false when the proxy ends meanwhile.
func (p *Proxy) pass(n int, d Direction) bool {
	m, changed := p.look()
	for {
		if stalled := d == Upward && m.stallUp || d == Downward && m.stallDown; !stalled {
			break
		}
		select {
		case <-changed:
			m, changed = p.look()
		case <-p.ctx.Done():
			return false
		}
	}
	hold := m.delay
	if m.bytesPerMs > 0 {
		hold += time.Duration(n) * time.Millisecond / time.Duration(m.bytesPerMs)
	}
	if hold == 0 {
		return true
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// abort closes a connection with a reset, so that the peer learns of it at once and no port is left in TIME_WAIT.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

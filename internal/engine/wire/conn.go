package wire

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Conn is one connection to one broker. Requests go out in the order of the calls and are answered in that order; how many
// are in flight is the caller's business. A broker works on one request of a connection at a time, so requests that wait
// (long polls, acks) hold up those behind them.
//
// Functions given to Fetch and Produce are called exactly once, one at a time, in order, by the connection's own goroutine;
// they may send, but must not wait for an answer. All methods are safe for concurrent use.
type Conn struct {
	cfg      Config
	meta     kgo.BrokerMetadata
	net      net.Conn
	versions kafka.APIVersions
	expires  time.Time
	fetch    int16 // highest versions in common, -1: none
	produce  int16
	done     chan struct{}

	write struct {
		sync.Mutex
		vector
		buffers net.Buffers
		pieces  func(*net.Buffers) (int64, error) // a vectored write
		joined  *bufio.Writer                     // where there is none
		next    int32                             // correlation id
	}

	mu        sync.Mutex
	written   *sync.Cond // a call was written, or the connection failed
	err       error      // what ended the connection
	calls     []*call    // in flight, oldest at head
	head      int
	spare     []*call
	answered  time.Time // when the last answer had been read
	throttled time.Time // until then the broker serves nothing here
}

// call is a request in flight. Members are set before it is queued, but for written and wrote, which the connection's lock guards.
type call struct {
	correlation  int32
	key, version int16
	flex         bool
	since        time.Time
	allow        time.Duration // from when the broker could have begun with it
	expect       int           // bytes of an answer that are not doubted
	answerable   int
	written      bool
	wrote        time.Time

	fetched  func(*FetchResponse, error)
	produced func(*ProduceResponse, error)
	other    chan<- answer
}

// answer is the body of another request's answer.
type answer struct {
	body []byte
	err  error
}

func newConn(conn *kafka.Connection, cfg Config, meta kgo.BrokerMetadata) *Conn {
	c := &Conn{
		cfg: cfg, meta: meta, net: conn.Conn, versions: conn.Versions, expires: conn.Expires, done: make(chan struct{}),
		fetch: -1, produce: -1,
	}
	c.written = sync.NewCond(&c.mu)
	if v, ok := c.versions.Highest(keyFetch, minFetch, maxFetch); ok {
		c.fetch = v
	}
	if v, ok := c.versions.Highest(keyProduce, minProduce, maxProduce); ok {
		c.produce = v
	}
	switch to := c.net.(type) {
	case *net.TCPConn:
		c.write.pieces = func(v *net.Buffers) (int64, error) { return v.WriteTo(to) }
	case interface {
		WriteBuffers(v *net.Buffers) (int64, error)
	}: // behind the gate of kafka.Cluster.MayWrite
		c.write.pieces = to.WriteBuffers
	default:
		// A TLS connection would make a record of every little piece.
		c.write.joined = bufio.NewWriterSize(c.net, 16<<10)
	}
	go c.readLoop()
	return c
}

// FetchVersion is the highest version of Fetch in common with the broker; -1 means none.
func (c *Conn) FetchVersion() int16 { return c.fetch }

// ProduceVersion is the highest version of Produce in common with the broker; -1 means none.
func (c *Conn) ProduceVersion() int16 { return c.produce }

// Expires is when the broker ends the connection because the login has an end; zero: never. Open another before.
func (c *Conn) Expires() time.Time { return c.expires }

// Throttled is until when the broker said that it serves nothing on this connection. A request sent before waits.
func (c *Conn) Throttled() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttled
}

// InFlight is the number of requests without answer.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) - c.head
}

// Done is closed when the connection has ended and every request has been told.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is what ended the connection, nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection; requests in flight end with a LostError. It does not wait: see Done. What was sent may still
// be acted on.
func (c *Conn) Close() { c.fail(ErrClosed) }

// Abort is Close with a reset instead of an orderly end, so that the broker drops what it has not read yet. What it has
// read, it still acts on.
func (c *Conn) Abort() {
	c.note(ErrClosed)
	raw := c.net
	for { // TLS and the gate of kafka.Cluster.MayWrite, one within the other
		wrapped, ok := raw.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		raw = wrapped.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && tcp.SetLinger(0) == nil {
		// The socket itself: TLS would say goodbye first, behind what waits to be sent.
		_ = tcp.Close()
	}
	_ = c.net.Close()
}

// fail ends the connection for a reason, the first one given. The reader tells the requests.
func (c *Conn) fail(err error) {
	c.note(err)
	_ = c.net.Close()
}

func (c *Conn) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.written.Broadcast()
}

// Fetch sends a request. done gets the answer, which it has to release at some time, or a *LostError, or an error that
// wraps ErrAnswer. An error of Fetch itself means that nothing was sent, and done is not called. The request may be used
// again when Fetch returns.
func (c *Conn) Fetch(r *FetchRequest, done func(*FetchResponse, error)) error {
	version := c.fetch
	if version >= 0 && r.MaxVersion > 0 {
		version = min(version, r.MaxVersion)
	}
	if version < minFetch {
		return fmt.Errorf("fetch: %w", ErrVersion)
	}
	c.write.Lock()
	defer c.write.Unlock()
	c.write.next++
	c.write.single(frameFetch(c.write.frame[:0], r, version, c.write.next, c.cfg.ClientID))
	return c.send(call{
		key: keyFetch, version: version, flex: version >= flexFetch, allow: r.MaxWait, expect: int(max(0, r.MaxBytes)) + slack,
		answerable: r.answerable(), fetched: done,
	})
}

// Produce sends a request. Its batches must not change until done is called; the rest may be used again when Produce
// returns. done gets the answer, valid until done returns, or a *LostError, or an error that wraps ErrAnswer. An error of
// Produce itself means that nothing was sent, and done is not called.
func (c *Conn) Produce(r *ProduceRequest, done func(*ProduceResponse, error)) error {
	version := c.produce
	if version >= 0 && r.MaxVersion > 0 {
		version = min(version, r.MaxVersion)
	}
	if version < minProduce {
		return fmt.Errorf("produce: %w", ErrVersion)
	}
	c.write.Lock()
	defer c.write.Unlock()
	if r.May != nil && !r.May() {
		return fmt.Errorf("produce: %w", ErrWithheld)
	}
	c.write.next++
	c.write.produce(r, version, c.write.next, c.cfg.ClientID)
	return c.send(call{
		key: keyProduce, version: version, flex: version >= flexProduce, allow: r.Timeout, expect: slack,
		answerable: len(c.write.cuts), produced: done,
	})
}

// Request sends any other request, at the highest version that the broker and the library know, and waits for its answer.
// A broker answers it behind everything sent before.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, ok := c.versions.Highest(req.Key(), 0, req.MaxVersion())
	if !ok {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), ErrVersion)
	}
	req.SetVersion(version)
	var allow time.Duration
	if t, ok := req.(kmsg.TimeoutRequest); ok {
		allow = time.Duration(t.Timeout()) * time.Millisecond
	}
	got := make(chan answer, 1)
	c.write.Lock()
	c.write.next++
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.cfg.ClientID))
	c.write.single(f.AppendRequest(c.write.frame[:0], req, c.write.next))
	// API versions have the old header in every version.
	flex := req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions)
	err := c.send(call{key: req.Key(), version: version, flex: flex, allow: allow, expect: slack, other: got})
	c.write.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-got:
		if a.err != nil {
			return nil, a.err
		}
		resp := req.ResponseKind()
		if err := resp.ReadFrom(a.body); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrAnswer, kmsg.NameForKey(req.Key()), err)
		}
		return resp, nil
	}
}

// send queues the call and writes the frame; the write lock is held.
func (c *Conn) send(of call) error {
	of.correlation = c.write.next
	of.since = time.Now()
	of.allow += c.cfg.Silence + time.Duration(c.write.size)*time.Second/time.Duration(c.cfg.SlowestRate)
	c.mu.Lock()
	if err := c.err; err != nil {
		c.mu.Unlock()
		return &LostError{Err: err}
	}
	q := c.newCall()
	*q = of
	c.calls = append(c.calls, q)
	if len(c.calls)-c.head == 1 {
		c.setDeadline(q)
	}
	c.mu.Unlock()
	err := c.writeOut()
	wrote := time.Since(of.since)
	if h, ok := c.cfg.Hook.(kgo.HookBrokerWrite); ok {
		h.OnBrokerWrite(c.meta, of.key, c.write.size, 0, wrote, err)
	}
	c.write.forget()
	c.mu.Lock()
	// The reader does not let go of the call before this.
	q.written, q.wrote = err == nil, time.Now()
	c.written.Broadcast()
	c.mu.Unlock()
	if err != nil {
		c.fail(fmt.Errorf("write: %w", err))
	}
	return nil
}

func (c *Conn) writeOut() error {
	if w := c.write.joined; w != nil {
		for _, part := range c.write.parts {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	if len(c.write.parts) == 1 {
		_, err := c.net.Write(c.write.parts[0])
		return err
	}
	c.write.buffers = c.write.parts
	_, err := c.write.pieces(&c.write.buffers)
	return err
}

// newCall returns a call to fill; the lock is held.
func (c *Conn) newCall() *call {
	if n := len(c.spare); n > 0 {
		q := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return q
	}
	return new(call)
}

// setDeadline gives the oldest call its time, from when the broker could have begun with it; the lock is held.
func (c *Conn) setDeadline(q *call) {
	// A connection that cannot take a deadline is closed, which the read will say.
	_ = c.net.SetReadDeadline(c.begin(q.since).Add(q.allow))
}

// begin is when the broker can have begun with the oldest call, given when it was sent; the lock is held.
func (c *Conn) begin(sent time.Time) time.Time {
	for _, t := range [...]time.Time{c.answered, c.throttled} {
		if t.After(sent) {
			sent = t
		}
	}
	return sent
}

// oldest returns the call that the next answer is for.
func (c *Conn) oldest() (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == len(c.calls) {
		return nil, fmt.Errorf("%w: nothing was asked", ErrAnswer)
	}
	q := c.calls[c.head]
	if !q.written && c.err == nil {
		// Either the writer is about to say so, or the broker answers before it has read everything.
		_ = c.net.SetWriteDeadline(time.Now().Add(c.cfg.Silence))
		for !q.written && c.err == nil {
			c.written.Wait()
		}
		_ = c.net.SetWriteDeadline(time.Time{})
	}
	if !q.written {
		return nil, fmt.Errorf("%w: a request was answered before it was sent", ErrAnswer)
	}
	return q, nil
}

// pop removes the oldest call, whose answer has been read, and starts the time of the next. took is how long the answer
// took, from when the broker could have begun with it.
func (c *Conn) pop(throttle time.Duration) (took time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	took = now.Sub(c.begin(c.calls[c.head].wrote))
	c.calls[c.head] = nil
	c.head++
	c.answered = now
	if throttle > 0 {
		c.throttled = now.Add(throttle)
	}
	if c.head == len(c.calls) {
		c.calls, c.head = c.calls[:0], 0
		_ = c.net.SetReadDeadline(time.Time{})
		return took
	}
	if c.head >= 64 && c.head*2 >= len(c.calls) {
		n := copy(c.calls, c.calls[c.head:])
		clear(c.calls[n:])
		c.calls, c.head = c.calls[:n], 0
	}
	c.setDeadline(c.calls[c.head])
	return took
}

// recycle keeps a call's memory.
func (c *Conn) recycle(q *call) {
	*q = call{}
	c.mu.Lock()
	if len(c.spare) < 64 {
		c.spare = append(c.spare, q)
	}
	c.mu.Unlock()
}

// end tells all requests in flight that the connection ended. It waits for a writer, so that each is told truly whether it
// was sent.
func (c *Conn) end(err error) {
	c.fail(err)
	c.write.Lock()
	c.mu.Lock()
	err = c.err
	calls := c.calls[c.head:]
	c.calls, c.head = nil, 0
	c.mu.Unlock()
	c.write.Unlock()
	for _, q := range calls {
		q.finish(&LostError{Sent: q.written, Err: err})
	}
	if h, ok := c.cfg.Hook.(kgo.HookBrokerDisconnect); ok {
		h.OnBrokerDisconnect(c.meta, c.net)
	}
	close(c.done)
}

// finish ends a call that got no answer.
func (q *call) finish(err error) {
	switch {
	case q.fetched != nil:
		q.fetched(nil, err)
	case q.produced != nil:
		q.produced(nil, err)
	default:
		q.other <- answer{err: err}
	}
}

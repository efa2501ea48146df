package hub

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// renewBefore is how long before its end a connection whose login expires is replaced; with short logins, a quarter of
// their time.
const renewBefore = 20 * time.Second

// Lanes are the produce connections to each broker, over which partitions are spread. SlowLane is one more, for what the
// broker may take long to answer, so that nothing else waits behind it; ReadLane is for looking at the partitions' ends.
const (
	Lanes    = 2
	SlowLane = Lanes
	ReadLane = Lanes + 1
)

// The connections to a broker beside the lanes.
const (
	pollLine = ReadLane + 1 + iota
	expressLine
	committedPollLine
	committedExpressLine
)

var (
	// ErrNoAddress is wrapped when nobody has said yet where a broker is.
	ErrNoAddress = errors.New("hub: the address of the broker is not known")
	// errLeft ended what belonged to a cluster that was left.
	errLeft = errors.New("hub: the cluster was closed")
)

// linkKey names a connection to a broker.
type linkKey struct {
	broker int32
	line   int
}

// link is a connection that is opened when it is needed first and again after it ended. Members are guarded by the lock of
// links.
type link struct {
	dialling chan struct{} // holds one value while somebody dials; never waited for under the lock of links
	conn     *wire.Conn
	address  string
	since    time.Time
	old      []*wire.Conn // replaced, with requests under way
}

// links are the connections to a cluster's brokers.
type links struct {
	cfg wire.Config // but for the address

	mu        sync.Mutex
	all       map[linkKey]*link
	addresses map[int32]string
	closed    bool
	ending    sync.WaitGroup // connections that are being closed
}

// SetBroker says where a broker is, host:port, as the newest metadata have it. It is known to all members.
func (s *shared) SetBroker(id int32, address string) {
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	s.links.addresses[id] = address
}

// learn takes the addresses that an answer names.
func (s *shared) learn(nodes []wire.Node) {
	for _, n := range nodes {
		s.SetBroker(n.ID, net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))))
	}
}

// Knows tells whether a broker's address is known.
func (s *shared) Knows(broker int32) bool { return s.links.known(broker) }

func (l *links) known(broker int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addresses[broker] != ""
}

// Lane is a working connection for Produce requests: lane is one of Lanes, SlowLane or ReadLane. All members share it, so nobody
// ends it. Others' requests may be under way on it; a broker works on one at a time. ctx bounds the dialling, also where
// another one dials. Errors are those of wire.Dial, and ErrNoAddress.
func (s *shared) Lane(ctx context.Context, broker int32, lane int) (*wire.Conn, error) {
	return s.links.connect(ctx, broker, lane)
}

func (l *links) connect(ctx context.Context, broker int32, line int) (*wire.Conn, error) {
	k, conn, _, err := l.find(broker, line)
	if conn != nil || err != nil {
		return conn, err
	}
	select {
	case k.dialling <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-k.dialling }()
	_, conn, address, err := l.find(broker, line) // another one may have dialled
	if conn != nil || err != nil {
		return conn, err
	}
	cfg := l.cfg
	cfg.Address, cfg.Node = address, broker
	if conn, err = wire.Dial(ctx, cfg); err != nil {
		return nil, err
	}
	if !l.keep(k, conn, address) {
		conn.Close()
		<-conn.Done()
		return nil, errLeft
	}
	return conn, nil
}

// keep makes a connection the link's; false: all were closed.
func (l *links) keep(k *link, conn *wire.Conn, address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	k.conn, k.address, k.since = conn, address, time.Now()
	return true
}

// find is the link, its connection if that works and is to be kept, and the broker's address.
func (l *links) find(broker int32, line int) (k *link, conn *wire.Conn, address string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address = l.addresses[broker]
	switch {
	case l.closed:
		return nil, nil, "", errLeft
	case address == "":
		return nil, nil, "", ErrNoAddress
	}
	key := linkKey{broker, line}
	if k = l.all[key]; k == nil {
		k = &link{dialling: make(chan struct{}, 1)}
		l.all[key] = k
	}
	l.retire(k)
	if c := k.conn; c != nil {
		expires := c.Expires()
		due := !expires.IsZero() && time.Until(expires) < min(renewBefore, expires.Sub(k.since)/4)
		if c.Err() == nil && k.address == address && !due {
			return k, c, address, nil
		}
		// What is under way there still gets its answer.
		k.conn, k.old = nil, append(k.old, c)
		l.retire(k)
	}
	return k, nil, address, nil
}

// retire closes those replaced connections that have nothing under way; the lock is held. It does not wait: the goodbye of
// TLS may take seconds on a line that takes nothing.
func (l *links) retire(k *link) {
	kept := k.old[:0]
	for _, c := range k.old {
		if c.Err() == nil && c.InFlight() > 0 {
			kept = append(kept, c)
			continue
		}
		l.ending.Go(func() {
			c.Close()
			<-c.Done()
		})
	}
	clear(k.old[len(kept):])
	k.old = kept
}

// open are the connections of the lines that are chosen.
func (l *links) open(choose func(line int) bool) (conns []*wire.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.all {
		if !choose(key.line) {
			continue
		}
		conns = append(conns, k.old...)
		if k.conn != nil {
			conns = append(conns, k.conn)
		}
	}
	return conns
}

// abort resets the connections on which records are written.
func (l *links) abort() {
	for _, c := range l.open(func(line int) bool { return line <= SlowLane }) {
		c.Abort()
	}
}

// close ends all connections and opens none any more.
func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	all := l.open(func(int) bool { return true })
	for _, c := range all {
		c.Close()
	}
	for _, c := range all {
		<-c.Done()
	}
	l.ending.Wait()
}

// hook gives what connections tell to the cluster's health, and to its metrics where there are any.
type hook struct {
	health  *health
	metrics kgo.Hook
}

var _ interface {
	kgo.HookBrokerConnect
	kgo.HookBrokerDisconnect
	kgo.HookBrokerWrite
	kgo.HookBrokerRead
	kgo.HookBrokerThrottle
} = hook{}

func (h hook) OnBrokerConnect(m kgo.BrokerMetadata, took time.Duration, c net.Conn, err error) {
	h.health.OnBrokerConnect(m, took, c, err)
	if to, ok := h.metrics.(kgo.HookBrokerConnect); ok {
		to.OnBrokerConnect(m, took, c, err)
	}
}

func (h hook) OnBrokerDisconnect(m kgo.BrokerMetadata, c net.Conn) {
	if to, ok := h.metrics.(kgo.HookBrokerDisconnect); ok {
		to.OnBrokerDisconnect(m, c)
	}
}

func (h hook) OnBrokerWrite(m kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	if to, ok := h.metrics.(kgo.HookBrokerWrite); ok {
		to.OnBrokerWrite(m, key, n, wait, took, err)
	}
}

func (h hook) OnBrokerRead(m kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	if to, ok := h.metrics.(kgo.HookBrokerRead); ok {
		to.OnBrokerRead(m, key, n, wait, took, err)
	}
}

func (h hook) OnBrokerThrottle(m kgo.BrokerMetadata, d time.Duration, after bool) {
	if to, ok := h.metrics.(kgo.HookBrokerThrottle); ok {
		to.OnBrokerThrottle(m, d, after)
	}
}

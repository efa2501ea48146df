package mirror

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// renewBefore is how long before its end a connection whose login expires is replaced; with short logins, a quarter of
// their time.
const renewBefore = 20 * time.Second

// links are the connections to the brokers of one side: one for each lane of each broker, opened when it is
// needed first and again after it ended. Back-off is by broker, elsewhere.
type links struct {
	side *side
	cfg  wire.Config

	mu    sync.Mutex
	all   map[linkKey]*link
	ended bool // nothing is dialled any more
}

type linkKey struct {
	broker int32
	lane   int
}

type link struct {
	mu      sync.Mutex // held while dialling
	conn    *wire.Conn
	address string
	since   time.Time
	old     []*wire.Conn // replaced, with requests under way
	session *wire.Session
	asked   map[TP]bool // partitions of the session
	request wire.FetchRequest
}

func newLinks(s *side, pool *wire.Pool, clientID string) *links {
	cluster := s.path.cfg.Source
	if s == s.path.target {
		cluster = s.path.cfg.Target
	}
	hook := connHook{health: &s.health}
	if cluster.Metrics != nil {
		hook.metrics = cluster.Metrics.Hook(cluster.Side)
	}
	return &links{
		side: s, all: map[linkKey]*link{},
		cfg: wire.Config{Cluster: cluster, ClientID: clientID, Pool: pool, Silence: requestTimeout, Hook: hook},
	}
}

var errNoAddress = errors.New("mirror: the metadata name no address of the broker")

// at is the link to a broker.
func (l *links) at(broker int32, lane int) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := linkKey{broker, lane}
	if l.all[k] == nil {
		l.all[k] = &link{session: &wire.Session{}, asked: map[TP]bool{}}
	}
	return l.all[k]
}

// connect is a working connection to a broker.
func (l *links) connect(ctx context.Context, broker int32, lane int) (*link, *wire.Conn, error) {
	p := l.side.path
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return nil, nil, wire.ErrClosed
	}
	p.mu.Lock()
	address := l.side.addresses[broker]
	p.mu.Unlock()
	if address == "" {
		return nil, nil, errNoAddress
	}
	k := l.at(broker, lane)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.old = retire(k.old)
	if c := k.conn; c != nil {
		expires := c.Expires()
		due := !expires.IsZero() && time.Until(expires) < min(renewBefore, expires.Sub(k.since)/4)
		if c.Err() == nil && k.address == address && !due {
			return k, c, nil
		}
		// What is under way there still gets its answer.
		k.conn, k.old = nil, retire(append(k.old, c))
	}
	cfg := l.cfg
	cfg.Address, cfg.Node = address, broker
	conn, err := wire.Dial(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	k.conn, k.address, k.since = conn, address, time.Now()
	return k, conn, nil
}

// retire closes those connections that have nothing under way, and returns the others.
func retire(old []*wire.Conn) []*wire.Conn {
	kept := old[:0]
	for _, c := range old {
		if c.Err() == nil && c.InFlight() > 0 {
			kept = append(kept, c)
			continue
		}
		c.Close()
	}
	return kept
}

// end ends all connections, while they are in use; with reset the brokers drop what they have not read yet. None is made
// any more.
func (l *links) end(reset bool) {
	l.mu.Lock()
	l.ended = true
	all := slices.Collect(maps.Values(l.all))
	l.mu.Unlock()
	for _, k := range all {
		k.mu.Lock() // nobody dials: the context has ended
		for _, c := range append(k.old, k.conn) {
			switch {
			case c == nil:
			case reset:
				c.Abort()
			default:
				c.Close()
			}
		}
		k.mu.Unlock()
	}
}

// close ends all connections, which must not be in use.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.all {
		for _, c := range append(k.old, k.conn) {
			if c != nil {
				c.Close()
				<-c.Done()
			}
		}
	}
	clear(l.all)
}

// unsent tells whether a request that failed surely did not reach the broker.
func unsent(err error) bool {
	if lost, ok := errors.AsType[*wire.LostError](err); ok {
		return !lost.Sent
	}
	var ke *kerr.Error
	return !errors.As(err, &ke) && !errors.Is(err, wire.ErrAnswer)
}

// connHook gives what connections tell to the side's health, and to the cluster's metrics where there are any.
type connHook struct {
	health  *health
	metrics kgo.Hook
}

var _ interface {
	kgo.HookBrokerConnect
	kgo.HookBrokerDisconnect
	kgo.HookBrokerWrite
	kgo.HookBrokerRead
	kgo.HookBrokerThrottle
} = connHook{}

func (h connHook) OnBrokerConnect(m kgo.BrokerMetadata, took time.Duration, c net.Conn, err error) {
	h.health.OnBrokerConnect(m, took, c, err)
	if to, ok := h.metrics.(kgo.HookBrokerConnect); ok {
		to.OnBrokerConnect(m, took, c, err)
	}
}

func (h connHook) OnBrokerDisconnect(m kgo.BrokerMetadata, c net.Conn) {
	if to, ok := h.metrics.(kgo.HookBrokerDisconnect); ok {
		to.OnBrokerDisconnect(m, c)
	}
}

func (h connHook) OnBrokerWrite(m kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	if to, ok := h.metrics.(kgo.HookBrokerWrite); ok {
		to.OnBrokerWrite(m, key, n, wait, took, err)
	}
}

func (h connHook) OnBrokerRead(m kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	if to, ok := h.metrics.(kgo.HookBrokerRead); ok {
		to.OnBrokerRead(m, key, n, wait, took, err)
	}
}

func (h connHook) OnBrokerThrottle(m kgo.BrokerMetadata, d time.Duration, after bool) {
	if to, ok := h.metrics.(kgo.HookBrokerThrottle); ok {
		to.OnBrokerThrottle(m, d, after)
	}
}

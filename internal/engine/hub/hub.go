package hub

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config is what a Hub needs; zero values stand for the defaults given.
type Config struct {
	// ClientID is the first part of the client ids, before "|source" and "|target"; default "mirrorflow".
	ClientID string
	// Linger is how long the connections to a cluster stay when the last task has left it, so that a task which starts
	// again finds them; default 30 s, negative: not at all. Clusters without a key never stay.
	Linger time.Duration
	// MaxBytesInFlight is the budget of bytes read from all clusters and not given back, in buffers; default 20 MiB.
	MaxBytesInFlight int64
	// FetchBytes is the most asked of a broker at a time; default 4 MiB less 64 KiB, so that an answer fits a buffer of 4 MiB.
	FetchBytes int32
	// Rack is where the process runs: where a broker names a replica in the same rack, that one is read (KIP-392). Default:
	// leaders are read.
	Rack string
	// UnreachableAfter is how long a cluster must fail without any success before Cluster.Watch tells; default 2 s.
	UnreachableAfter time.Duration
	// MayWrite is asked before each write to a connection, as kafka.Cluster.MayWrite is; of clusters without a key, that one
	// is asked as well. Default: always.
	MayWrite func() bool
	Logger   *slog.Logger // default: discard
}

func (c *Config) setDefaults() {
	if c.ClientID == "" {
		c.ClientID = "mirrorflow"
	}
	if c.Linger == 0 {
		c.Linger = 30 * time.Second
	}
	if c.MaxBytesInFlight <= 0 {
		c.MaxBytesInFlight = 20 << 20
	}
	if c.FetchBytes <= 0 {
		c.FetchBytes = 4<<20 - 64<<10
	}
	if c.UnreachableAfter <= 0 {
		c.UnreachableAfter = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// ErrClosed is the error of joining through a Hub that was closed.
var ErrClosed = errors.New("hub: closed")

// Hub is what the tasks of a process share. Safe for concurrent use.
type Hub struct {
	cfg    Config
	budget *budget

	mu     sync.Mutex
	shared map[identity]*shared // those with a key
	all    map[*shared]struct{}
	closed bool
}

// identity tells whose connections may be shared.
type identity struct{ side, key string }

// New makes a hub; nothing is dialled. The caller closes it when no task runs any more.
func New(cfg Config) *Hub {
	cfg.setDefaults()
	return &Hub{cfg: cfg, budget: newBudget(cfg.MaxBytesInFlight, int64(cfg.FetchBytes)), shared: map[identity]*shared{}, all: map[*shared]struct{}{}}
}

// Join makes the caller one of those who work with a cluster, under cluster.Side; nothing is dialled. Clusters with the
// same side and the same non-empty kafka.Cluster.Key are one, as the first to join described it, but for its MayWrite: the
// hub's counts for all. The caller ends its part
// with Leave. Errors: a *kafka.Problem about the cluster's settings, or ErrClosed.
func (h *Hub) Join(cluster kafka.Cluster) (*Cluster, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	id := identity{cluster.Side, cluster.Key}
	s := h.shared[id]
	if cluster.Key == "" {
		s = nil
	}
	if s == nil {
		var err error
		if s, err = newShared(h, cluster); err != nil {
			return nil, err
		}
		h.all[s] = struct{}{}
		if cluster.Key != "" {
			h.shared[id] = s
		}
	}
	s.members++
	if s.linger != nil {
		s.linger.Stop()
		s.linger = nil
	}
	return &Cluster{shared: s}, nil
}

// leave ends one membership.
func (h *Hub) leave(s *shared) {
	h.mu.Lock()
	s.members--
	over := false
	if _, open := h.all[s]; s.members == 0 && open {
		if s.cluster.Key == "" || h.cfg.Linger < 0 {
			over = true
			h.forget(s)
		} else {
			var timer *time.Timer
			timer = time.AfterFunc(h.cfg.Linger, func() { h.expire(s, &timer) })
			s.linger = timer
		}
	}
	h.mu.Unlock()
	if over {
		s.close()
	}
}

// expire closes a cluster that nobody came back to. timer is read under the lock, where it is set.
func (h *Hub) expire(s *shared, timer **time.Timer) {
	h.mu.Lock()
	_, open := h.all[s]
	over := open && s.members == 0 && s.linger == *timer
	if over {
		h.forget(s)
	}
	h.mu.Unlock()
	if over {
		s.close()
	}
}

// forget takes a cluster out; the lock is held.
func (h *Hub) forget(s *shared) {
	delete(h.all, s)
	if id := (identity{s.cluster.Side, s.cluster.Key}); h.shared[id] == s {
		delete(h.shared, id)
	}
}

// Abort resets the connections on which records are written, so that brokers drop what they have not read yet: the process
// may not write any more. Others, and those opened later, are for Config.MayWrite to stop.
func (h *Hub) Abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.all {
		s.links.abort()
	}
}

// Close ends all connections and returns when nothing of the hub runs any more. Tasks that still have a Cluster get errors.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	var open []*shared
	for s := range h.all {
		open = append(open, s)
		h.forget(s)
	}
	h.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	// requestTimeout is how long a request may take beyond what the broker is asked to wait.
	requestTimeout = 20 * time.Second
	// bufferedRecords is how many records of the small topics the client holds; behind it, Produce waits.
	bufferedRecords = 1 << 16
)

// Cluster is one task's part in a cluster. Safe for concurrent use.
type Cluster struct {
	*shared
	left sync.Once
}

// shared is a cluster with all its members.
type shared struct {
	hub     *Hub
	cluster kafka.Cluster
	client  *kgo.Client
	links   links
	health  health
	ctx     context.Context //nolint:containedctx // the cluster's life: its loops begin when they are needed
	end     context.CancelFunc
	group   sync.WaitGroup // of the loops

	members int         // guarded by the hub's lock
	linger  *time.Timer // guarded by the hub's lock; nil: somebody is a member, or it was closed

	fetching sync.Mutex // guards the fetchers and what they hold
	fetchers map[fetcherKey]*fetcher
	closed   bool
}

func newShared(h *Hub, cluster kafka.Cluster) (*shared, error) {
	if cluster.Key != "" {
		cluster.MayWrite = nil // one member's right is not another's
	}
	cluster.MayWrite = both(cluster.MayWrite, h.cfg.MayWrite)
	s := &shared{
		hub: h, cluster: cluster, fetchers: map[fetcherKey]*fetcher{},
		health: health{
			after: h.cfg.UnreachableAfter, wake: make(chan struct{}, 1), waiting: map[uint64]time.Time{}, watchers: map[uint64]func(error){},
		},
	}
	var metrics kgo.Hook
	if cluster.Metrics != nil {
		metrics = cluster.Metrics.Hook(cluster.Side)
	}
	s.links = links{all: map[linkKey]*link{}, addresses: map[int32]string{}, cfg: wire.Config{
		Cluster: cluster, ClientID: s.clientID(), Pool: h.budget.pool, Silence: requestTimeout, Hook: hook{&s.health, metrics},
	}}
	opts, err := cluster.Options(s.clientID(), h.cfg.Logger, &s.health)
	if err != nil {
		return nil, err
	}
	s.client, err = kgo.NewClient(append(opts,
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(bufferedRecords), kgo.MetadataMinAge(100*time.Millisecond), kgo.ConnIdleTimeout(time.Minute),
		kgo.BrokerMaxReadBytes(1<<30), kgo.BrokerMaxWriteBytes(1<<30), kgo.RequestTimeoutOverhead(requestTimeout))...)
	if err != nil {
		return nil, fmt.Errorf("make client %s: %w", s.clientID(), err)
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.group.Go(func() { s.watch(s.ctx) })
	return s, nil
}

func (s *shared) clientID() string { return s.hub.cfg.ClientID + "|" + s.cluster.Side }

// both asks one after the other; either may be nil.
func both(a, b func() bool) func() bool {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func() bool { return a() && b() }
}

// Client is the cluster's client for everything small: metadata, admin requests, groups, and records of the small topics,
// whose partitions the caller sets (kgo.ManualPartitioner). Records go out at once and uncompressed. All members share it:
// nobody closes it, and nobody consumes with it. It answers with kgo.ErrClientClosed after the hub was closed.
func (s *shared) Client() *kgo.Client { return s.client }

// Leave ends the caller's part; further calls do nothing. After it, the cluster must not be used through this value.
func (c *Cluster) Leave() { c.left.Do(func() { c.hub.leave(c.shared) }) }

// close ends the connections, and returns when nothing of the cluster runs any more. Nobody is a member, or the hub was
// closed.
func (s *shared) close() {
	s.fetching.Lock()
	s.closed = true
	s.fetching.Unlock()
	s.end()
	s.client.Close()
	s.links.close()
	s.group.Wait()
}

package hub

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

	members int         // guarded by the hub's lock
	linger  *time.Timer // guarded by the hub's lock; nil: somebody is a member, or it was closed
}

func newShared(h *Hub, cluster kafka.Cluster) (*shared, error) {
	cluster.MayWrite = both(cluster.MayWrite, h.cfg.MayWrite)
	s := &shared{hub: h, cluster: cluster}
	opts, err := cluster.Options(s.clientID(), h.cfg.Logger)
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

// close ends the connections. Nobody is a member any more, or the hub was closed.
func (s *shared) close() { s.client.Close() }

package mirror

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	// requestTimeout is how long a request may take beyond what the broker is asked to wait.
	requestTimeout  = 20 * time.Second
	minRequestBytes = 64 << 10
)

// side is one of the two clusters as the path sees it: its part in the hub, and what the metadata say of the topics in use.
// Members without a note are guarded by the path's lock.
type side struct {
	name    string // "source" or "target"
	cluster *hub.Cluster
	client  *kgo.Client // the cluster's
	path    *mirror

	topics map[string]*topicMeta
	dirty  map[string]bool // ask for these
	asked  uint64          // number of the last metadata request begun
	wake   chan struct{}
	urgent chan struct{} // something was assigned: ask at once, whatever else is open
}

// topicMeta is the last metadata answer about a topic.
type topicMeta struct {
	id       [16]byte
	err      error // of the topic as a whole
	leaders  map[int32]int32
	epochs   map[int32]int32 // of the leaders, -1 not known
	answered uint64          // by which request
}

// open joins the side's cluster; nothing is dialled.
func (s *side) open(cluster kafka.Cluster) (err error) {
	if s.cluster, err = s.path.hub.Join(cluster); err != nil {
		return err
	}
	s.client = s.cluster.Client()
	return nil
}

// begin notes a request that the side should answer; end must be called with its outcome.
func (s *side) begin() uint64 { return s.cluster.Begin() }

// end says how a request went; an error means that the side did not answer.
func (s *side) end(id uint64, err error) { s.cluster.End(id, err) }

// watch has the observer told whether the side can be reached, until stop is called.
func (s *side) watch() (stop func()) {
	return s.cluster.Watch(func(err error) {
		s.path.events.push(func() { s.path.cfg.Observer.Connection(s.name, err) })
	})
}

// request sends one request to a broker and notes whether the side answered.
func (s *side) request(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	id := s.begin()
	resp, err := s.client.Broker(int(broker)).Request(ctx, req)
	s.end(id, err)
	if err != nil {
		s.path.metrics.failure(s.name, "request", err)
	}
	return resp, err
}

// markDirty asks for a topic's metadata again; the path's lock is held.
func (s *side) markDirty(topic string) {
	s.dirty[topic] = true
	notify(s.wake)
}

// metadataLoop keeps the metadata of the topics in use, asking at once for those marked dirty and for all at times.
func (s *side) metadataLoop(ctx context.Context) {
	age := time.NewTicker(s.path.cfg.MetadataMaxAge)
	defer age.Stop()
	tries := 0
	for {
		open := false
		s.path.locked(func() { open = len(s.dirty) > 0 })
		if !open {
			tries = 0
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			case <-age.C:
				s.path.locked(func() {
					for t := range s.topics {
						s.dirty[t] = true
					}
				})
			}
			continue
		}
		s.refresh(ctx)
		// What is open still waits for the cluster: again soon, then less often, at once never.
		wait := min(time.Second, 100*time.Millisecond<<min(tries, 4))
		tries++
		select {
		case <-ctx.Done():
			return
		case <-s.urgent:
			tries = 0
		case <-time.After(wait):
		}
	}
}

func (s *side) refresh(ctx context.Context) {
	p := s.path
	var number uint64
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	p.locked(func() {
		s.asked++
		number = s.asked
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(s.dirty))
		used := p.topicsOf(s)
		for t := range s.dirty {
			if !used[t] {
				delete(s.topics, t)
				continue
			}
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(t)
			req.Topics = append(req.Topics, rt)
		}
		clear(s.dirty)
	})
	if len(req.Topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id := s.begin()
	resp, err := req.RequestWith(ctx, s.client)
	s.end(id, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.metrics.failure(s.name, "metadata", err)
		for _, t := range req.Topics {
			s.dirty[*t.Topic] = true
		}
		return
	}
	for _, b := range resp.Brokers {
		s.cluster.SetBroker(b.NodeID, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil {
			continue
		}
		tm := &topicMeta{id: rt.TopicID, err: kerr.ErrorForCode(rt.ErrorCode), leaders: map[int32]int32{}, epochs: map[int32]int32{}, answered: number}
		for _, rp := range rt.Partitions {
			leader := rp.Leader
			if rp.ErrorCode != 0 && !errors.Is(kerr.ErrorForCode(rp.ErrorCode), kerr.ReplicaNotAvailable) {
				leader = -1
			}
			tm.leaders[rp.Partition], tm.epochs[rp.Partition] = leader, rp.LeaderEpoch
		}
		s.topics[*rt.Topic] = tm
	}
	p.resolveAll(s)
	p.wake()
}

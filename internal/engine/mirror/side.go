package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	// requestTimeout is how long a request may take beyond what the broker is asked to wait.
	requestTimeout  = 20 * time.Second
	minRequestBytes = 64 << 10
)

// side is one of the two clusters as the path sees it: a client, what the metadata say of the topics in use, and whether
// it answers. Members without a note are guarded by the path's lock.
type side struct {
	name   string // "source" or "target"
	client *kgo.Client
	path   *mirror

	topics  map[string]*topicMeta
	dirty   map[string]bool // ask for these
	asked   uint64          // number of the last metadata request begun
	wake    chan struct{}
	urgent  chan struct{} // something was assigned: ask at once, whatever else is open
	brokers map[int32]*brokerState
	// addresses of the brokers, host:port.
	addresses map[int32]string
	// maxBytes is what a request, or the answer to one, may carry.
	maxBytes int64

	health health
}

// brokerState is what the schedulers keep of one broker.
type brokerState struct {
	busy      [maxLanes]int // requests under way in each lane
	limit     int64         // bytes of the next request; see finished
	failures  int
	notBefore time.Time
}

// topicMeta is the last metadata answer about a topic.
type topicMeta struct {
	id       [16]byte
	err      error // of the topic as a whole
	leaders  map[int32]int32
	epochs   map[int32]int32 // of the leaders, -1 not known
	answered uint64          // by which request
}

// health tells when a side has not answered for a while. It has its own lock, since client hooks use it.
type health struct {
	mu           sync.Mutex
	lastOK       time.Time
	failingSince time.Time
	err          error  // of the last failed request
	connErr      error  // of the last failed connection attempt, nil after a success: says more than err
	reported     string // what was told last: problem code and step; "" nothing, or that it is over
	probing      bool
	waiting      map[uint64]time.Time // requests under way
	next         uint64
}

// open makes the side's client; nothing is dialled.
func (s *side) open(cluster kafka.Cluster, clientID string) error {
	opts, err := cluster.Options(clientID, s.path.cfg.Logger, &s.health)
	if err != nil {
		return err
	}
	s.client, err = kgo.NewClient(append(opts, kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(5*time.Second), kgo.RequestRetries(3),
		kgo.BrokerMaxReadBytes(1<<30), kgo.BrokerMaxWriteBytes(1<<30), kgo.ConnIdleTimeout(time.Minute), kgo.RequestTimeoutOverhead(requestTimeout))...)
	if err != nil {
		s.client = nil
		return fmt.Errorf("make client %s: %w", clientID, err)
	}
	return nil
}

// OnBrokerConnect implements kgo.HookBrokerConnect; err covers TLS and the login.
func (h *health) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	h.mu.Lock()
	h.connErr = err
	h.mu.Unlock()
}

// begin notes a request; end must be called with its outcome.
func (h *health) begin(now time.Time) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[uint64]time.Time{}
	}
	h.next++
	h.waiting[h.next] = now
	return h.next
}

func (s *side) end(id uint64, err error) {
	h := &s.health
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	began := h.waiting[id]
	delete(h.waiting, id)
	if err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		h.err = err
		if h.failingSince.IsZero() {
			h.failingSince = now
			if began.After(h.lastOK) { // silent all the time
				h.failingSince = began
			}
		}
		return
	}
	h.lastOK, h.failingSince, h.err = now, time.Time{}, nil
	if h.reported != "" {
		h.reported = ""
		s.path.events.push(func() { s.path.cfg.Observer.Connection(s.name, nil) })
	}
}

// request sends one request to a broker and notes whether the side answered.
func (s *side) request(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	id := s.health.begin(time.Now())
	resp, err := s.client.Broker(int(broker)).Request(ctx, req)
	s.end(id, err)
	if err != nil {
		s.path.metrics.failure(s.name, "request", err)
	}
	return resp, err
}

// check tells the observer when the side has failed for long enough, and probes it when it is silent.
func (s *side) check(ctx context.Context, now time.Time) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := now
	for _, since := range h.waiting {
		if since.Before(oldest) {
			oldest = since
		}
	}
	// A slow request is no failure by itself (a long transfer, a throttle); a probe on a connection of its own tells.
	if !h.probing && now.Sub(oldest) > time.Second && now.Sub(h.lastOK) > 700*time.Millisecond {
		h.probing = true
		s.path.spawn("probing", func() { s.probe(ctx) })
	}
	if h.failingSince.IsZero() || now.Sub(h.failingSince) < s.path.cfg.UnreachableAfter {
		return
	}
	err := h.err
	if h.connErr != nil {
		err = h.connErr
	}
	// Told again when the trouble changes, not with each attempt's own words (ports, brokers).
	kind := "other"
	if problem := kafka.Classify(err); problem != nil {
		kind = string(problem.Code) + " " + string(problem.Step)
	}
	if kind != h.reported {
		h.reported = kind
		s.path.events.push(func() { s.path.cfg.Observer.Connection(s.name, err) })
	}
}

func (s *side) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 1200*time.Millisecond)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	id := s.health.begin(time.Now())
	_, err := req.RequestWith(ctx, s.client)
	s.end(id, err)
	s.health.mu.Lock()
	s.health.probing = false
	s.health.mu.Unlock()
}

// markDirty asks for a topic's metadata again; the path's lock is held.
func (s *side) markDirty(topic string) {
	s.dirty[topic] = true
	notify(s.wake)
}

func (s *side) broker(id int32) *brokerState {
	b := s.brokers[id]
	if b == nil {
		b = &brokerState{limit: s.maxBytes}
		s.brokers[id] = b
	}
	return b
}

// finished notes the outcome of a request to a broker that began at a time; the path's lock is held. Over a slow line a
// large request or answer would run into the client's time-out again and again, so the size follows what went through.
func (s *side) finished(id int32, lane int, began time.Time, err error) {
	b := s.broker(id)
	b.busy[lane]--
	if err == nil {
		b.failures, b.notBefore = 0, time.Time{}
		if time.Since(began) < requestTimeout/8 {
			b.limit = min(2*b.limit, s.maxBytes)
		}
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.limit = max(b.limit/2, minRequestBytes)
	}
	b.failures++
	wait := min(time.Second, 50*time.Millisecond<<min(b.failures, 6))
	b.notBefore = time.Now().Add(wait)
	s.path.wakeIn(wait)
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
	id := s.health.begin(time.Now())
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
		s.addresses[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
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

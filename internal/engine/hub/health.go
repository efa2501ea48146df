package hub

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	checkEvery   = 250 * time.Millisecond
	slowAfter    = time.Second            // a request that takes longer may mean that nobody is there
	silentAfter  = 700 * time.Millisecond // as long as that, the last answer counts
	probeTimeout = 1200 * time.Millisecond
)

// health tells when a cluster has not answered for a while. Requests of all members count: what one of them hears, all
// know.
type health struct {
	after time.Duration
	wake  chan struct{} // there is something to watch

	mu           sync.Mutex
	lastOK       time.Time
	failingSince time.Time
	err          error  // of the last failed request
	connErr      error  // of the last failed connection attempt, nil after a success: says more than err
	reported     string // what was told last: problem code and step; "": nothing, or that it is over
	told         error
	probing      bool
	waiting      map[uint64]time.Time // requests under way
	next         uint64
	watchers     map[uint64]func(error)
}

// Watch has tell called when the cluster has failed for Config.UnreachableAfter without any success, again when the
// trouble is of another kind, and with nil when it is over; at once when the cluster fails already. Calls come one at a
// time, from any goroutine; tell must be quick and must not call the Cluster. stop ends it, and waits for a call under way.
func (s *shared) Watch(tell func(error)) (stop func()) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.watchers[id] = tell
	if h.reported != "" {
		tell(h.told)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, id)
	}
}

// Begin notes a request to the cluster; End must be called with what it answers. For those who watch: fetches of a Reader
// count by themselves.
func (s *shared) Begin() uint64 {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.waiting[h.next] = time.Now()
	if len(h.waiting) == 1 {
		signal(h.wake)
	}
	return h.next
}

// End says how a request went: an error means that the cluster did not answer, not that it refused.
func (s *shared) End(id uint64, err error) {
	h := &s.health
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	began := h.waiting[id]
	delete(h.waiting, id)
	if err != nil {
		if ours(err) {
			return
		}
		h.err = err
		if h.failingSince.IsZero() {
			h.failingSince = now
			if began.After(h.lastOK) { // silent all the time, to whoever asked first
				h.failingSince = began
				for _, since := range h.waiting {
					if since.Before(h.failingSince) && since.After(h.lastOK) {
						h.failingSince = since
					}
				}
			}
		}
		signal(h.wake)
		return
	}
	h.lastOK, h.failingSince, h.err = now, time.Time{}, nil
	if h.reported != "" {
		h.reported = ""
		h.tell(nil)
	}
}

// ours tells an end that we wanted from a failure.
func ours(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, errLeft) || errors.Is(err, kafka.ErrMayNotWrite)
}

// tell calls the watchers; the lock is held.
func (h *health) tell(err error) {
	h.told = err
	for _, f := range h.watchers {
		f(err)
	}
}

// OnBrokerConnect implements kgo.HookBrokerConnect; err covers TLS and the login.
func (h *health) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && ours(err) {
		return
	}
	h.mu.Lock()
	h.connErr = err
	h.mu.Unlock()
}

// watch checks while there is something to check.
func (s *shared) watch(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		if !s.check(ctx, time.Now()) {
			select {
			case <-ctx.Done():
				return
			case <-s.health.wake:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check tells that the cluster has failed for long enough, and probes it when it is silent; false: there is nothing to
// check before the next request.
func (s *shared) check(ctx context.Context, now time.Time) bool {
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
	if !h.probing && now.Sub(oldest) > slowAfter && now.Sub(h.lastOK) > silentAfter {
		h.probing = true
		s.group.Go(func() { s.probe(ctx) })
	}
	if h.failingSince.IsZero() {
		return len(h.waiting) > 0 || h.probing
	}
	if now.Sub(h.failingSince) < h.after {
		return true
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
		h.tell(err)
	}
	return true
}

func (s *shared) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	id := s.Begin()
	_, err := req.RequestWith(ctx, s.client)
	s.End(id, err)
	s.health.mu.Lock()
	s.health.probing = false
	s.health.mu.Unlock()
}

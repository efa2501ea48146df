package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	// pollEvery is how often the worker looks for free tasks and jobs without being woken.
	pollEvery = time.Second
	// acquireLimit is how many tasks one statement may take; more follow at once.
	acquireLimit = 64
	// eventCalls is how many events may be under way to the database at a time.
	eventCalls = 16
	// A changed flow takes effect, and a disabled one stops, within 2 s, drainGrace included. What was
	// noticed by a notification has most of that left for a clean drain; what was noticed by polling
	// has waited up to a second already.
	drainOnHint = 1300 * time.Millisecond
	drainOnPoll = 350 * time.Millisecond
	// verifyTimeout bounds the question whether a lease that is gone went with its flow.
	verifyTimeout = 300 * time.Millisecond
	// lookers is how many specifications are read at a time.
	lookers = 8
)

// Config is what a Supervisor is made of.
type Config struct {
	// ID names the worker in leases; no two living workers share one. Required.
	ID string
	// TTL of leases. Required, 1 s at least.
	TTL time.Duration
	// DrainTimeout bounds the clean stop of tasks and jobs at shutdown. Default 10 s.
	DrainTimeout time.Duration
	Store        flows.WorkerStore // required
	Opener       Opener            // required
	// PassThrough lets the engines pass whole batches on; see engine.Config.
	PassThrough bool
	// MaxBytesInFlight is the budget of bytes that all tasks together have read and not handed on; 0: the hub's default.
	MaxBytesInFlight int64
	// Rack is where the worker runs, for reading from the nearest replica; "": leaders are read.
	Rack   string
	Logger *slog.Logger // nil discards
	// Registerer gets the worker's and the engines' metrics; nil keeps them to the worker.
	Registerer prometheus.Registerer

	// The rest is for tests; the defaults are the real things.
	NewRunner func(engine.Config) (Runner, error)
	Check     func(context.Context, kafka.Cluster) (kafka.Info, *kafka.Problem)
	Forget    func(context.Context, engine.Config) error
}

// slot is a task whatever its term.
type slot struct {
	flow uuid.UUID
	task int
}

// Supervisor runs tasks and jobs. Make it with New, run it once.
type Supervisor struct {
	id           string
	ttl          time.Duration
	drainTimeout time.Duration
	passThrough  bool
	store        flows.WorkerStore
	opener       Opener
	log          *slog.Logger
	registry     prometheus.Registerer
	kafka        *kafka.Metrics // of all engines' clients, by side
	hub          *hub.Hub       // all engines' connections
	shares       shares
	trust        trust
	m            *metrics
	newRunner    func(engine.Config) (Runner, error)
	check        func(context.Context, kafka.Cluster) (kafka.Info, *kafka.Problem)
	forget       func(context.Context, engine.Config) error

	eventCalls chan struct{}
	// Each is buffered by one: a signal that somebody should look, not what there is to see.
	acquireNow, renewNow, reportNow, jobNow, lookNow, releaseNow chan struct{}

	asks sync.WaitGroup // verifications under way

	moves mover // of the acquire loop alone

	mu       sync.Mutex
	held     map[slot]*task
	ended    []*task            // their engines have returned, their leases are to be released
	looks    map[uuid.UUID]look // specifications to be read
	lastBeat time.Time
	alive    int // workers, as the database last said
	stopping bool
}

// look says until when what a specification brings must be in effect.
type look struct{ by time.Time }

// New checks the configuration and makes a Supervisor. Nothing is called before Run.
func New(c Config) (*Supervisor, error) {
	switch {
	case c.ID == "":
		return nil, errors.New("worker: Config.ID is empty")
	case c.TTL < time.Second:
		return nil, fmt.Errorf("worker: Config.TTL is %v, must be 1s at least", c.TTL)
	case c.Store == nil:
		return nil, errors.New("worker: Config.Store is nil")
	case c.Opener == nil:
		return nil, errors.New("worker: Config.Opener is nil")
	}
	s := &Supervisor{
		id: c.ID, ttl: c.TTL, drainTimeout: cmp.Or(c.DrainTimeout, 10*time.Second), passThrough: c.PassThrough, store: c.Store, opener: c.Opener,
		log: c.Logger, registry: c.Registerer, newRunner: c.NewRunner, check: c.Check, forget: c.Forget,
		eventCalls: make(chan struct{}, eventCalls),
		acquireNow: make(chan struct{}, 1), renewNow: make(chan struct{}, 1), reportNow: make(chan struct{}, 1),
		jobNow: make(chan struct{}, 1), lookNow: make(chan struct{}, 1), releaseNow: make(chan struct{}, 1),
		shares: shares{used: map[string]*share{}}, trust: trust{began: time.Now()},
		held: map[slot]*task{}, looks: map[uuid.UUID]look{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With(slog.String("worker", s.id))
	if s.registry == nil {
		s.registry = prometheus.NewRegistry()
	}
	if s.newRunner == nil {
		s.newRunner = newEngine
	}
	if s.check == nil {
		s.check = kafka.Check
	}
	if s.forget == nil {
		s.forget = forget
	}
	var err error
	if s.kafka, err = kafka.NewMetrics(s.registry); err != nil {
		return nil, err
	}
	if s.m, err = newMetrics(s.registry); err != nil {
		return nil, err
	}
	s.hub = hub.New(hub.Config{
		ClientID: s.id, Linger: connectionsLinger, MaxBytesInFlight: c.MaxBytesInFlight, Rack: c.Rack, MayWrite: s.trust.holds, Logger: s.log,
	})
	return s, nil
}

// Ready answers nil while the worker is registered: it reached the database
// within the TTL and is not stopping.
func (s *Supervisor) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return ErrShutdown
	case s.lastBeat.IsZero():
		return errors.New("the worker has not registered with the database yet")
	case time.Since(s.lastBeat) > s.ttl:
		return fmt.Errorf("the worker last reached the database %v ago", time.Since(s.lastBeat).Round(time.Second))
	}
	return nil
}

// Run works until ctx ends, then stops in good order and answers nil. The
// database may be absent at any time: Run waits for it.
//
// The order of stopping: first nothing new is taken (Ready fails, no leases, no
// jobs), and the others are told, so that they take more than their shares so far. Then all tasks drain at once, while renewals, reports and releases go
// on: a drain writes positions and status under the lease, so the lease must
// live as long. Each lease is released when its engine has returned and not
// before, since the next owner starts at once. Last end the loops that kept the
// leases alive.
func (s *Supervisor) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var taking, keeping sync.WaitGroup
	keeping.Go(func() { s.renewLoop(life) })
	keeping.Go(func() { s.reportLoop(life) })
	keeping.Go(func() { s.releaseLoop(life) })
	keeping.Go(func() { s.lookLoop(life) })
	keeping.Go(func() { s.listen(life) })
	jobs := newJobs(s)
	taking.Go(func() { s.acquireLoop(ctx) })
	taking.Go(func() { jobs.loop(ctx) })

	<-ctx.Done()
	s.log.Info("worker stopping", slog.Any("reason", context.Cause(ctx)))
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	taking.Wait()
	s.leave(life)
	by := time.Now().Add(s.drainTimeout)
	tasks := s.tasks()
	for _, t := range tasks {
		t.drain(ErrShutdown, by)
	}
	jobs.stop(by)
	s.awaitReleases(by)
	s.resign(life)
	end()
	keeping.Wait()
	s.asks.Wait()
	s.hub.Close()
	s.log.Info("worker stopped", slog.Int("tasks", len(tasks)))
	return nil
}

// awaitReleases waits until no lease is left, for a while longer than drains
// may take: what cannot be released then runs out by itself.
func (s *Supervisor) awaitReleases(by time.Time) {
	limit := time.NewTimer(time.Until(by) + drainGrace + lastWordsTimeout + releaseTimeout)
	defer limit.Stop()
	for {
		s.mu.Lock()
		left := len(s.held)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		tick := time.NewTimer(10 * time.Millisecond)
		select {
		case <-limit.C:
			s.log.Error("leases not released, they run out by themselves", slog.Int("leases", left))
			return
		case <-tick.C:
		}
	}
}

// resign tells the database that the worker is gone, so that the others do not
// leave it a share until it runs out. It does so with a release of no lease.
func (s *Supervisor) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := s.store.ReleaseTasks(ctx, s.id, nil); err != nil {
		s.log.Debug("not resigned, the registration runs out by itself", slog.Any("error", err))
	}
}

func (s *Supervisor) tasks() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*task, 0, len(s.held))
	for _, t := range s.held {
		out = append(out, t)
	}
	return out
}

func (s *Supervisor) tasksOf(flow uuid.UUID) []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*task
	for k, t := range s.held {
		if k.flow == flow {
			out = append(out, t)
		}
	}
	return out
}

// acquireLoop registers the worker and takes what is free.
func (s *Supervisor) acquireLoop(ctx context.Context) {
	var failing failure
	for ctx.Err() == nil {
		err := s.beat(ctx)
		for more := err == nil; more && ctx.Err() == nil; {
			more, err = s.acquire(ctx)
		}
		failing.note(s.log, "acquire tasks", err)
		if err == nil && ctx.Err() == nil {
			s.rebalance(ctx)
		}
		// Spread over workers, so that they do not all come at once.
		wait := pollEvery*9/10 + rand.N(pollEvery/10)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.acquireNow:
		}
		timer.Stop()
	}
}

func (s *Supervisor) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ttl/3)
	defer cancel()
	alive, err := s.store.Beat(ctx, s.id, s.ttl)
	if err != nil {
		s.m.storeErrors.WithLabelValues("beat").Inc()
		return err
	}
	s.m.workersAlive.Set(float64(alive))
	s.mu.Lock()
	s.lastBeat, s.alive = time.Now(), alive
	s.mu.Unlock()
	return nil
}

// acquire takes free tasks once and tells whether there may be more.
func (s *Supervisor) acquire(ctx context.Context) (more bool, err error) {
	attempt := time.Now()
	// Not cut off by a shutdown: leases whose answer is not awaited would be nobody's for a TTL.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ttl/3)
	defer cancel()
	leases, err := s.store.AcquireTasks(ctx, s.id, s.ttl, acquireLimit)
	if err != nil {
		s.m.storeErrors.WithLabelValues("acquire tasks").Inc()
		return false, err
	}
	tm := term{attempt: attempt, ttl: s.ttl}
	if !tm.trusted(time.Now()) { // the process stood still meanwhile
		s.log.Warn("leases acquired too late to be used", slog.Int("leases", len(leases)))
		return false, s.store.ReleaseTasks(ctx, s.id, keysOf(leases))
	}
	for _, lease := range leases {
		s.adopt(lease, tm)
	}
	return len(leases) == acquireLimit, nil
}

func keysOf(leases []flows.TaskLease) []flows.LeaseKey {
	keys := make([]flows.LeaseKey, 0, len(leases))
	for _, l := range leases {
		keys = append(keys, l.LeaseKey)
	}
	return keys
}

// adopt starts a task under a lease.
func (s *Supervisor) adopt(lease flows.TaskLease, tm term) {
	s.m.acquired.Inc()
	t := newTask(s, lease, tm)
	k := slot{lease.FlowID, lease.Task}
	s.mu.Lock()
	if old := s.held[k]; old != nil {
		// The database gave a new term while an old one is here: the old one is lost, and its
		// engine must be gone before the next starts.
		t.prev = old
	}
	s.held[k] = t
	s.mu.Unlock()
	if t.prev != nil {
		t.prev.lose("new term")
	}
	t.log.Info("lease acquired")
	signal(s.reportNow)
	go func() {
		t.run()
		s.mu.Lock()
		s.ended = append(s.ended, t)
		s.mu.Unlock()
		signal(s.releaseNow)
	}()
}

// listen passes notifications on. They are hints: everything they speed up
// happens without them as well.
func (s *Supervisor) listen(ctx context.Context) {
	for n := range s.store.Notifications(ctx) {
		switch n.Kind {
		case "flow":
			s.look(n.ID, drainOnHint)
			signal(s.acquireNow)
		case "task":
			signal(s.acquireNow)
		case "job":
			signal(s.jobNow)
		case "resync":
			signal(s.renewNow)
			signal(s.acquireNow)
			signal(s.jobNow)
		}
	}
}

// look asks for a flow's specification to be read, if a task of it is here.
func (s *Supervisor) look(flow uuid.UUID, within time.Duration) {
	if len(s.tasksOf(flow)) == 0 {
		return
	}
	by := time.Now().Add(within)
	s.mu.Lock()
	if l, ok := s.looks[flow]; !ok || by.Before(l.by) {
		s.looks[flow] = look{by}
	}
	s.mu.Unlock()
	signal(s.lookNow)
}

// lookLoop reads specifications and offers them to their tasks. A reading that
// fails is not repeated: the next renewal finds the same difference.
func (s *Supervisor) lookLoop(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	places := make(chan struct{}, lookers)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lookNow:
		}
		s.mu.Lock()
		looks := s.looks
		s.looks = map[uuid.UUID]look{}
		s.mu.Unlock()
		for flow, l := range looks {
			select {
			case <-ctx.Done():
				return
			case places <- struct{}{}:
			}
			work.Go(func() {
				defer func() { <-places }()
				s.readSpec(ctx, flow, l.by)
			})
		}
	}
}

func (s *Supervisor) readSpec(ctx context.Context, flow uuid.UUID, by time.Time) {
	ctx, cancel := context.WithTimeout(ctx, s.ttl/3)
	defer cancel()
	spec, err := s.store.GetFlowSpec(ctx, flow)
	switch {
	case flows.CodeOf(err) == flows.CodeNotFound:
		for _, t := range s.tasksOf(flow) {
			t.drain(ErrFlowDisabled, by)
		}
	case err != nil:
		s.m.storeErrors.WithLabelValues("get flow spec").Inc()
		s.log.Debug("specification not read", slog.String("flow_id", flow.String()), slog.Any("error", err))
	default:
		for _, t := range s.tasksOf(flow) {
			t.offer(spec, by)
		}
	}
}

// failure logs the first of a row of errors of a call, every tenth, and the end.
type failure struct{ n int }

func (f *failure) note(log *slog.Logger, call string, err error) {
	if err == nil {
		if f.n > 0 {
			log.Info("database reached again", slog.String("call", call), slog.Int("failures", f.n))
		}
		f.n = 0
		return
	}
	if f.n%10 == 0 {
		log.Warn("database not reached", slog.String("call", call), slog.Int("failures", f.n+1), slog.Any("error", err))
	}
	f.n++
}

package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// mirror is the Path: it passes record batches on as bytes. A batch stays in the buffer in which it was fetched, gets
// another header there, is written from there, and is kept there until the target has acknowledged it. Batches that may
// not pass, and small ones that lie one behind the other, are put together anew (internal/engine/batch); without
// Config.PassThrough, all are.
//
// Connections, the budget of bytes and what is under way at the source belong to the hub (internal/engine/hub), which other
// paths share: what is to be read is left with it as wants, and answers come back by Fetched. A partition keeps to one lane
// of a target broker.
//
// Each partition has a pipeline of batches under way, numbered by an idempotent producer: one, or as many as the line to
// the target needs where the target can tell what of them has arrived. Nothing whose fate is unknown is sent again before
// the target was looked at.
type mirror struct {
	cfg            Config
	codec          *codec.Codec
	hub            *hub.Hub
	ownHub         bool
	reader         *hub.Reader
	pool           *wire.Pool // the hub's
	unpackers      sync.Pool
	source, target *side
	events         *dispatcher
	metrics        *metrics
	group          sync.WaitGroup
	fault          chan error // the first panic
	inFlight       atomic.Int64
	rescan         atomic.Bool // what is wanted of all partitions is to be looked at, not only of those that changed
	wakeFetch      chan struct{}
	wakeProduce    chan struct{}
	wakeCheck      chan struct{}
	wakeProbe      chan struct{}
	wakeSettings   chan struct{}
	wakeAnchor     chan struct{}

	mu      sync.Mutex
	life    context.Context //nolint:containedctx // Run's, for what answers of the hub set going; nil: not now
	parts   map[TP]*part
	order   []*part // of parts
	lives   uint64  // of partitions
	changed []*part // what is wanted of them is to be looked at
	// suspended: enough is held, so that nothing is wanted. indebted: nothing more is, since the rate was passed.
	suspended, indebted bool
	owing               bool // a timer tells when the rate's debt is over, or how much of it is left
	rate                bucket
	ahead               int64 // bytes that the wants left with the hub will bring, of partitions known to have more, while there is a rate
	behind              int   // how many partitions were, at
	behindAt            time.Time
	queued              bool      // a partition was not wanted since others are
	turn                int       // in order: who is asked for next
	acked, full         time.Time // when the target last acknowledged anything; when the path was suspended
	watching            bool      // a timer tells when to look at these two
	ids                 identity  // for partitions that have none of their own yet
	// used is the identity last used for each target partition, unassigned ones too: numbering under it must not begin
	// again, since the target would take new records for old ones and drop them.
	used   map[TP]identity
	hasIDs bool
	lanes  map[laneKey]*lane
	// spreads tell by broker whether one lane is enough.
	spreads map[int32]*spread
	turns   uint64 // of all lanes
	// fixedTrip, in tests, is the length of all lines.
	fixedTrip time.Duration
	opened    []*lane // have no goroutine yet
	probes    []*lane // want to know how long their line is
	settings  map[string]topicSettings
	toAnchor  []*part
	// expiration is the target's producer.id.expiration.ms.
	expiration     time.Duration
	expirationRead time.Time
	askingID       bool
	idsAfter       time.Time
	// askAgain is how long to go without idempotence before asking again.
	askAgain time.Duration
}

// New makes the path; it connects when it runs. Run must be called once; it closes the connections. All methods are safe
// for concurrent use. After an error nothing is left behind.
func New(cfg Config) (Path, error) { return newMirror(cfg) }

func newMirror(cfg Config) (_ *mirror, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	compression, err := codec.New()
	if err != nil {
		return nil, err
	}
	p := &mirror{
		codec: compression, hub: cfg.Hub, cfg: cfg, askAgain: time.Minute, fault: make(chan error, 1), parts: map[TP]*part{}, used: map[TP]identity{},
		wakeFetch: make(chan struct{}, 1), wakeProduce: make(chan struct{}, 1), wakeCheck: make(chan struct{}, 1),
		wakeProbe: make(chan struct{}, 1), wakeSettings: make(chan struct{}, 1), wakeAnchor: make(chan struct{}, 1), lanes: map[laneKey]*lane{}, spreads: map[int32]*spread{},
		settings:   map[string]topicSettings{},
		expiration: defaultExpiration,
	}
	if p.hub == nil {
		p.ownHub = true
		p.hub = hub.New(hub.Config{
			ClientID: cfg.ClientID, Linger: -1, MaxBytesInFlight: cfg.MaxBytesInFlight, FetchBytes: cfg.FetchBytes,
			UnreachableAfter: cfg.UnreachableAfter, Logger: cfg.Logger,
		})
	}
	p.pool = p.hub.Pool()
	p.events = newDispatcher(p.failed)
	p.source, p.target = newSide(p, "source"), newSide(p, "target")
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := p.source.open(cfg.Source); err != nil {
		return nil, err
	}
	if err := p.target.open(cfg.Target); err != nil {
		return nil, err
	}
	p.reader = p.source.cluster.Reader(!cfg.ReadUncommitted, p)
	if p.metrics, err = newMetrics(cfg); err != nil {
		return nil, err
	}
	return p, nil
}

// close gives up what a path holds beside memory.
func (p *mirror) close() {
	if p.reader != nil {
		p.reader.Close()
	}
	for _, s := range []*side{p.source, p.target} {
		if s.cluster != nil {
			s.cluster.Leave()
		}
	}
	if p.ownHub {
		p.hub.Close()
	}
	if p.metrics != nil {
		p.metrics.close()
	}
}

func newSide(p *mirror, name string) *side {
	return &side{
		name: name, path: p, topics: map[string]*topicMeta{}, dirty: map[string]bool{}, wake: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1),
	}
}

// Run implements Path. A panic within ends it, with a *report.PanicError.
func (p *mirror) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dispatched := make(chan struct{})
	eventsCtx, stopEvents := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEvents()
	go func() {
		defer close(dispatched)
		p.events.run(eventsCtx)
	}()
	p.locked(func() { p.life = ctx })
	for _, s := range []*side{p.source, p.target} {
		defer s.watch()()
	}
	p.spawn("the source's metadata", func() { p.source.metadataLoop(ctx) })
	p.spawn("the target's metadata", func() { p.target.metadataLoop(ctx) })
	p.spawn("checking", func() { p.checkLoop(ctx) })
	p.spawn("the order of reading", func() { p.fetchLoop(ctx) })
	p.spawn("the order of writing", func() { p.produceLoop(ctx) })
	p.spawn("the length of lines", func() { p.probeLoop(ctx) })
	p.spawn("the target's settings", func() { p.settingsLoop(ctx) })
	p.spawn("anchoring", func() { p.anchorLoop(ctx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-p.fault:
		cancel()
	}
	p.reader.Close()
	p.locked(func() { p.life = nil })
	if p.ownHub && !p.cfg.MayWrite() {
		p.hub.Abort()
	}
	p.group.Wait()
	p.locked(func() { p.tellAllOdd(p.order) })
	stopEvents()
	<-dispatched
	p.locked(func() { p.remove(p.order...) })
	p.close()
	if err == nil {
		select {
		case err = <-p.fault:
		default:
		}
	}
	return err
}

// spawn calls f in a goroutine that Run waits for. A panic ends Run.
func (p *mirror) spawn(where string, f func()) {
	p.group.Go(func() {
		err := report.Contained("the data path: "+where, func() error {
			f()
			return nil
		})
		if err != nil {
			p.failed(err)
		}
	})
}

// failed ends Run with a fault; only the first counts.
func (p *mirror) failed(err error) {
	select {
	case p.fault <- err:
	default:
	}
}

// locked calls f with the lock held, which a panic does not leave behind: others would wait for it for ever.
func (p *mirror) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// checkLoop does what goes by time: retries that are due.
func (p *mirror) checkLoop(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wakeCheck:
		}
		now := time.Now()
		p.locked(func() {
			for _, t := range p.order {
				if t.state == waiting && !now.Before(t.retryAt) {
					p.retry(t)
				}
				p.runShort(t, now)
			}
			if p.hasIDs && p.ids.pid < 0 {
				p.wantIdentity(ctx, now)
			}
		})
		p.wake()
	}
}

func (p *mirror) wake() {
	p.rescan.Store(true)
	notify(p.wakeFetch)
	notify(p.wakeProduce)
}

func (p *mirror) wakeIn(d time.Duration) {
	time.AfterFunc(d, func() {
		notify(p.wakeCheck)
		p.wake()
	})
}

// InFlight is the number of bytes fetched and not yet acknowledged.
func (p *mirror) InFlight() int64 { return p.inFlight.Load() }

func (p *mirror) addInFlight(n int64) {
	if n != 0 {
		p.metrics.inFlight(p.inFlight.Add(n))
	}
}

// Assign implements Path.
func (p *mirror) Assign(as []Assignment) {
	p.events.quietly(func() {
		p.locked(func() {
			for _, a := range as {
				t := p.parts[a.Source]
				if t == nil {
					// An answer to a want of a former life of the partition must not be taken for one of this.
					p.lives++
					t = &part{fetchSeq: p.lives << 32}
					p.parts[a.Source] = t
					p.order = append(p.order, t)
				}
				p.reset(t, a)
			}
		})
	})
	p.wake()
}

// Unassign implements Path. Partitions that are not assigned are passed over. When ctx ends first, the partitions are
// given up all the same and the error says so: what was under way may or may not be on the target. One with a request
// under way is kept until the answer, unseen: assigned anew before, it writes nothing until then.
func (p *mirror) Unassign(ctx context.Context, source []TP) error {
	return p.finish(ctx, true, func() (parts []*part) {
		for _, tp := range source {
			if t := p.parts[tp]; t != nil {
				parts = append(parts, t)
			}
		}
		return parts
	})
}

// Drain implements Path. The partitions stay known; an Assign starts them again.
func (p *mirror) Drain(ctx context.Context) error {
	return p.finish(ctx, false, func() []*part { return slices.Clone(p.order) })
}

// finish ends the reading of the partitions that choose answers under the lock, and waits for their batches under way.
func (p *mirror) finish(ctx context.Context, remove bool, choose func() []*part) error {
	var parts []*part
	var idle []chan struct{}
	p.locked(func() {
		parts = choose()
		for _, t := range parts {
			t.state = closing
			p.dropQueue(t)
			if len(t.under) > 0 {
				if t.idle == nil {
					t.idle = make(chan struct{})
				}
				idle = append(idle, t.idle)
				p.enlist(t)
			}
		}
	})
	p.wake()
	var err error
	for _, ch := range idle {
		select {
		case <-ch:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	p.locked(func() { p.tellAllOdd(parts) })
	if flushErr := p.events.flush(ctx); err == nil {
		err = flushErr
	}
	if remove {
		p.locked(func() { p.giveUp(parts) })
	}
	if err != nil {
		return errors.Join(errors.New("mirror: records under way were not acknowledged in time"), err)
	}
	return nil
}

// giveUp removes partitions, those with a request under way once it is answered; the lock is held. One that was assigned
// anew meanwhile stays.
func (p *mirror) giveUp(parts []*part) {
	for _, t := range parts {
		if t.state != closing {
			continue
		}
		t.gen++ // nothing more is told of this assignment
		p.abandon(t)
		p.account(t)
		if t.leaving = t.stale > 0; !t.leaving {
			p.remove(t)
		}
	}
}

// remove forgets partitions; the lock is held.
func (p *mirror) remove(parts ...*part) {
	for _, t := range parts {
		t.gen++
		p.abandon(t) // the answers that come still end the use of memory
		p.unlist(t)
		t.pipeline = pipeline{}
		p.dropQueue(t)
		t.state = closed
		p.aim(t, time.Time{})
		delete(p.parts, t.asg.Source)
	}
	p.order = slices.DeleteFunc(slices.Clone(p.order), func(t *part) bool { return t.state == closed })
}

// topicsOf is the set of topics of a side that are assigned; the lock is held.
func (p *mirror) topicsOf(s *side) map[string]bool {
	used := map[string]bool{}
	for _, t := range p.order {
		used[pick(s == p.source, t.asg.Source.Topic, t.asg.Target.Topic)] = true
	}
	return used
}

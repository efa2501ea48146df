package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// ErrLeaseLost is the cancellation cause of Run's context that says: somebody else owns the task now. Run then stops
// producing at once and stores nothing. With any other cause it stops cleanly.
var ErrLeaseLost = errors.New("engine: lease lost")

// DrainTimeout bounds the clean stop that the end of Run's context begins; Drain takes its caller's.
const DrainTimeout = 10 * time.Second

// lastSaveTimeout bounds the storing of positions after a drain that failed.
const lastSaveTimeout = 2 * time.Second

// saveInterval is how often changed positions are stored at least, saveSoonest at most.
const (
	saveInterval = time.Second
	saveSoonest  = 200 * time.Millisecond
)

// Task is one task of one flow. Make it with New, run it once.
type Task struct {
	cfg    Config
	log    *slog.Logger
	board  *report.Board
	policy mm2.ReplicationPolicy
	rooms  rooms

	source, target *side
	sourceID       string // cluster ids; empty until known
	targetID       string

	topics      *topics.Room
	topicFilter *mm2.TopicFilter
	ledger      *ledger
	path        mirror.Path
	store       store
	syncs       offsetSyncs
	beside      []runner // groups, heartbeats
	m           *metrics

	parts *registry

	// entries is what the state topic held when it was read last, and what was saved since.
	entriesMu sync.Mutex
	entries   map[state.Key]state.Entry

	// Of the refresh loop alone.
	claimed   map[string]bool
	baselined bool
	first     map[mirror.TP]bool // partitions seen by the first refresh, while the baseline is not made
	refreshed bool
	retired   map[[16]byte]bool // topic ids that were replaced by others
	missing   map[string]bool   // source topics that the last look did not find
	reloaded  time.Time
	stale     bool // entries must be read again before a partition may start

	saveMu  sync.Mutex // one save at a time
	footing footing
	kick    chan struct{} // a partition asks for a decision
	show    chan struct{} // something happened that the status should tell at once
	outbox  outbox

	closeMu sync.Mutex
	closers []func()
	closed  bool

	drainReq chan drainRequest
	done     chan struct{}

	statusMu  sync.Mutex
	excluded  []report.Excluded
	remotes   map[string]string // source topic -> remote topic, of what is selected
	ready     bool              // the first refresh is through
	lastState report.State
	since     time.Time
}

type drainRequest struct {
	ctx  context.Context
	done chan error
}

// New checks the configuration and makes a task. Nothing is dialled before Run.
func New(cfg Config) (*Task, error) { return newTask(cfg, defaultRooms()) }

func newTask(cfg Config, r rooms) (*Task, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Task{
		cfg: cfg, rooms: r, board: report.NewBoard(time.Now), parts: newRegistry(),
		log:     cfg.Logger.With(slog.String("flow_id", cfg.Identity.FlowID), slog.Int("task", cfg.Identity.Task), slog.Int64("lease_epoch", cfg.Identity.LeaseEpoch), slog.String("source", cfg.SourceAlias), slog.String("target", cfg.TargetAlias)),
		entries: map[state.Key]state.Entry{}, claimed: map[string]bool{}, retired: map[[16]byte]bool{}, remotes: map[string]string{},
		kick: make(chan struct{}, 1), show: make(chan struct{}, 1), drainReq: make(chan drainRequest), done: make(chan struct{}),
		lastState: report.Starting, since: time.Now(),
	}
	class := mm2.DefaultReplicationPolicyClass
	if cfg.IdentityPolicy {
		class = mm2.IdentityReplicationPolicyClass
	}
	var err error
	if t.policy, err = mm2.NewReplicationPolicy(class, cfg.SourceAlias, cfg.Separator, true); err != nil {
		return nil, fmt.Errorf("engine: Config.Separator: %w", err)
	}
	if err := t.makeClients(); err != nil {
		return nil, err
	}
	if err := t.makeTopics(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// Run makes a task of cfg and runs it; see Task.Run.
func Run(ctx context.Context, cfg Config) error {
	t, err := New(cfg)
	if err != nil {
		return err
	}
	return t.Run(ctx)
}

// Run works until ctx ends or Drain was called. Trouble with the clusters is never an error: it is reported, and tried
// again for ever. When ctx ends with the cause ErrLeaseLost, Run abandons everything at once, stores nothing and answers
// ErrLeaseLost; with another cause it stops cleanly, within DrainTimeout, and answers nil, or what kept the stop from
// being clean (records on the target may be copied again then). Other errors are faults of ours.
func (t *Task) Run(ctx context.Context) error {
	defer close(t.done)
	defer t.close()
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	loops, stopLoops := context.WithCancel(work)
	defer stopLoops()

	var always, looping sync.WaitGroup
	fault := make(chan error, 8)
	always.Go(func() { t.source.watch(work) })
	always.Go(func() { t.target.watch(work) })
	always.Go(func() { t.statusLoop(work) })
	looping.Go(func() {
		err := t.prepare(loops)
		if t.syncs != nil {
			always.Go(func() {
				if err := t.syncs.Run(work); err != nil && work.Err() == nil {
					fault <- fmt.Errorf("engine: offset syncs: %w", err)
				}
			})
		}
		if err != nil {
			if loops.Err() == nil {
				fault <- err
			}
			return
		}
		always.Go(func() {
			if err := t.path.Run(work); err != nil && work.Err() == nil {
				fault <- fmt.Errorf("engine: data path: %w", err)
			}
		})
		looping.Go(func() { t.saveLoop(loops) })
		looping.Go(func() { t.boundsLoop(loops) })
		for _, r := range t.beside {
			looping.Go(func() {
				if err := t.runBeside(loops, r); err != nil && loops.Err() == nil {
					fault <- err
				}
			})
		}
		t.refreshLoop(loops)
	})

	// The clients are closed before anybody is waited for: a client waits for the acknowledgement of what it has sent,
	// whatever a context says, and with a cluster that is away that is for ever.
	finish := func(cause error) {
		cancel(cause)
		t.close()
		looping.Wait()
		always.Wait()
	}
	drain := func(ctx context.Context) error {
		stopLoops()
		done := make(chan error, 1)
		go func() {
			looping.Wait()
			done <- t.drain(ctx)
		}()
		err, ended := within(ctx, done)
		finish(nil)
		if !ended {
			err = errors.Join(err, <-done)
		}
		if err == nil {
			t.cfg.Sink.Status(t.status(time.Now(), report.Stopped))
		}
		return err
	}
	select {
	case err := <-fault:
		finish(err)
		return err
	case req := <-t.drainReq:
		dctx, abandon := context.WithCancelCause(req.ctx)
		defer abandon(nil)
		defer context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
				abandon(ErrLeaseLost)
			}
		})()
		err := drain(dctx)
		req.done <- err
		return err
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
			finish(cause)
			return ErrLeaseLost
		}
		dctx, stop := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
		defer stop()
		return drain(dctx)
	}
}

// Drain stops cleanly: nothing new is fetched, what is in flight is acknowledged, positions are stored, groups are
// synced once more, then Run returns. After a Drain that answers nil the next run copies nothing twice. It waits until
// ctx ends at most; Run then returns all the same, with the error.
func (t *Task) Drain(ctx context.Context) error {
	req := drainRequest{ctx: ctx, done: make(chan error, 1)}
	select {
	case t.drainReq <- req:
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-req.done:
		return err
	case <-t.done:
		select {
		case err := <-req.done:
			return err
		default:
			return nil
		}
	}
}

// drain is the clean stop, in this order: acknowledgements first, since only they may be stored; positions next; groups
// last, since they translate by what was stored.
func (t *Task) drain(ctx context.Context) error {
	if t.path == nil {
		return nil
	}
	if err := t.path.Drain(ctx); err != nil {
		if errors.Is(context.Cause(ctx), ErrLeaseLost) {
			return ErrLeaseLost
		}
		// What was acknowledged until now is stored all the same, if that goes quickly: it makes the tail that is copied
		// twice shorter.
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("engine: drain: %w", err), t.save(c))
	}
	if err := t.saveUntil(ctx); err != nil {
		return fmt.Errorf("engine: drain: %w", err)
	}
	if t.footing.isLost() {
		return t.outbox.flush(ctx, t.cfg.Sink)
	}
	t.flushSyncs(ctx)
	for _, r := range t.beside {
		if f, ok := r.(finisher); ok {
			if err := f.Finish(ctx); err != nil {
				t.log.Warn("last group sync failed", slog.Any("error", err))
			}
		}
	}
	return t.outbox.flush(ctx, t.cfg.Sink)
}

// prepare connects both sides, compares cluster ids, and reads the state.
func (t *Task) prepare(ctx context.Context) error {
	for {
		var wg sync.WaitGroup
		var sid, tid string
		var serr, terr error
		wg.Go(func() { sid, serr = t.source.connect(ctx) })
		wg.Go(func() { tid, terr = t.target.connect(ctx) })
		wg.Wait()
		if err := errors.Join(serr, terr); err != nil {
			return err
		}
		if t.clustersAsExpected(sid, tid) {
			break
		}
		if !sleep(ctx, 2*time.Second) {
			return ctx.Err()
		}
	}
	t.log.Info("both clusters answer", slog.String("source_cluster_id", t.sourceID), slog.String("target_cluster_id", t.targetID))
	if err := t.makeRooms(); err != nil {
		return err
	}
	// Reading the state takes longest on a fresh target, where its topics are made: meanwhile the first look around and
	// the remote topics.
	var ahead sync.WaitGroup
	ahead.Go(func() { t.lookAhead(ctx) })
	err := t.load(ctx)
	ahead.Wait()
	if err != nil {
		return err
	}
	return t.makePath()
}

// load reads the state until that succeeds or ctx ends.
func (t *Task) load(ctx context.Context) error {
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := t.reload(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		t.log.Debug("state not read, tried again", slog.Any("error", err))
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// reload reads entries and notes from the target.
func (t *Task) reload(ctx context.Context) error {
	entries, err := t.store.Load(ctx)
	t.stateResult(err)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	t.entriesMu.Lock()
	t.entries = entries
	t.entriesMu.Unlock()
	t.reloaded = time.Now()
	return nil
}

// clustersAsExpected compares the ids that the clusters give with those registered, or, where none is, with the first
// that we saw, and with each other. It keeps the conditions in step.
func (t *Task) clustersAsExpected(source, target string) bool {
	if t.sourceID == "" {
		t.sourceID = orElse(t.cfg.SourceClusterID, source)
	}
	if t.targetID == "" {
		t.targetID = orElse(t.cfg.TargetClusterID, target)
	}
	sok := t.source.checkID(t.sourceID, source)
	tok := t.target.checkID(t.targetID, target)
	if sok && tok && source != "" && source == target {
		t.board.Set(report.Condition{
			Code: t.target.code(clusterChanged), Severity: report.Error, Subject: report.Flow,
			Message:  fmt.Sprintf("source and target are one and the same cluster (id %s); copying it onto itself would never end", source),
			Evidence: map[string]any{"cluster_id": source},
			Remedy:   "correct bootstrapServers of one of the two services",
		})
		return false
	}
	return sok && tok
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// within waits for done until ctx ends, and a little longer, for the one who works to notice that by himself. ended is
// false when nothing came.
func within(ctx context.Context, done <-chan error) (err error, ended bool) {
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return ErrLeaseLost, false
	}
	grace := time.NewTimer(2 * lastSaveTimeout)
	defer grace.Stop()
	select {
	case err := <-done:
		return err, true
	case <-grace.C:
		return fmt.Errorf("engine: drain: %w", ctx.Err()), false
	}
}

// onClose has f called by close, at once when that was called already.
func (t *Task) onClose(f func()) {
	t.closeMu.Lock()
	if !t.closed {
		t.closers = append(t.closers, f)
		t.closeMu.Unlock()
		return
	}
	t.closeMu.Unlock()
	f()
}

// close gives up clients and metrics. It may be called again.
func (t *Task) close() {
	t.closeMu.Lock()
	closers := t.closers
	t.closers, t.closed = nil, true
	t.closeMu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
}

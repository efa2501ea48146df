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
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// saveInterval is how often changed positions are stored at least, saveSoonest at most. checkInterval is how often an idle
// task looks after those that are stored.
const (
	saveInterval  = time.Second
	saveSoonest   = 200 * time.Millisecond
	checkInterval = 2500 * time.Millisecond
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
	rate        rate
	limited     heldBack // of the status loop
	store       store
	syncs       offsetSyncs
	beside      []runner // groups, heartbeats
	m           *metrics

	parts *registry

	// entries is what the state topic held when it was read last, and what was saved since.
	entriesMu sync.Mutex
	entries   map[state.Key]state.Entry

	// Of the refresh loop alone.
	ahead     *ahead
	claimed   map[string]bool
	baselined bool
	begun     map[mirror.TP]bool // partitions seen by the first refresh, while the baseline is not made
	refreshed bool
	retired   map[[16]byte]bool // topic ids that were replaced by others
	missing   map[string]bool   // source topics that the last look did not find
	reloaded  time.Time         // when the entries' last reading began
	granted   time.Time         // when a claim was granted last
	stale     bool              // entries must be read again before a partition may start

	first   *firstRecord
	saving  chan struct{} // held by the one save at a time
	dirty   chan struct{} // something is to be stored
	stored  chan struct{} // positions were stored: offset syncs may follow
	footing footing
	// stateTrouble is since when the state topics cannot be used.
	stateTrouble streak
	kick         chan struct{} // a partition asks for a decision
	show         chan struct{} // something happened that the status should tell at once
	outbox       *outbox

	closeMu sync.Mutex
	closers []func()
	closed  bool

	drainReq chan drainRequest
	done     chan struct{}

	shownMu sync.Mutex
	shown   []report.Topic // of the last status; others read it and nobody changes it

	statusMu  sync.Mutex
	excluded  []report.Excluded
	ready     bool // the first refresh is through
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
	redact := kafka.Redactor{cfg.Source.Credentials, cfg.Target.Credentials}
	cfg.Logger, cfg.Sink = redact.Logger(cfg.Logger), redactingSink{cfg.Sink, redact}
	if cfg.MayWrite == nil {
		cfg.MayWrite = func() bool { return true }
	}
	cfg.Source.MayWrite, cfg.Target.MayWrite = cfg.MayWrite, cfg.MayWrite
	t := &Task{
		cfg: cfg, rooms: r, board: report.NewBoard(time.Now), parts: newRegistry(),
		log:     cfg.Logger.With(slog.String("flow_id", cfg.Identity.FlowID), slog.Int("task", cfg.Identity.Task), slog.Int64("lease_epoch", cfg.Identity.LeaseEpoch), slog.String("source", cfg.SourceAlias), slog.String("target", cfg.TargetAlias)),
		entries: map[state.Key]state.Entry{}, claimed: map[string]bool{}, retired: map[[16]byte]bool{},
		first: newFirstRecord(), saving: make(chan struct{}, 1), dirty: make(chan struct{}, 1), stored: make(chan struct{}, 1), outbox: newOutbox(),
		kick: make(chan struct{}, 1), show: make(chan struct{}, 1), drainReq: make(chan drainRequest), done: make(chan struct{}),
		lastState: report.Starting, since: time.Now(), rate: rate{limit: max(0, cfg.MaxBytesPerSecond)},
	}
	class := mm2.DefaultReplicationPolicyClass
	if cfg.IdentityPolicy {
		class = mm2.IdentityReplicationPolicyClass
	}
	var err error
	if t.policy, err = mm2.NewReplicationPolicy(class, cfg.SourceAlias, cfg.Separator, true); err != nil {
		return nil, fmt.Errorf("engine: Config.Separator: %w", err)
	}
	if err := t.joinClusters(); err != nil {
		t.close()
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

// prepare connects both sides, compares cluster ids, and reads the state.
func (t *Task) prepare(ctx context.Context) error {
	for {
		source := report.Aside("connecting to the source", func() (string, error) { return t.source.connect(ctx) })
		tid, terr := t.target.connect(ctx)
		sid, serr := source()
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
	t.lookAhead(ctx)
	made := report.Aside("remote topics", func() (bool, error) { t.makeAhead(ctx); return true, nil })
	err := t.load(ctx)
	_, _ = made() // it reports nothing; a panic comes through
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
	began := time.Now()
	entries, err := t.store.Load(ctx)
	t.stateResult(began, err)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	t.entriesMu.Lock()
	t.entries = entries
	t.entriesMu.Unlock()
	t.reloaded = began
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

// close leaves the clusters and gives up metrics. It may be called again.
func (t *Task) close() {
	t.closeMu.Lock()
	closers := t.closers
	t.closers, t.closed = nil, true
	t.closeMu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
}

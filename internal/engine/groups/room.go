package groups

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// stepTimeout bounds each step of a round, so that a silent cluster is in the status within 10 s, and a coordinator
	// that is away takes no time from what is asked of the others in the next step.
	stepTimeout = 8 * time.Second
	// tick is how often the loops look whether something is due; nothing is sent for it.
	maxTick = time.Second
	minTick = 50 * time.Millisecond
	// An early round comes no sooner than this after the last one.
	earlyPause = time.Second
	// A failed round is tried again after this, however long the interval is.
	retryPause = 3 * time.Second
	// fresh is the age up to which one loop uses what the other has fetched.
	fresh = 500 * time.Millisecond
)

// partition names a partition of a source topic.
type partition struct {
	topic string
	id    int32
}

// commit is a committed offset as found on the source.
type commit struct {
	offset   int64
	metadata string
}

// group is what is known of one kept source group.
type group struct {
	name    string
	state   string
	commits map[partition]commit // on topics that the filter accepts
	err     error                // why commits are older than the last look
}

// settled is what the last sync round decided about one partition of a group.
type settled struct {
	target int64
	exact  bool
	ahead  int64 // the target's own offset when it is above ours; -1 otherwise
}

// Room does the group work of one flow. Its methods are safe for concurrent use.
type Room struct {
	cfg Config

	// fetching is held while the source is asked, so that the loops share an answer.
	fetching sync.Mutex
	// syncing is held during a sync round, writing during a checkpoint round.
	syncing sync.Mutex
	writing sync.Mutex
	apis    apiCache
	start   int           // where the next sync round begins among the groups' names; guarded by syncing
	step    time.Duration // stepTimeout

	troubles *troubles

	mu         sync.Mutex
	kept       map[string]*group
	rest       map[string]time.Time // groups that pass the filter and have no offset that matters, by last look
	refreshed  time.Time
	fetched    time.Time
	settled    map[string]map[partition]settled
	lastSync   time.Time
	syncFailed bool

	// Guarded by writing.
	checkpoints *mm2.CheckpointStore
	topicMade   bool
}

// New checks the configuration. Nothing is sent before Run or SyncOnce.
func New(cfg Config) (*Room, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Room{
		cfg: cfg, step: stepTimeout, troubles: newTroubles(cfg.Board, cfg.Now),
		kept: map[string]*group{}, rest: map[string]time.Time{}, settled: map[string]map[partition]settled{},
	}, nil
}

// Run works until ctx ends. Failures become conditions and are tried again; they never end Run. An error is a panic of
// ours (report.PanicError).
func (r *Room) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return report.Contained("group sync", func() error { return r.syncLoop(ctx) })
	})
	if r.cfg.CheckpointInterval > 0 {
		g.Go(func() error {
			return report.Contained("checkpoints", func() error { return r.checkpointLoop(ctx) })
		})
	}
	return g.Wait()
}

// SyncOnce looks at the source's groups anew, commits, and writes checkpoints,
// as far as each is on. It is what a flow does once more when it is disabled.
// The error joins what failed; per-group failures are in the conditions, too.
func (r *Room) SyncOnce(ctx context.Context) error {
	errs := []error{r.refresh(ctx), r.fetch(ctx, 0)}
	if r.cfg.SyncGroupOffsets {
		errs = append(errs, r.syncRound(ctx))
	}
	if r.cfg.CheckpointInterval > 0 {
		errs = append(errs, r.checkpointRound(ctx))
	}
	return errors.Join(errs...)
}

// Groups returns the kept groups with their offsets on the source and what they translate to now, sorted.
func (r *Room) Groups() []report.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]report.Group, 0, len(r.kept))
	for _, g := range r.kept {
		shown := report.Group{Group: g.name, State: g.state}
		for tp, c := range g.commits {
			o := report.GroupOffset{Topic: tp.topic, Partition: tp.id, SourceOffset: c.offset, TargetOffset: -1}
			tr, ok, reason := r.cfg.Translator.Translate(tp.topic, tp.id, c.offset)
			if ok {
				o.TargetOffset, o.Exact, o.Bound = tr.Target, tr.Exact, tr.Bound
				if s, was := r.settled[g.name][tp]; was && s.ahead > tr.Target {
					reason = aheadReason(s.ahead)
				}
			}
			o.Reason = reason
			shown.Offsets = append(shown.Offsets, o)
		}
		sort.Slice(shown.Offsets, func(i, j int) bool {
			a, b := shown.Offsets[i], shown.Offsets[j]
			return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
		})
		out = append(out, shown)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Group < out[j].Group })
	return out
}

// syncLoop looks for groups and commits; it also keeps the status fresh when commits are off.
func (r *Room) syncLoop(ctx context.Context) error {
	every := min(maxTick, r.cfg.RefreshInterval)
	if r.cfg.SyncGroupOffsets {
		every = min(every, r.cfg.SyncInterval/4)
	}
	every = max(minTick, every)
	for {
		now := r.cfg.Now()
		if now.Sub(r.refreshedAt()) >= r.cfg.RefreshInterval {
			// The error is in the conditions.
			if err := r.refresh(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Debug("refresh of groups failed", slog.Any("error", err))
			}
			if err := r.fetch(ctx, r.cfg.RefreshInterval/2); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Debug("fetch of group offsets failed", slog.Any("error", err))
			}
		}
		if r.cfg.SyncGroupOffsets && r.syncDue(r.cfg.Now()) {
			if err := r.syncRound(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Debug("group sync failed", slog.Any("error", err))
			}
		}
		timer := time.NewTimer(r.pause(every))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// pause is how long the sync loop may wait: as long as no group is kept nothing can become due before the next refresh.
func (r *Room) pause(every time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) > 0 || r.syncFailed {
		return every
	}
	return max(every, r.cfg.RefreshInterval-r.cfg.Now().Sub(r.refreshed))
}

// bounded is the context of one step.
func (r *Room) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.step)
}

func (r *Room) refreshedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refreshed
}

// syncDue tells whether a round is to begin: the interval is over, or an offset can be translated now, or exactly now,
// that could not before. The latter costs no request, so that a first commit waits for the copy and not for a clock.
func (r *Room) syncDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.lastSync)
	if since >= r.cfg.SyncInterval {
		return true
	}
	if r.syncFailed {
		return since >= retryPause
	}
	if since < earlyPause {
		return false
	}
	for name, g := range r.kept {
		for tp, c := range g.commits {
			was, seen := r.settled[name][tp]
			if seen && was.exact {
				continue
			}
			tr, ok, _ := r.cfg.Translator.Translate(tp.topic, tp.id, c.offset)
			if ok && (!seen || tr.Exact && tr.Target > was.target) {
				return true
			}
		}
	}
	return false
}

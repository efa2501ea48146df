package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// refreshLoop looks at both clusters at each interval and when a partition asks for a decision, until ctx ends.
func (t *Task) refreshLoop(ctx context.Context) {
	tick := time.NewTicker(t.cfg.RefreshTopicsInterval)
	defer tick.Stop()
	for {
		began := time.Now()
		done := t.refresh(ctx)
		t.first.open() // whatever came of it: what stands beside the copying does not wait for it
		t.m.refreshSeconds.Observe(time.Since(began).Seconds())
		var again <-chan time.Time
		if !done {
			// Nothing was learnt: sooner than the interval, or a flow with a long one would sit there after an outage.
			again = time.After(min(t.cfg.RefreshTopicsInterval, 2*time.Second))
		} else if d, ok := t.nextTry(time.Now()); ok {
			again = time.After(d)
		} else if len(t.missing) > 0 {
			again = time.After(min(t.cfg.RefreshTopicsInterval, time.Second))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.kick:
		case <-again:
		}
	}
}

// nextTry tells when the next partition that waits for a decision may have one.
func (t *Task) nextTry(now time.Time) (time.Duration, bool) {
	next, found := time.Duration(0), false
	for _, p := range t.parts.all() {
		p.mu.Lock()
		if p.redecide && !p.notBefore.IsZero() {
			if d := max(p.notBefore.Sub(now), 50*time.Millisecond); !found || d < next {
				next, found = d, true
			}
		}
		p.mu.Unlock()
	}
	return next, found
}

// refresh does one round: discover, claim, create, place, start, sync configs. It answers false when it did not come
// through; what runs goes on in any case.
func (t *Task) refresh(ctx context.Context) bool {
	step := func(s *side, f func(context.Context) error) bool {
		c, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		err := f(c)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			switch {
			case errors.Is(err, errWaiting):
			case errors.Is(err, errSource):
				t.source.failed("refresh", err)
			default:
				s.failed("refresh", err)
			}
			t.log.Debug("refresh did not come through", slog.String("side", s.name), slog.Any("error", err))
		}
		return false
	}
	d, have, ok := t.lookedAhead()
	if !ok && !step(t.source, func(c context.Context) (err error) { d, err = t.topics.Discover(c); return err }) {
		return false
	}
	t.source.ok("refresh")
	t.distrust(&d)
	if !ok && !step(t.target, func(c context.Context) (err error) {
		have, err = t.topics.DescribeTarget(c, remoteNames(d.Topics))
		return err
	}) {
		return false
	}
	t.target.ok("refresh")
	right := t.clustersAsExpected(d.ClusterID, have.ClusterID)
	t.footing.set(right)
	if !right {
		t.halt(ctx)
		t.source.withdrawn()
		t.target.withdrawn()
		return false
	}
	t.reportSelection(d)
	if t.cfg.StartPosition != StartEarliest && !step(t.target, func(c context.Context) error { return t.baseline(c, d.Topics) }) {
		return false
	}
	wanted, excluded := t.claim(ctx, d)
	t.setExcluded(append(excluded, d.Excluded...))
	dropped := t.dropGone(ctx, d, wanted)
	if t.leads() && !step(t.target, func(c context.Context) (err error) {
		have, err = t.topics.Ensure(c, wanted, have)
		return err
	}) {
		return false
	}
	pending, fresh, late := t.place(ctx, wanted, have)
	// What others stored must be known before new partitions start, and, in task 0, for translating their offsets.
	t.stale = t.stale || fresh && t.refreshed || t.granted.After(t.reloaded) ||
		t.leads() && t.cfg.Identity.Tasks > 1 && time.Since(t.reloaded) >= t.cfg.EmitCheckpointsInterval
	if t.stale {
		if err := t.reload(ctx); err != nil {
			return false
		}
		t.stale = false
	}
	started := t.start(ctx, pending)
	t.statusMu.Lock()
	t.ready = true
	t.statusMu.Unlock()
	t.refreshed = true
	t.awaitFirst(ctx)
	if !step(t.target, t.ledger.settle) {
		return false
	}
	// Where copying starts at the beginning anyhow, it need not wait for the note that says so.
	if !step(t.target, func(c context.Context) error { return t.baseline(c, d.Topics) }) {
		return false
	}
	if t.leads() && !step(t.target, func(c context.Context) error { return t.topics.SyncConfigs(c, wanted) }) {
		return false
	}
	return started && dropped && !late
}

// distrust sets aside what a broker whose metadata lag may have told: topics that come back with an id that was replaced,
// and topics that are missing for the first time. They count as unclear until the next look, which comes soon.
func (t *Task) distrust(d *topics.Discovery) {
	keep := d.Topics[:0]
	for _, s := range d.Topics {
		if t.retired[s.Topic.ID] {
			d.Unclear[s.Topic.Name] = true
			continue
		}
		keep = append(keep, s)
	}
	d.Topics = keep
	listed := make(map[string]bool, len(d.Topics))
	for _, s := range d.Topics {
		listed[s.Topic.Name] = true
	}
	missing := map[string]bool{}
	for _, p := range t.parts.all() {
		name := p.tp.Topic
		if listed[name] || d.Unclear[name] && !missing[name] {
			continue
		}
		missing[name] = true
		if !t.missing[name] {
			d.Unclear[name] = true
		}
	}
	t.missing = missing
}

// leads tells whether this task does what must be done once for the flow.
func (t *Task) leads() bool { return t.cfg.Identity.Task == 0 }

func remoteNames(sel []topics.Selected) []string {
	out := make([]string, len(sel))
	for i, s := range sel {
		out[i] = s.Remote
	}
	return out
}

// halt takes everything back from the path: the clusters are not those that the positions belong to.
func (t *Task) halt(ctx context.Context) {
	t.takeBack(ctx, t.parts.all())
}

// takeBack takes partitions back from the path, those that it has, and waits for their records in flight, for a while.
// They wait then, and the next refresh decides anew where they start, whatever becomes of what the caller has in mind.
// When the wait was too short the path knows what is still under way and lets a new start follow it.
func (t *Task) takeBack(ctx context.Context, parts []*partition) {
	var tps []mirror.TP
	for _, p := range parts {
		p.mu.Lock()
		if p.state != partWaiting {
			tps = append(tps, p.tp)
		}
		p.state, p.redecide, p.calmSince = partWaiting, true, time.Time{}
		p.mu.Unlock()
	}
	if len(tps) == 0 {
		return
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := t.path.Unassign(c, tps); err != nil && ctx.Err() == nil {
		t.log.Warn("records in flight of partitions taken back were not acknowledged", slog.Int("partitions", len(tps)), slog.Any("error", err))
	}
}

// reportSelection keeps NO_TOPICS_MATCHED, TOPIC_NAME_INVALID and TOPIC_UNDECIDED in step. Task 0 speaks for the flow.
func (t *Task) reportSelection(d topics.Discovery) {
	if !t.leads() {
		return
	}
	if d.Matched > 0 {
		t.board.Clear(report.NoTopicsMatched, report.Flow)
	} else {
		t.board.Set(t.noneMatched(d))
	}
	t.reportUndecided(d)
	for name, why := range d.InvalidNames {
		t.board.Set(report.Condition{
			Code: report.TopicNameInvalid, Severity: report.Error, Subject: report.Subject{Topic: name, Partition: -1},
			Message: fmt.Sprintf("%s cannot be mirrored under the alias %s: %s", name, t.cfg.SourceAlias, why),
			Remedy:  "exclude the topic, or use a shorter alias",
		})
	}
	t.board.ClearWhere(func(c report.Condition) bool {
		_, still := d.InvalidNames[c.Subject.Topic]
		return c.Code == report.TopicNameInvalid && !still
	})
}

// noneMatched tells what the source has instead of topics that the lists select.
func (t *Task) noneMatched(d topics.Discovery) report.Condition {
	c := report.Condition{
		Code: report.NoTopicsMatched, Severity: report.Warning, Subject: report.Flow,
		Message:  fmt.Sprintf("none of the %d topics that the source shows us is selected by topics %q with topicExcludeList %q", d.Existing, t.cfg.Topics, t.cfg.TopicExcludeList),
		Evidence: map[string]any{"source_topics": d.Existing, "topics": t.cfg.Topics, "topic_exclude_list": t.cfg.TopicExcludeList},
		Remedy:   "correct topics (whole names, Java patterns), or grant DESCRIBE on the topics to our user",
	}
	switch {
	case d.Existing == 0 && len(d.Unclear) == 0:
		c.Message = "the source shows us no topics at all: it has none, or none that our user may see"
		c.Remedy = "create a topic on the source, or grant DESCRIBE on its topics to our user; topics made later are found by themselves"
	case len(d.Examples) > 0:
		c.Message += "; the source has e.g. " + strings.Join(d.Examples, ", ")
		c.Evidence["example_topics"] = d.Examples
	}
	if len(d.Excluded) > 0 {
		c.Remedy += "; excludedTopics says why topics that match are left out"
	}
	return c
}

// reportUndecided names topics for which a pattern ran out of time.
func (t *Task) reportUndecided(d topics.Discovery) {
	for name, err := range d.Undecided {
		c := report.Condition{
			Code: report.TopicUndecided, Severity: report.Warning, Subject: report.Subject{Topic: name, Partition: -1},
			Message: fmt.Sprintf("it cannot be told whether %s is selected (%v); until it can, its copying does not start", name, err),
			Remedy:  "write the pattern without repetitions inside repetitions; it is tried again at each refresh",
		}
		var slow *mm2.MatchError
		if errors.As(err, &slow) {
			c.Message = fmt.Sprintf("it cannot be told whether %s is selected, since pattern %q does not decide: %v; until it does, copying of the topic does not start", name, slow.Entry, slow.Err)
			c.Evidence = map[string]any{"pattern": slow.Entry}
		}
		t.board.Set(c)
	}
	t.board.ClearWhere(func(c report.Condition) bool {
		return c.Code == report.TopicUndecided && d.Undecided[c.Subject.Topic] == nil
	})
}

// dropGone stops what is not wanted any more. Its position stays stored. The first round also gives back claims of
// topics that an earlier run of the flow mirrored and this one does not. It answers false when positions could not be
// stored; the partitions wait then, and are dropped by a later round, or started again should they be wanted by then.
func (t *Task) dropGone(ctx context.Context, d topics.Discovery, wanted []topics.Selected) bool {
	want := make(map[string]int32, len(wanted))
	for _, w := range wanted {
		want[w.Topic.Name] = w.Topic.Partitions
	}
	var release []string
	if !t.refreshed {
		release = t.leftClaims(d)
	}
	var gone []*partition
	topicsGone := map[string]string{}
	for _, p := range t.parts.all() {
		if n, ok := want[p.tp.Topic]; ok && p.tp.Partition < n || unsettled(d, p.tp.Topic) {
			continue
		}
		gone = append(gone, p)
		if _, ok := want[p.tp.Topic]; !ok {
			topicsGone[p.tp.Topic] = p.remote
		}
	}
	t.takeBack(ctx, gone)
	if len(gone) > 0 {
		c, cancel := context.WithTimeout(ctx, adminTimeout)
		err := t.save(c)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				t.log.Warn("positions of partitions taken back could not be stored; they stay until they are", slog.Any("error", err))
			}
			return false
		}
	}
	for _, p := range gone {
		t.parts.remove(p.tp)
		t.board.ClearWhere(func(c report.Condition) bool {
			return c.Subject.Topic == p.tp.Topic && (c.Subject.Partition == p.tp.Partition || topicsGone[p.tp.Topic] != "" && c.Subject.Partition < 0)
		})
	}
	for name, remote := range topicsGone {
		release = append(release, remote)
		t.m.forget(name)
		t.log.Info("source topic is gone", slog.String("topic", name), slog.String("remote_topic", remote))
		if t.leads() {
			t.tell(report.Event{
				At: time.Now(), Code: report.SourceTopicGone, Subject: report.Subject{Topic: name, Partition: -1},
				Message:  fmt.Sprintf("the source does not list %s any more (deleted, or our right to see it was taken); its copy %s and the positions stay", name, remote),
				Evidence: map[string]any{"remote_topic": remote},
			})
		}
	}
	t.release(ctx, release)
	return true
}

var (
	// errWaiting says that task 0 has to do something first.
	errWaiting = errors.New("waiting for task 0 of the flow")
	// errSource is wrapped by errors of the source in a step that is otherwise about the target.
	errSource = errors.New("source")
)

// place brings the registry in step with what is wanted, takes back what no longer fits, and answers the partitions
// that need a start. fresh tells that there are some among them that were not ours before, late that the target does not show
// all that it has been asked to make, or that another task has: soon it will.
func (t *Task) place(ctx context.Context, wanted []topics.Selected, have topics.Target) (pending []pendingStart, fresh, late bool) {
	now := time.Now()
	var back []*partition
	for _, w := range wanted {
		remote, exists := have.Topics[w.Remote]
		if exists && t.retired[remote.ID] {
			late = true
			continue // a broker that lags
		}
		sub := report.Subject{Topic: w.Topic.Name, Partition: -1}
		refused := have.Errors[w.Remote] != nil || t.board.Has(report.TopicCreateFailed, sub) || t.board.Has(report.TargetPartitions, sub)
		t.remoteMissing(w, exists || have.Errors[w.Remote] != nil)
		for n := range w.Topic.Partitions {
			if taskOf(w.Topic.Name, n, t.cfg.Identity.Tasks) != t.cfg.Identity.Task {
				continue
			}
			tp := mirror.TP{Topic: w.Topic.Name, Partition: n}
			p := t.parts.get(tp)
			if p == nil {
				p = newPartition(tp, w.Remote)
				t.parts.add(p)
				fresh = true
			}
			p.mu.Lock()
			ready := exists && n < remote.Partitions
			changed := known(p.sourceTopicID) && p.sourceTopicID != w.Topic.ID || ready && known(p.targetTopicID) && p.targetTopicID != remote.ID
			switch {
			case !ready:
				back = append(back, p)
				p.notBefore = time.Time{}
				late = late || !refused
			case changed || p.redecide && !now.Before(p.notBefore):
				back = append(back, p)
				pending = append(pending, pendingStart{p: p, sourceID: w.Topic.ID, targetID: remote.ID})
			}
			p.mu.Unlock()
		}
	}
	t.takeBack(ctx, back)
	return pending, fresh, late
}

// remoteMissing keeps TARGET_TOPIC_MISSING of a whole topic in step; a topic that was never there has TOPIC_CREATE_FAILED.
func (t *Task) remoteMissing(w topics.Selected, exists bool) {
	sub := report.Subject{Topic: w.Topic.Name, Partition: -1}
	if exists {
		t.board.Clear(report.TargetTopicMissing, sub)
		return
	}
	if _, was := t.entryOf(w.Topic.Name, 0); !was {
		return
	}
	t.board.Set(report.Condition{
		Code: report.TargetTopicMissing, Severity: report.Error, Subject: sub,
		Message:  fmt.Sprintf("%s, the copy of %s, is gone from the target and could not be made again yet", w.Remote, w.Topic.Name),
		Evidence: map[string]any{"remote_topic": w.Remote},
		Remedy:   "see TOPIC_CREATE_FAILED of the same topic; tried again at each refresh",
	})
}

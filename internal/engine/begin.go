package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// pendingStart is a partition that needs a start, with the topic ids of this round.
type pendingStart struct {
	p                  *partition
	sourceID, targetID [16]byte
}

// start decides where each pending partition begins, tells what must be told, and gives it to the path. It answers
// false when some could not be decided; they are tried again.
func (t *Task) start(ctx context.Context, pending []pendingStart) bool {
	if len(pending) == 0 {
		return true
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	sources, targets := make([]mirror.TP, len(pending)), make([]mirror.TP, len(pending))
	for i, s := range pending {
		sources[i] = s.p.tp
		targets[i] = mirror.TP{Topic: s.p.remote, Partition: s.p.tp.Partition}
	}
	target := report.Aside("reading target offsets", func() (map[mirror.TP]listed, error) {
		return listOffsets(c, t.target.client, targets, atEnd, uncommitted)
	})
	src, serr := listBounds(c, t.source.client, sources)
	tgt, terr := target()
	if serr != nil {
		t.source.failed("start", serr)
	} else {
		t.source.ok("start")
	}
	if terr != nil {
		t.target.failed("start", terr)
	} else {
		t.target.ok("start")
	}
	countable := t.countable(c, pending)
	var assign []mirror.Assignment
	var begun []*partition
	ok := true
	for i, s := range pending {
		yes, known := countable[s.p.tp.Topic]
		a, err := mirror.Assignment{}, errNotTold
		if known || !t.hasPoint(s.p) {
			a, err = t.startOne(c, s, src[sources[i]], tgt[targets[i]], yes)
		}
		if err != nil {
			if ctx.Err() != nil {
				return false
			}
			t.log.Debug("partition cannot start yet", slog.String("topic", s.p.tp.Topic), slog.Int("partition", int(s.p.tp.Partition)), slog.Any("error", err))
			s.p.mu.Lock()
			s.p.deciding = false
			s.p.backOff(time.Now())
			s.p.mu.Unlock()
			ok = false
			continue
		}
		assign = append(assign, a)
		begun = append(begun, s.p)
	}
	for _, p := range begun {
		p.mu.Lock()
		p.deciding = false
		p.mu.Unlock()
	}
	t.path.Assign(assign)
	signal(t.dirty)
	signal(t.show)
	return ok
}

// startOne decides about one partition. An error means: not now.
func (t *Task) startOne(ctx context.Context, s pendingStart, src bounds, tgt listed, countable bool) (mirror.Assignment, error) {
	p := s.p
	if src.err != nil {
		t.refusedHere(p, sideSource, src.err)
		return mirror.Assignment{}, fmt.Errorf("source offsets: %w", src.err)
	}
	in := startInput{
		topic: p.tp.Topic, partition: p.tp.Partition, remote: p.remote,
		sourceID: s.sourceID, targetID: s.targetID, logStart: src.start, logEnd: src.end, targetEnd: tgt.offset,
	}
	if tgt.err != nil {
		in.targetEnd = -1
		// Without DESCRIBE on the target topic nothing else would work either, so only a missing leader gets here.
		if errors.Is(tgt.err, kerr.UnknownTopicOrPartition) || errors.Is(tgt.err, kerr.TopicAuthorizationFailed) {
			t.refusedHere(p, sideTarget, tgt.err)
		}
		return mirror.Assignment{}, fmt.Errorf("target offsets: %w", tgt.err)
	}
	var err error
	if in.entry, in.hasEntry, err = t.entryNow(p); err != nil {
		return mirror.Assignment{}, fmt.Errorf("offset map: %w", err)
	}
	in.countable = countable
	d := decideStart(in)
	// Told first: were the new position stored before and the process gone then, nobody would ever know.
	for _, n := range d.notices {
		n.event.At = time.Now()
		if err := t.cfg.Sink.Event(ctx, n.event); err != nil {
			return mirror.Assignment{}, fmt.Errorf("record event: %w", err)
		}
		t.log.Warn("partition does not simply go on", slog.String("code", n.event.Code), slog.String("topic", in.topic), slog.Int("partition", int(in.partition)), slog.String("message", n.event.Message))
		t.board.Set(report.Condition{
			Code: n.event.Code, Severity: report.Warning, Subject: n.event.Subject,
			Message: n.event.Message, Evidence: n.event.Evidence, Remedy: n.remedy,
		})
	}
	p.mu.Lock()
	for _, id := range [][2][16]byte{{in.entry.SourceTopicID, s.sourceID}, {in.entry.TargetTopicID, s.targetID}} {
		if known(id[0]) && known(id[1]) && id[0] != id[1] {
			t.retired[id[0]] = true
		}
	}
	p.state, p.redecide, p.notBefore, p.calmSince = partRunning, false, time.Time{}, time.Now()
	p.sourceTopicID, p.targetTopicID = s.sourceID, s.targetID
	p.position, p.targetNext, p.offsets, p.point = d.position, d.targetNext, d.offsets, d.point
	p.logStart, p.highWatermark, p.targetEnd = src.start, src.end, in.targetEnd
	p.stuckSince = time.Time{}
	p.touch()
	a := mirror.Assignment{
		Source: p.tp, Target: mirror.TP{Topic: p.remote, Partition: p.tp.Partition}, Start: d.position,
		SourceTopicID: s.sourceID, TargetTopicID: s.targetID, Point: d.point,
	}
	p.mu.Unlock()
	t.clearStops(p.tp)
	t.syncs.Forget(p.tp.Topic, p.tp.Partition)
	t.log.Info("partition starts", slog.String("topic", p.tp.Topic), slog.Int("partition", int(p.tp.Partition)), slog.String("remote_topic", p.remote), slog.Int64("position", d.position))
	return a, nil
}

// refusedHere shows a refusal of offsets as the partition's condition.
func (t *Task) refusedHere(p *partition, name string, err error) {
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return
	}
	code, topic := "SOURCE_FORBIDDEN", p.tp.Topic
	if name == sideTarget {
		code, topic = "TARGET_FORBIDDEN", p.remote
	}
	p.mu.Lock()
	p.state = partFailed
	p.mu.Unlock()
	t.board.Set(report.Condition{
		Code: code, Severity: report.Error, Subject: report.Subject{Topic: p.tp.Topic, Partition: p.tp.Partition},
		Message:  fmt.Sprintf("the %s does not let us read the offsets of %s-%d", name, topic, p.tp.Partition),
		Evidence: map[string]any{"topic": topic}, Remedy: "grant DESCRIBE on the topic; copying goes on by itself",
	})
}

// entryNow is what is known of a partition: what it holds itself when it ran already, else what was stored. The map is a
// copy, free to be changed.
func (t *Task) entryNow(p *partition) (e state.Entry, ok bool, err error) {
	if e, ok, err = t.entryHeld(p); ok {
		return e, ok, err
	}
	t.entriesMu.Lock()
	defer t.entriesMu.Unlock()
	if e, ok = t.entries[p.key()]; ok && e.Map != nil {
		e.Map, err = copyMap(e.Map)
	}
	return e, ok, err
}

// entryHeld is what a partition holds itself. From here on until the path has it again, what its last assignment may still
// tell comes too late to count: the decision rests on what is answered here.
func (t *Task) entryHeld(p *partition) (e state.Entry, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deciding = true
	if p.position < 0 {
		return e, false, nil
	}
	e = t.entry(p)
	e.Map, err = copyMap(e.Map)
	return e, true, err
}

// entry renders a partition's state. The map is the live one. p.mu is held.
func (t *Task) entry(p *partition) state.Entry {
	return state.Entry{
		SourceTopic: p.tp.Topic, SourceTopicID: p.sourceTopicID, TargetTopicID: p.targetTopicID,
		Position: p.position, TargetNext: p.targetNext, Producer: producerOf(p.point), Map: p.offsets, LeaseEpoch: t.cfg.Identity.LeaseEpoch,
	}
}

// entryOf is the stored entry of a source partition.
func (t *Task) entryOf(topic string, partition int32) (state.Entry, bool) {
	t.entriesMu.Lock()
	defer t.entriesMu.Unlock()
	e, ok := t.entries[state.Key{RemoteTopic: t.policy.FormatRemoteTopic(t.cfg.SourceAlias, topic), Partition: partition}]
	return e, ok
}

// baseline makes StartPosition durable: when the flow runs for the first time, each partition that exists and has no
// entry gets one at the position asked for, then a note says that this is done. Whatever comes later starts at its
// beginning, were it created a moment after the flow and before the next run. Task 0 does it for all tasks; the others
// wait for the note, except when there is nothing to wait for.
func (t *Task) baseline(ctx context.Context, sel []topics.Selected) error {
	if t.baselined {
		return nil
	}
	key := noteBaseline + t.cfg.Identity.FlowID
	if _, ok := t.store.Note(key); ok {
		t.baselined, t.begun = true, nil
		return nil
	}
	if !t.leads() {
		if t.cfg.StartPosition == StartEarliest {
			t.baselined = true
			return nil
		}
		if err := t.reload(ctx); err != nil {
			return err
		}
		if _, ok := t.store.Note(key); ok {
			t.baselined = true
			return nil
		}
		return errWaiting
	}
	if t.cfg.StartPosition != StartEarliest {
		if err := t.baselineEntries(ctx, sel); err != nil {
			return err
		}
	}
	if err := t.store.SaveNote(ctx, key, []byte(t.cfg.StartPosition)); err != nil {
		return fmt.Errorf("store baseline: %w", err)
	}
	t.baselined, t.begun = true, nil
	return nil
}

// baselineEntries stores an entry for each partition of the first round that has none.
func (t *Task) baselineEntries(ctx context.Context, sel []topics.Selected) error {
	if t.begun == nil {
		t.begun = map[mirror.TP]bool{}
		for _, s := range sel {
			for n := range s.Topic.Partitions {
				t.begun[mirror.TP{Topic: s.Topic.Name, Partition: n}] = true
			}
		}
	}
	entries := map[state.Key]state.Entry{}
	var tps []mirror.TP
	for _, s := range sel {
		for n := range s.Topic.Partitions {
			tp := mirror.TP{Topic: s.Topic.Name, Partition: n}
			if _, has := t.entryOf(tp.Topic, n); has || !t.begun[tp] {
				continue
			}
			tps = append(tps, tp)
			entries[state.Key{RemoteTopic: s.Remote, Partition: n}] = state.Entry{
				SourceTopic: tp.Topic, SourceTopicID: s.Topic.ID, TargetNext: -1, Map: mm2.NewOffsetMap(0), LeaseEpoch: t.cfg.Identity.LeaseEpoch,
			}
		}
	}
	if len(tps) == 0 {
		return nil
	}
	// An open transaction that began before the end belongs to what comes: the end of committed data is where it starts.
	isolation := committed
	if t.cfg.ReadUncommitted {
		isolation = uncommitted
	}
	ends, err := listOffsets(ctx, t.source.client, tps, atEnd, isolation)
	if err != nil {
		return fmt.Errorf("%w: %w", errSource, err)
	}
	at := ends
	if t.cfg.StartPosition == StartTimestamp {
		if at, err = listOffsets(ctx, t.source.client, tps, t.cfg.StartTimestamp.UnixMilli(), isolation); err != nil {
			return fmt.Errorf("%w: %w", errSource, err)
		}
	}
	for key, e := range entries {
		tp := mirror.TP{Topic: e.SourceTopic, Partition: key.Partition}
		if err := errors.Join(ends[tp].err, at[tp].err); err != nil {
			return fmt.Errorf("start position of %s-%d: %w", tp.Topic, tp.Partition, err)
		}
		e.Position = at[tp].offset
		if e.Position < 0 { // no record at or after the time: the end
			e.Position = ends[tp].offset
		}
		entries[key] = e
	}
	if err := t.store.Save(ctx, entries); err != nil {
		return fmt.Errorf("store start positions: %w", err)
	}
	t.entriesMu.Lock()
	for k, e := range entries {
		t.entries[k] = e
	}
	t.entriesMu.Unlock()
	return nil
}

package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// observer is the Task as the path sees it.
type observer struct{ t *Task }

var _ mirror.Observer = observer{}

// Mirrored implements mirror.Observer.
func (o observer) Mirrored(tp mirror.TP, spans []mirror.Span, next mirror.Point) {
	p := o.t.parts.get(tp)
	if p == nil {
		return
	}
	first, ok := o.acknowledged(p, spans, next)
	if !ok {
		return
	}
	o.t.first.open()
	signal(o.t.dirty)
	if first {
		signal(o.t.show)
	}
	o.t.syncs.Observe(tp.Topic, tp.Partition, spans)
}

// acknowledged takes spans into the partition's state; first: it had none before. ok is false when they come too late to
// count.
func (o observer) acknowledged(p *partition, spans []mirror.Span, next mirror.Point) (first, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deciding {
		return false, false
	}
	first = p.targetNext < 0
	for _, s := range spans {
		if err := p.offsets.AddRun(s.Source, s.Target, s.Count); err != nil {
			// Offsets that no broker gives; the map stays as it is, the group sync says what it cannot translate.
			o.t.log.Error("acknowledgement with impossible offsets", slog.String("topic", p.tp.Topic), slog.Int("partition", int(p.tp.Partition)), slog.Any("error", err))
			continue
		}
		p.targetNext = s.Target + s.Count
		p.targetEnd = max(p.targetEnd, p.targetNext)
		p.lastTimestamp = s.LastTimestamp
	}
	p.position, p.point = next.Source, &next
	p.tries = 0
	p.touch()
	return first, true
}

// Passed implements mirror.Observer.
func (o observer) Passed(tp mirror.TP, next int64) {
	p := o.t.parts.get(tp)
	if p == nil {
		return
	}
	p.mu.Lock()
	moved := !p.deciding && next != p.position
	if moved {
		p.position = next
		p.touch()
	}
	p.mu.Unlock()
	if moved {
		signal(o.t.dirty)
	}
}

// Seen implements mirror.Observer.
func (o observer) Seen(tp mirror.TP, e mirror.Ends) {
	p := o.t.parts.get(tp)
	if p == nil {
		return
	}
	p.mu.Lock()
	setKnown(&p.logStart, e.LogStart)
	setKnown(&p.highWatermark, e.HighWatermark)
	setKnown(&p.lastStable, e.LastStable)
	p.seen = time.Now()
	p.mu.Unlock()
}

func setKnown(v *int64, seen int64) {
	if seen >= 0 {
		*v = seen
	}
}

// Connection implements mirror.Observer.
func (o observer) Connection(name string, err error) {
	s := o.t.source
	if name == sideTarget {
		s = o.t.target
	}
	if err != nil {
		s.failed("copy", err)
		return
	}
	s.ok("copy")
}

// Resumed implements mirror.Observer.
func (o observer) Resumed(tp mirror.TP) {
	p := o.t.parts.get(tp)
	if p == nil {
		return
	}
	p.mu.Lock()
	late := p.deciding || p.state == partWaiting
	if !late {
		p.state, p.calmSince = partRunning, time.Now()
	}
	p.mu.Unlock()
	if late {
		return // taken back meanwhile: the decision that follows tells
	}
	o.t.clearStops(tp)
	signal(o.t.show)
}

// lostOnTarget tells an acknowledgement below the expected offset, where the target lost records, from one above it,
// where somebody else wrote.
func lostOnTarget(evidence map[string]any) bool {
	want, ok := evidence["expected_target_offset"].(int64)
	got, also := evidence["target_offset"].(int64)
	return ok && also && got < want
}

// clearStops takes away what Stopped set for a partition.
func (t *Task) clearStops(tp mirror.TP) {
	sub := report.Subject{Topic: tp.Topic, Partition: tp.Partition}
	t.board.ClearWhere(func(c report.Condition) bool {
		return c.Subject == sub && stopCodes[c.Code]
	})
}

// stopRule says what a stop shows as, and what is done about it.
type stopRule struct {
	code   string // "": no condition, the decision that follows tells
	remedy string
	// redecide asks the refresh loop for a new start, at once the first time; else the path tries again by itself, or
	// waits for us to assign again when the stop says so.
	redecide bool
}

// stopRules is the one table from reasons to conditions.
var stopRules = map[mirror.Reason]stopRule{
	mirror.StopOutOfRange:        {redecide: true},
	mirror.StopRecreated:         {redecide: true},
	mirror.StopSourceMissing:     {redecide: true},
	mirror.StopSourceRefused:     {code: "SOURCE_FORBIDDEN", remedy: "grant READ on the topic on the source; copying goes on by itself"},
	mirror.StopTooLarge:          {code: report.RecordTooLarge, remedy: "raise the limit that the message names (max.message.bytes of the remote topic); copying goes on by itself"},
	mirror.StopRefused:           {code: report.RecordRefused, remedy: "change the setting of the remote topic that the message names; copying goes on by itself"},
	mirror.StopTargetMissing:     {code: report.TargetTopicMissing, remedy: "the topic is made again at the next refresh", redecide: true},
	mirror.StopTargetDenied:      {code: "TARGET_FORBIDDEN", remedy: "grant WRITE on the remote topic on the target; copying goes on by itself"},
	mirror.StopForeign:           {code: report.ForeignWrites, remedy: "stop the other writer; a remote topic belongs to its flow alone"},
	mirror.StopSourceUnavailable: {code: "SOURCE_UNREACHABLE", remedy: unavailable},
	mirror.StopTargetUnavailable: {code: "TARGET_UNREACHABLE", remedy: unavailable},
	mirror.StopCorrupt:           {code: report.SourceCorrupt, remedy: "look at the source broker's disk; moving the partition's leader to an intact replica lets copying go on by itself"},
}

// unavailable is shown when a cluster answers, but not for a partition.
const unavailable = "look at the brokers and the partition's leader and in-sync replicas; copying goes on by itself"

// stopCodes are the codes that go when the partition moves again. FOREIGN_WRITES happened and is a notice (noticeCodes).
var stopCodes = func() map[string]bool {
	m := map[string]bool{}
	for reason, r := range stopRules {
		if r.code != "" && reason != mirror.StopForeign {
			m[r.code] = true
		}
	}
	return m
}()

// Stopped implements mirror.Observer.
func (o observer) Stopped(tp mirror.TP, s mirror.Stop) {
	t, p := o.t, o.t.parts.get(tp)
	if p == nil {
		return
	}
	rule := stopRules[s.Reason]
	sub := report.Subject{Topic: tp.Topic, Partition: tp.Partition}
	evidence := map[string]any{"remote_topic": p.remote}
	for k, v := range s.Evidence {
		evidence[k] = v
	}
	if s.Offset >= 0 {
		evidence["offset"] = s.Offset
	}
	severity := report.Error
	if s.Reason == mirror.StopForeign {
		severity = report.Warning
		if lostOnTarget(s.Evidence) {
			rule.code, rule.remedy = report.TargetDataLost, refillRemedy
		}
		t.tell(report.Event{At: time.Now(), Code: rule.code, Subject: sub, Message: s.Message, Evidence: evidence})
		p.mu.Lock()
		if !p.calmSince.IsZero() {
			p.calmSince = time.Now()
		}
		p.mu.Unlock()
	} else if p.isLate() {
		return // taken back meanwhile: the decision that follows tells
	}
	if rule.code != "" {
		if !t.board.Has(rule.code, sub) {
			t.log.Warn("partition stopped", slog.String("topic", tp.Topic), slog.Int("partition", int(tp.Partition)), slog.String("code", rule.code), slog.Int64("offset", s.Offset), slog.String("message", s.Message), slog.Any("error", s.Err))
		}
		t.board.Set(report.Condition{Code: rule.code, Severity: severity, Subject: sub, Message: s.Message, Evidence: evidence, Remedy: rule.remedy})
	}
	if s.Reason == mirror.StopForeign {
		return // copying goes on
	}
	p.mu.Lock()
	p.state, p.calmSince = partFailed, time.Time{}
	if rule.redecide || !s.Retry {
		p.backOff(time.Now())
	}
	redecide := p.redecide
	p.mu.Unlock()
	signal(t.show)
	if redecide {
		signal(t.kick)
	}
}

// translate maps a committed source offset of a partition to the target. ok is false when the partition is not mirrored
// by the flow, or nothing is known of it yet. Partitions of other tasks are answered from what they stored.
func (t *Task) translate(topic string, partition int32, upstream int64) (mm2.Translation, bool) {
	tr, _, ok := t.translateTo(topic, partition, upstream)
	return tr, ok
}

// translateTo is translate with the id of the target's topic that the answer belongs to; zero where it is not known.
func (t *Task) translateTo(topic string, partition int32, upstream int64) (tr mm2.Translation, id [16]byte, ok bool) {
	if p := t.parts.get(mirror.TP{Topic: topic, Partition: partition}); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.position < 0 || p.offsets == nil {
			return mm2.Translation{}, id, false
		}
		tr := p.offsets.Translate(upstream, p.position)
		if first, _, ok := p.offsets.First(); ok && tr.Reason == mm2.BeforeFirst && p.logStart >= 0 && first <= p.logStart {
			// What stood before the copy's beginning is gone on the source too: the group misses nothing by starting there.
			tr = mm2.Translation{OK: true, Exact: true, Offset: tr.Offset}
		}
		return tr, p.targetTopicID, true
	}
	e, ok := t.entryOf(topic, partition)
	if !ok || e.Map == nil || taskOf(topic, partition, t.cfg.Identity.Tasks) == t.cfg.Identity.Task {
		return mm2.Translation{}, id, false
	}
	return e.Map.Translate(upstream, e.Position), e.TargetTopicID, true
}

func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.tp.Topic, p.tp.Partition) }

package engine

import (
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// startInput is all that the decision where a partition begins rests on. StartPosition is not among it: it was turned
// into entries when the flow first ran (baseline), so that what has no entry came later and starts at its beginning.
type startInput struct {
	topic     string
	partition int32
	remote    string

	entry    state.Entry // what was stored
	hasEntry bool

	sourceID, targetID [16]byte // as they are now; zero: not known
	logStart, logEnd   int64    // of the source now; logEnd is the high watermark
	targetEnd          int64    // -1: not known
	// countable: between two offsets the source has as many records as it ever had, apart from transactions' ends.
	countable bool
}

// startDecision is where to begin, with which map, and what must be told before.
type startDecision struct {
	position   int64
	targetNext int64
	offsets    *mm2.OffsetMap
	notices    []notice
	// point is for the path: what was written behind it is found and not written again; nil: not known.
	point *mirror.Point
}

// notice is an event that also shows as a condition while the task lives.
type notice struct {
	event  report.Event
	remedy string
}

func (in startInput) subject() report.Subject {
	return report.Subject{Topic: in.topic, Partition: in.partition}
}

func (in startInput) notice(code, remedy, message string, evidence map[string]any) notice {
	evidence["remote_topic"] = in.remote
	return notice{event: report.Event{Code: code, Subject: in.subject(), Message: message, Evidence: evidence}, remedy: remedy}
}

// decideStart classifies what happened since the entry was stored and says where copying begins. It never resets in
// silence: whatever is not simply going on from the stored position is a notice with offsets and counts.
func decideStart(in startInput) startDecision {
	d := decidePosition(in)
	if d.point == nil && in.targetEnd >= 0 {
		d.point = &mirror.Point{Source: d.position, Target: in.targetEnd, ProducerID: -1} // where the first record will be
	}
	return d
}

func decidePosition(in startInput) startDecision {
	d := startDecision{position: in.logStart, targetNext: -1, offsets: mm2.NewOffsetMap(0)}
	name := fmt.Sprintf("%s-%d", in.topic, in.partition)
	switch {
	case !in.hasEntry:
		d.anchor(in)
		return d
	case known(in.entry.SourceTopicID) && known(in.sourceID) && in.entry.SourceTopicID != in.sourceID:
		d.notices = append(d.notices, in.notice(report.TopicRecreated,
			"nothing; the copies of the old topic stay on the target before those of the new one",
			fmt.Sprintf("%s was deleted and made again on the source; copying starts at offset %d of the new topic, the old position was %d", name, d.position, in.entry.Position),
			map[string]any{
				"old_topic_id": fmtID(in.entry.SourceTopicID), "new_topic_id": fmtID(in.sourceID),
				"old_position": in.entry.Position, "new_position": d.position,
			}))
		d.anchor(in)
		return d
	}

	d.position, d.targetNext = in.entry.Position, in.entry.TargetNext
	if in.entry.Map != nil {
		d.offsets = in.entry.Map
	}
	d.lookAtSource(in, name)
	d.lookAtTarget(in, name)
	if _, _, ok := d.offsets.First(); !ok {
		d.anchor(in)
	}
	if by := in.entry.Producer; by != nil && in.countable && len(d.notices) == 0 {
		d.point = &mirror.Point{Source: d.position, Target: by.Target, ProducerID: by.ID, Epoch: by.Epoch, Sequence: by.Sequence}
	}
	return d
}

// lookAtSource compares the stored position with what the source has.
func (d *startDecision) lookAtSource(in startInput, name string) {
	switch stored := in.entry.Position; {
	case stored < in.logStart:
		d.position = in.logStart
		d.notices = append(d.notices, in.notice(report.OffsetsLost,
			"lengthen the retention of the source topic; the gap cannot be filled",
			fmt.Sprintf("the source deleted offsets %d to %d of %s (up to %d records) before they were mirrored; copying goes on at %d",
				stored, in.logStart-1, name, in.logStart-stored, in.logStart),
			map[string]any{"first_missing": stored, "last_missing": in.logStart - 1, "count": in.logStart - stored, "resumed_at": in.logStart}))
	case stored > in.logEnd:
		d.position = in.logEnd
		d.offsets.TruncateSource(in.logEnd)
		if in.targetEnd >= 0 {
			// Offsets from the new end on will mean other records, which come behind what the target has.
			begin(d.offsets, in.logEnd, in.targetEnd)
		}
		d.notices = append(d.notices, in.notice(report.SourceTruncated,
			"compare the two topics: the target holds records that the source lost",
			fmt.Sprintf("the source lost the end of %s: it now ends at %d, mirrored was up to %d; copying goes on at %d, the copies of %d offsets stay on the target",
				name, in.logEnd, stored, in.logEnd, stored-in.logEnd),
			map[string]any{"position": stored, "source_end": in.logEnd, "count": stored - in.logEnd}))
	}
}

const refillRemedy = "to copy everything again, delete the flow with ?forget=true and make it anew"

// lookAtTarget compares what was acknowledged with what the target still has.
func (d *startDecision) lookAtTarget(in startInput, name string) {
	if in.entry.TargetNext <= 0 {
		return
	}
	switch {
	case known(in.entry.TargetTopicID) && known(in.targetID) && in.entry.TargetTopicID != in.targetID:
		d.offsets, d.targetNext = mm2.NewOffsetMap(0), -1
		d.notices = append(d.notices, in.notice(report.TargetDataLost, refillRemedy,
			fmt.Sprintf("%s was deleted and made again on the target; its partition %d now begins with source offset %d of %s", in.remote, in.partition, d.position, name),
			map[string]any{
				"old_topic_id": fmtID(in.entry.TargetTopicID), "new_topic_id": fmtID(in.targetID),
				"starts_at": d.position, "recorded_end": in.entry.TargetNext,
			}))
	case in.targetEnd >= 0 && in.targetEnd < in.entry.TargetNext:
		d.offsets.TruncateTarget(in.targetEnd)
		d.targetNext = in.targetEnd
		begin(d.offsets, d.position, in.targetEnd)
		d.notices = append(d.notices, in.notice(report.TargetDataLost, refillRemedy,
			fmt.Sprintf("%s-%d ends at offset %d on the target, %d was recorded: %d records are gone there; copying goes on from source offset %d of %s",
				in.remote, in.partition, in.targetEnd, in.entry.TargetNext, in.entry.TargetNext-in.targetEnd, d.position, name),
			map[string]any{"target_end": in.targetEnd, "recorded_end": in.entry.TargetNext, "count": in.entry.TargetNext - in.targetEnd, "starts_at": d.position}))
	}
}

// anchor lets positions at the start translate before the first record came.
func (d *startDecision) anchor(in startInput) {
	if in.targetEnd >= 0 {
		begin(d.offsets, d.position, in.targetEnd)
	}
}

// begin is Begin for offsets that brokers gave us. It fails for negative ones only, which no broker gives; without it
// positions translate from the first record on.
func begin(m *mm2.OffsetMap, source, target int64) {
	if source >= 0 && target >= 0 {
		_ = m.Begin(source, target)
	}
}

func known(id [16]byte) bool { return id != [16]byte{} }

func fmtID(id [16]byte) string { return fmt.Sprintf("%x", id[:]) }

package engine

import (
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// noticeLasts is how long a partition must have run, without another notice or stop, for the conditions that tell of
// something that has happened to go (docs/conditions.md). The events stay.
const noticeLasts = 15 * time.Minute

// noticeCodes tell of something that has happened and is over.
var noticeCodes = map[string]bool{
	report.OffsetsLost: true, report.TopicRecreated: true, report.SourceTruncated: true, report.TargetDataLost: true,
	report.ForeignWrites: true,
}

// sweepNotices takes away notices that have been seen long enough.
func (t *Task) sweepNotices(now time.Time) {
	t.board.ClearWhere(func(c report.Condition) bool {
		if !noticeCodes[c.Code] {
			return false
		}
		p := t.parts.get(mirror.TP{Topic: c.Subject.Topic, Partition: c.Subject.Partition})
		return p != nil && p.calm(now)
	})
}

// calm tells whether the partition has run long enough for its notices to go.
func (p *partition) calm(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.calmSince.IsZero() && now.Sub(p.calmSince) >= noticeLasts
}

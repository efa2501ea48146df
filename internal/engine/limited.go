package engine

import (
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// limitedWindow is the time over which RATE_LIMITED is judged.
const limitedWindow = 10 * time.Second

// heldBack keeps what a path told of its limit, over the window. The zero value has seen nothing.
type heldBack struct{ seen []heldAt }

type heldAt struct {
	at   time.Time
	held time.Duration
}

// observe takes what was told now, and answers for which part of the window the path was held back; ok is false as long as
// the window is not covered.
func (h *heldBack) observe(now time.Time, held time.Duration) (share float64, ok bool) {
	h.seen = append(h.seen, heldAt{now, held})
	for len(h.seen) > 1 && now.Sub(h.seen[1].at) >= limitedWindow {
		h.seen = h.seen[1:]
	}
	first := h.seen[0]
	if now.Sub(first.at) < limitedWindow {
		return 0, false
	}
	return (held - first.held).Seconds() / now.Sub(first.at).Seconds(), true
}

// judgeRate keeps RATE_LIMITED in step; lag is in records. Only the status loop calls it.
func (t *Task) judgeRate(now time.Time, lag int64) {
	limit, held := t.rate.heldBack()
	if limit <= 0 {
		t.limited = heldBack{}
		t.board.Clear(report.RateLimited, report.Flow)
		return
	}
	share, known := t.limited.observe(now, held)
	switch {
	case lag <= 0, known && share < 0.5:
		t.board.Clear(report.RateLimited, report.Flow)
	case known:
		t.board.Set(report.Condition{
			Code: report.RateLimited, Severity: report.Info, Subject: report.Flow,
			Message: fmt.Sprintf("maxBytesPerSecond holds task %d of %d back: its share is %d bytes a second, it read nothing more for %.0f %% of the last %.0f s, and %d records wait on the source",
				t.cfg.Identity.Task, t.cfg.Identity.Tasks, limit, 100*share, limitedWindow.Seconds(), lag),
			Evidence: map[string]any{"task": t.cfg.Identity.Task, "max_bytes_per_second": limit, "share_of_time": share, "lag": lag},
			Remedy:   "raise maxBytesPerSecond, or set it to null for no limit; nothing, if the lag may stay",
		})
	}
}

// lagOf is how many records are not mirrored yet.
func lagOf(s report.Status) (lag int64) {
	for _, topic := range s.Topics {
		for _, p := range topic.Partitions {
			lag += max(0, p.Lag)
		}
	}
	return lag
}

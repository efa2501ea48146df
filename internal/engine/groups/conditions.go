package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// phase is the part of the work that a failure belongs to: success in one does not end the trouble in another.
type phase int

const (
	phaseMatch phase = iota
	phaseList
	phaseRead
	phaseWrite
	phaseCheckpoint
)

// everything is the group name that stands for the whole flow in troubles.
const everything = ""

// grace is how long a failure that usually passes (a coordinator that moves or loads) is kept back.
const grace = 4 * time.Second

// trouble is one failure while it lasts.
type trouble struct {
	first     time.Time
	condition report.Condition
	shown     bool
}

// troubles holds what fails by group and phase, and shows one condition for each group: the latest.
type troubles struct {
	board *report.Board
	now   func() time.Time
	mu    sync.Mutex
	m     map[string]map[phase]*trouble
}

func newTroubles(board *report.Board, now func() time.Time) *troubles {
	return &troubles{board: board, now: now, m: map[string]map[phase]*trouble{}}
}

func subject(name string) report.Subject { return report.Subject{Partition: -1, Group: name} }

// set reports a failure. passing ones show when they come again after the grace.
func (t *troubles) set(name string, p phase, passing bool, c report.Condition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[name] == nil {
		t.m[name] = map[phase]*trouble{}
	}
	now := t.now()
	it := t.m[name][p]
	if it == nil {
		it = &trouble{first: now}
		t.m[name][p] = it
	}
	c.Code, c.Subject = report.GroupSyncFailed, subject(name) // whoever calls
	it.condition = c
	if passing && !it.shown && now.Sub(it.first) < grace {
		return
	}
	it.shown = true
	t.board.Set(c)
}

func (t *troubles) clear(name string, p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.m[name][p]; !ok {
		return
	}
	delete(t.m[name], p)
	for _, left := range slices.Sorted(maps.Keys(t.m[name])) {
		if it := t.m[name][left]; it.shown {
			t.board.Set(it.condition)
			return
		}
	}
	if len(t.m[name]) == 0 {
		delete(t.m, name)
	}
	t.board.Clear(report.GroupSyncFailed, subject(name))
}

// forget ends all that is shown about a group that is no longer kept.
func (t *troubles) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, name)
	t.board.Clear(report.GroupSyncFailed, subject(name))
	t.board.Clear(report.GroupActiveOnTarget, subject(name))
}

// whole tells whether a failure concerns the cluster rather than one group.
func whole(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	p := kafka.Classify(err)
	return p != nil && p.Code != kafka.Forbidden
}

// fetchFailures reports groups whose offsets could not be read on the source: one by one, or as one condition when it is
// the cluster. It ends what is over.
func (r *Room) fetchFailures(asked []string, failed map[string]error) []error {
	var errs []error
	cluster := false
	for _, name := range asked {
		err, bad := failed[name]
		switch {
		case !bad:
			r.troubles.clear(name, phaseRead)
		case whole(err):
			if !cluster {
				errs = append(errs, fmt.Errorf("read source offsets: %w", err))
				r.clusterFailed("source", phaseRead, "reading committed offsets", err)
			}
			cluster = true
		default:
			errs = append(errs, fmt.Errorf("read source offsets of group %s: %w", name, err))
			r.groupFailed(name, phaseRead, "The committed offsets of the group %s could not be read on the source.", err, remedyFor(err, "source", "DESCRIBE on the group"))
		}
	}
	if !cluster {
		r.troubles.clear(everything, phaseRead)
	}
	return errs
}

func (r *Room) clusterFailed(side string, p phase, what string, err error) {
	r.troubles.set(everything, p, passing(err), report.Condition{
		Code: report.GroupSyncFailed, Severity: report.Warning,
		Message:  fmt.Sprintf("Group offsets are not kept up to date: %s on the %s failed.", what, side),
		Evidence: map[string]any{"error": kafka.Brief(err), "step": what, "side": side},
		Remedy:   remedyFor(err, side, "DESCRIBE and READ on the groups"),
	})
}

// groupFailed sets a group's condition; format takes the group's name.
func (r *Room) groupFailed(name string, p phase, format string, err error, remedy string) {
	c := report.Condition{
		Code: report.GroupSyncFailed, Severity: report.Error,
		Message:  fmt.Sprintf(format, name),
		Evidence: map[string]any{"error": kafka.Brief(err)},
		Remedy:   remedy,
	}
	if passing(err) {
		c.Severity = report.Warning
	}
	r.troubles.set(name, p, passing(err), c)
}

// passing tells whether a failure usually ends by itself.
func passing(err error) bool { return kafka.KindOf(err) == kafka.KindRetriable }

func (r *Room) setActive(name, state string) {
	r.cfg.Board.Set(report.Condition{
		Code: report.GroupActiveOnTarget, Severity: report.Info, Subject: subject(name),
		Message:  fmt.Sprintf("The group %s has members on the target, so its offsets there are left alone.", name),
		Evidence: map[string]any{"state": state},
		Remedy:   "Nothing, if the consumers have been moved. Otherwise stop them on the target; the sync goes on by itself.",
	})
}

func aheadReason(at int64) string {
	return fmt.Sprintf("the group on the target is at %d already and is not moved back", at)
}

func remedyFor(err error, side, right string) string {
	switch kafka.KindOf(err) {
	case kafka.KindAuthorization:
		return fmt.Sprintf("Grant the user of the %s service %s.", side, right)
	case kafka.KindTopicMissing:
		return "Wait until the topic is mirrored, or make it again if it was deleted; it is tried again by itself."
	case kafka.KindTooLarge:
		return "Raise offset.metadata.max.bytes on the target to the source's value."
	case kafka.KindRetriable:
		return fmt.Sprintf("It is tried again by itself; if it lasts, look at the group coordinators of the %s cluster.", side)
	}
	if p := kafka.Classify(err); p != nil {
		return p.Remedy
	}
	return fmt.Sprintf("It is tried again by itself; if it lasts, look into the logs of the %s brokers.", side)
}

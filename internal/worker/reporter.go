package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

const (
	// reportEvery is the time between batches of statuses.
	reportEvery = time.Second
	// reportGap is the least time between two batches when states or conditions changed.
	reportGap = 100 * time.Millisecond
	// reportBatch is how many statuses one statement stores.
	reportBatch = 500
	// An unchanged status is stored again so that its time of observation stays fresh: every
	// reportRefresh, or less often when there are so many tasks that it would be more than
	// refreshesPerSecond.
	reportRefresh      = 2 * time.Second
	refreshesPerSecond = 500
)

// reportLoop stores what changed, in batches.
func (s *Supervisor) reportLoop(ctx context.Context) {
	var failing failure
	var last time.Time
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.reportNow:
			if gap := reportGap - time.Since(last); gap > 0 {
				timer := time.NewTimer(gap)
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
			}
		}
		last = time.Now()
		tasks := s.tasks()
		s.observe(tasks)
		refresh := max(reportRefresh, time.Duration(len(tasks)/refreshesPerSecond)*time.Second)
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		err := s.reportTasks(cctx, tasks, refresh)
		cancel()
		if ctx.Err() == nil {
			failing.note(s.log, "report tasks", err)
		}
	}
}

// reportTasks stores the statuses that changed or were stored longer than
// refresh ago (0: all that changed).
func (s *Supervisor) reportTasks(ctx context.Context, tasks []*task, refresh time.Duration) error {
	now := time.Now()
	byKey := map[flows.LeaseKey]*task{}
	var reports []flows.TaskReport
	for _, t := range tasks {
		if r, ok := t.report(now, refresh); ok {
			byKey[t.key] = t
			reports = append(reports, r)
		}
	}
	for len(reports) > 0 {
		batch := reports[:min(reportBatch, len(reports))]
		lost, err := s.store.ReportTasks(ctx, s.id, batch)
		for _, k := range lost {
			if t := byKey[k]; t != nil {
				s.verify(t)
			}
		}
		if err != nil {
			s.m.storeErrors.WithLabelValues("report tasks").Inc()
			for _, r := range reports {
				byKey[r.LeaseKey].unreported()
			}
			return fmt.Errorf("report tasks: %w", err)
		}
		reports = reports[len(batch):]
	}
	return nil
}

// observe sets the gauges.
func (s *Supervisor) observe(tasks []*task) {
	leases := map[phase]int{}
	states := map[flows.FlowState]int{}
	trust := s.ttl
	now := time.Now()
	for _, t := range tasks {
		t.mu.Lock()
		leases[t.phase]++
		states[t.status.State]++
		if t.phase != phaseLost {
			trust = min(trust, t.term.left(now))
		}
		t.mu.Unlock()
	}
	for _, p := range leaseStates {
		s.m.leases.WithLabelValues(p).Set(float64(leases[phase(p)]))
	}
	for _, st := range taskStates {
		s.m.tasks.WithLabelValues(string(st)).Set(float64(states[st]))
	}
	s.m.trust.Set(trust.Seconds())
}

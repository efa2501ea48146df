package engine

import (
	"context"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// boundsInterval is how often the ends of partitions are asked for of which nothing is heard otherwise;
	// boundsPerSecond makes it longer for tasks of many partitions.
	boundsInterval  = 2 * time.Second
	boundsPerSecond = 2000
	// Of partitions that are read to their end the brokers tell by themselves when that moves. They are asked for in turn
	// all the same, some each boundsTurn and all of them in a boundsRound: log starts on the source and ends on the target
	// may move unheard.
	boundsTurn    = 10 * time.Second
	boundsRound   = time.Minute
	boundsPerTurn = 8 // at least
	// A cluster that is away must show within 10 s, though nobody needs it: where refreshes are further apart than this,
	// the turns are not.
	boundsProbe = 5 * time.Second
)

// boundsPause is the time between two looks at the ends of partitions.
func (t *Task) boundsPause() time.Duration {
	return max(boundsInterval, time.Duration(t.parts.len())*time.Second/boundsPerSecond)
}

// boundsLoop keeps log ends fresh, until ctx ends.
func (t *Task) boundsLoop(ctx context.Context) {
	turn := boundsPlan{every: boundsTurn, at: time.Now()}
	if t.cfg.RefreshTopicsInterval > boundsProbe {
		turn.every = boundsProbe
	}
	for sleep(ctx, t.boundsPause()) {
		ofSource, ofTarget := turn.due(t.parts.all(), time.Now())
		source := report.Aside("source offsets", func() (bool, error) { return t.sourceBounds(ctx, ofSource), nil })
		answered := t.targetEnds(ctx, ofTarget)
		if ok, _ := source(); !ok || !answered { // it reports by itself; a panic comes through
			turn.at = turn.at.Add(-turn.every) // whether it is over shows at once
		}
	}
}

// boundsPlan decides which partitions' ends are asked for.
type boundsPlan struct {
	every time.Duration
	at    time.Time // of the last turn
	next  int
}

// due answers the partitions whose ends are to be asked for now, on the source and on the target.
func (b *boundsPlan) due(parts []*partition, now time.Time) (source, target []*partition) {
	from, n := 0, 0
	if since := now.Sub(b.at); since >= b.every && len(parts) > 0 {
		n = min(max(boundsPerTurn, int(int64(len(parts))*int64(since)/int64(boundsRound))+1), len(parts))
		from = b.next % len(parts)
		b.at, b.next = now, (from+n)%len(parts)
	}
	stalled := false
	for i, p := range parts {
		inTurn := (i-from+len(parts))%len(parts) < n
		p.mu.Lock()
		heard := p.state == partRunning && p.highWatermark >= 0 && now.Sub(p.seen) < boundsInterval
		atEnd := p.state == partRunning && p.highWatermark >= 0 && p.position >= p.highWatermark
		// Where something could be read and is not, because the target does not take it, nothing else may be read either.
		stalled = stalled || !heard && !atEnd && (p.lastStable < 0 || p.position < p.lastStable)
		if inTurn || !heard && !atEnd {
			source = append(source, p)
		}
		// Without a position there may be no remote partition.
		if p.position >= 0 && (inTurn || p.targetEnd < 0 || p.state != partRunning) {
			target = append(target, p)
		}
		p.mu.Unlock()
	}
	if stalled {
		source = parts
	}
	return source, target
}

// sourceBounds asks for the ends of partitions on the source; false: not every broker answered.
func (t *Task) sourceBounds(ctx context.Context, parts []*partition) bool {
	if len(parts) == 0 {
		return true
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	tps := make([]mirror.TP, len(parts))
	for i, p := range parts {
		tps[i] = p.tp
	}
	got, err := listBounds(c, t.source.client, tps)
	if err != nil {
		t.source.failed("offsets", err)
	} else {
		t.source.ok("offsets")
	}
	for _, p := range parts {
		b := got[p.tp]
		if b.err != nil {
			continue
		}
		p.mu.Lock()
		p.logStart, p.highWatermark = b.start, b.end
		p.mu.Unlock()
	}
	return err == nil
}

// targetEnds asks for the ends of remote partitions; false: not every broker answered.
func (t *Task) targetEnds(ctx context.Context, parts []*partition) bool {
	if len(parts) == 0 {
		return true
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	tps := make([]mirror.TP, len(parts))
	for i, p := range parts {
		tps[i] = mirror.TP{Topic: p.remote, Partition: p.tp.Partition}
	}
	got, err := listOffsets(c, t.target.client, tps, atEnd, uncommitted)
	if err != nil {
		t.target.failed("offsets", err)
	} else {
		t.target.ok("offsets")
	}
	for i, p := range parts {
		if g, ok := got[tps[i]]; ok && g.err == nil {
			p.mu.Lock()
			p.targetEnd = g.offset
			p.mu.Unlock()
		}
	}
	return err == nil
}

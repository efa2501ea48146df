package lifecycle

import (
	"context"
	"os"
	"runtime"
	"time"
)

const (
	// procsLook is how often it is looked at how busy the process is.
	procsLook = 250 * time.Millisecond
	// procsCalm is how many looks in a row must have found that half would do, before half it is.
	procsCalm = 20
	// procsRenew is after how many looks it is asked how many CPUs there may be.
	procsRenew = 240
)

// AdjustProcs has Go code run on as few CPUs at a time as do its work, and on as many as the machine or the container gives
// when it needs them, until ctx ends: a process that mostly waits for sockets pays for each further one with threads that
// wake each other for nothing. It begins with one. Where the environment has GOMAXPROCS, that counts and nothing is done, as
// on systems that do not tell the CPU time.
func AdjustProcs(ctx context.Context) {
	if _, ok := cpuTime(); !ok || os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	ticks := time.NewTicker(procsLook)
	defer ticks.Stop()
	adjustProcs(ctx, ticks.C, cpuTime, func() int {
		runtime.SetDefaultGOMAXPROCS()
		return runtime.GOMAXPROCS(0)
	})
}

// adjustProcs looks at each tick at how much CPU time was used. limit is how many CPUs there may be, which it also sets.
func adjustProcs(ctx context.Context, ticks <-chan time.Time, used func() (time.Duration, bool), limit func() int) {
	p := procs{now: 1, most: limit()}
	defer limit()
	runtime.GOMAXPROCS(p.now)
	before, _ := used()
	at := time.Now()
	for looks := 1; ; {
		var now time.Time
		select {
		case <-ctx.Done():
			return
		case now = <-ticks:
		}
		span := now.Sub(at)
		if span < procsLook/2 { // the tick before was late
			continue
		}
		total, _ := used()
		was := p.now
		p.adjust((total - before).Seconds() / span.Seconds())
		if p.now > was || looks%procsRenew == 0 { // the container may have been given another share
			p.most = limit()
			p.now = min(p.now, p.most)
			runtime.GOMAXPROCS(p.now)
		} else if p.now != was {
			runtime.GOMAXPROCS(p.now)
		}
		before, at = total, now
		looks++
	}
}

// procs is how many CPUs are in use, of how many.
type procs struct{ now, most, calm int }

// adjust takes how many were busy since the last look, and answers how many should be used from here on.
func (p *procs) adjust(busy float64) int {
	switch n := float64(p.now); {
	case busy > 0.8*n:
		p.now, p.calm = min(2*p.now, p.most), 0
	case busy > 0.3*n:
		p.calm = 0
	default:
		if p.calm++; p.calm >= procsCalm {
			p.now, p.calm = max(p.now/2, 1), 0
		}
	}
	return p.now
}

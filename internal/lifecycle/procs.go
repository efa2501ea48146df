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
)

// AdjustProcs has Go code run on as few CPUs at a time as do its work, and on as many as the machine gives when it needs
// them, until ctx ends: a process that mostly waits for sockets pays for each further one with threads that wake each other
// for nothing. It begins with one. Where the environment has GOMAXPROCS, that counts and nothing is done, as on systems that
// do not tell the CPU time.
func AdjustProcs(ctx context.Context) {
	used, ok := cpuTime()
	if !ok || os.Getenv("GOMAXPROCS") != "" {
		return
	}
	p := procs{now: 1, most: runtime.GOMAXPROCS(0)}
	if p.most == 1 {
		return
	}
	defer runtime.GOMAXPROCS(p.most)
	runtime.GOMAXPROCS(p.now)
	ticks := time.NewTicker(procsLook)
	defer ticks.Stop()
	for at := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := time.Now()
		total, _ := cpuTime()
		if was := p.now; p.adjust((total-used).Seconds()/now.Sub(at).Seconds()) != was {
			runtime.GOMAXPROCS(p.now)
		}
		used, at = total, now
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

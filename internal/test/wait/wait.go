// Package wait polls for what another process does, within a bound, for tests on real servers.
//
// It owns one helper. It must be imported by tests only, and it must not stand in for a signal where the code under test
// can give one. Start with For.
package wait

import (
	"testing"
	"time"
)

// Interval is the time between two looks.
const Interval = 25 * time.Millisecond

// For looks until cond returns nil and fails the test when that takes longer than timeout, with what was waited for and
// cond's last error. cond runs on the caller's goroutine.
func For(tb testing.TB, timeout time.Duration, what string, cond func() error) {
	tb.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			tb.Fatalf("waited %s for %s: %v", timeout, what, err)
		case <-tick.C:
		}
	}
}

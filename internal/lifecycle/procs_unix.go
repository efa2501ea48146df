//go:build unix

package lifecycle

import (
	"syscall"
	"time"
)

// cpuTime is what the process has used so far, in user and kernel; false: the system does not tell.
func cpuTime() (time.Duration, bool) {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0, false
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()), true
}

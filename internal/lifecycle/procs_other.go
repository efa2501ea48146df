//go:build !unix

package lifecycle

import "time"

func cpuTime() (time.Duration, bool) { return 0, false }

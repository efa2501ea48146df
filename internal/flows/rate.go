package flows

import (
	"reflect"
	"time"
)

// RateOfTask is the task's share of MaxBytesPerSecond: equal parts, the first tasks one byte more where it does not
// divide, so that the shares of all tasks are the limit together. 0: no limit.
func (o Options) RateOfTask(task int) int64 {
	if o.MaxBytesPerSecond == nil || o.TasksMax < 1 {
		return 0
	}
	n := int64(o.TasksMax)
	share := *o.MaxBytesPerSecond / n
	if int64(task) < *o.MaxBytesPerSecond%n {
		share++
	}
	return share
}

// SameButRate tells whether nothing that a running task works by differs between two versions of a flow, except for
// MaxBytesPerSecond, which it can follow without a stop.
func SameButRate(a, b Flow) bool {
	for _, f := range []*Flow{&a, &b} {
		f.MaxBytesPerSecond, f.Revision, f.UpdatedAt, f.CreatedAt = nil, 0, time.Time{}, time.Time{}
	}
	if !sameOptions(a.Options, b.Options) {
		return false
	}
	a.Options, b.Options = Options{}, Options{}
	return reflect.DeepEqual(a, b)
}

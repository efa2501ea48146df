package flows

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestTheSharesOfAllTasksAreTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{minRate, minRate + 1, 1_000_000, 999_999_999_999, maxRate} {
		for _, tasks := range []int{1, 2, 3, 7, 1000, maxTasks} {
			o := Options{TasksMax: tasks, MaxBytesPerSecond: &limit}
			var sum int64
			least, most := o.RateOfTask(0), o.RateOfTask(0)
			for task := range tasks {
				share := o.RateOfTask(task)
				sum, least, most = sum+share, min(least, share), max(most, share)
			}
			require.Equal(t, limit, sum, "%d tasks", tasks)
			require.Positive(t, least, "0 would be no limit")
			require.LessOrEqual(t, most-least, int64(1))
		}
	}
	require.Zero(t, Options{TasksMax: 3}.RateOfTask(1))
}

func TestOnlyARateCanBeFollowedWithoutAStop(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	made := func() Flow {
		f := Flow{ID: uuid.UUID{1}, ReplicationPolicySeparator: ".", Options: DefaultOptions(), Revision: 3, UpdatedAt: at}
		start := at
		f.StartTimestamp = &start
		return f
	}
	for name, c := range map[string]struct {
		change func(*Flow)
		same   bool
	}{
		"nothing":       {func(*Flow) {}, true},
		"the rate":      {func(f *Flow) { f.MaxBytesPerSecond, f.Revision, f.UpdatedAt = ptr(int64(5000)), 4, at.Add(1) }, true},
		"a list":        {func(f *Flow) { f.Topics = []string{"x"} }, false},
		"a rate and it": {func(f *Flow) { f.MaxBytesPerSecond, f.SyncInterval = ptr(int64(5000)), time.Hour }, false},
		"the separator": {func(f *Flow) { f.ReplicationPolicySeparator = "-" }, false},
		"the start":     {func(f *Flow) { s := at.Add(time.Second); f.StartTimestamp = &s }, false},
	} {
		a, b := made(), made()
		c.change(&b)
		require.Equal(t, c.same, SameButRate(a, b), name)
		require.Equal(t, c.same, SameButRate(b, a), name)
		require.Equal(t, int64(3), a.Revision, "its arguments stay as they are")
	}
}

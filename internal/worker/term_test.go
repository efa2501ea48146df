package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTrustIsCountedFromTheStartOfTheAttemptAndEndsAMarginBeforeTheLease(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:      800 * time.Millisecond,
		3 * time.Second:  2700 * time.Millisecond,
		10 * time.Second: 9 * time.Second,
		time.Minute:      59 * time.Second,
	} {
		tm := term{attempt: start, ttl: ttl}
		require.Equal(t, start.Add(want), tm.trustedUntil(), "ttl %v", ttl)
		require.True(t, tm.trusted(start.Add(want-1)))
		require.False(t, tm.trusted(start.Add(want)))
		require.Zero(t, tm.left(start.Add(want+time.Hour)))
	}
}

func TestRenewalsLeaveRoomForTwoFailuresAndForNewsWithinASecond(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, renewEvery(10*time.Second))
	require.Equal(t, 500*time.Millisecond, renewEvery(1500*time.Millisecond))
}

func TestAnAttemptToRenewNeverOutlivesTheTrustThatIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		tm := term{attempt: start, ttl: time.Duration(rapid.Int64Range(int64(time.Second), int64(10*time.Minute)).Draw(t, "ttl"))}
		now := start.Add(time.Duration(rapid.Int64Range(0, int64(tm.ttl)*2).Draw(t, "elapsed")))
		d := tm.attemptTimeout(now)
		require.Positive(t, d)
		require.LessOrEqual(t, d, tm.ttl/3)
		if left := tm.left(now); left > 20*time.Millisecond {
			require.Less(t, d, left)
		}
		other := term{attempt: start.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "other"))), ttl: tm.ttl}
		require.False(t, tm.later(other).trustedUntil().Before(tm.trustedUntil()), "a late answer shortened trust")
	})
}

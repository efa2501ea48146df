package worker

import "time"

// term is for how long the holder of a lease may trust that nobody else has
// it. It is a value and pure: all times come from outside and carry the
// process's monotonic clock.
//
// The database counts the TTL from when it executes the statement, which is
// never before the attempt started here. Counting from the start of the
// attempt, and ending a margin earlier, keeps the holder on the safe side
// whatever the statement waited for.
type term struct {
	attempt time.Time // when the successful attempt to acquire or renew started
	ttl     time.Duration
}

// Bounds of the margin, which covers the stopping of what runs and the
// difference between two clocks' rates.
const (
	minMargin = 200 * time.Millisecond
	maxMargin = time.Second
)

func margin(ttl time.Duration) time.Duration { return min(max(ttl/10, minMargin), maxMargin) }

// renewEvery is the time between renewals: a third of the TTL, so that two may
// fail, and at most a second, since renewals also bring news of changes, which
// must take effect within 2 s even when no notification arrives.
func renewEvery(ttl time.Duration) time.Duration { return min(ttl/3, time.Second) }

// trustedUntil is the instant from which the lease may be somebody else's.
func (t term) trustedUntil() time.Time { return t.attempt.Add(t.ttl - margin(t.ttl)) }

// trusted tells whether the lease may be relied on.
func (t term) trusted(now time.Time) bool { return now.Before(t.trustedUntil()) }

// left is the trust that is left, never negative.
func (t term) left(now time.Time) time.Duration { return max(0, t.trustedUntil().Sub(now)) }

// attemptTimeout bounds one attempt to renew: a third of the TTL, and half of
// the trust left, so that a hanging attempt leaves time for another one.
func (t term) attemptTimeout(now time.Time) time.Duration {
	return max(10*time.Millisecond, min(t.ttl/3, t.left(now)/2))
}

// later answers the term that lasts longer: an answer that arrives out of turn
// never shortens trust.
func (t term) later(u term) term {
	if u.trustedUntil().After(t.trustedUntil()) {
		return u
	}
	return t
}

package mirror

import "time"

// bucket keeps reading to a rate: it is charged with what was read, and while it is in debt nothing is wanted. The zero value
// limits nothing. The path's lock guards it.
type bucket struct {
	rate  int64 // bytes per second; 0: no limit
	level float64
	at    time.Time
	owed  time.Duration // for how long it has been in debt, ever
}

const (
	// saved is how long of the rate an idle path may make up for at most.
	saved = 250 * time.Millisecond
	// leastAnswer is asked for where it is not known how large batches are, or whether there are any.
	leastAnswer = 16 << 10
	// fewBatches is how many an answer should hold at least.
	fewBatches = 6
)

func (b *bucket) fill(now time.Time) {
	if !b.at.IsZero() {
		if b.level < 0 {
			b.owed += min(now.Sub(b.at), time.Duration(-b.level/float64(b.rate)*float64(time.Second)))
		}
		b.level = min(b.level+now.Sub(b.at).Seconds()*float64(b.rate), float64(b.rate)*saved.Seconds())
	}
	b.at = now
}

// set changes the rate; what is owed stays owed.
func (b *bucket) set(rate int64, now time.Time) {
	b.fill(now)
	if b.rate = rate; rate <= 0 {
		*b = bucket{owed: b.owed}
	}
}

// charge takes what was read.
func (b *bucket) charge(n int, now time.Time) {
	if b.rate > 0 {
		b.fill(now)
		b.level -= float64(n)
	}
}

// debt is for how long nothing may be read.
func (b *bucket) debt(now time.Time) time.Duration {
	if b.rate <= 0 {
		return 0
	}
	if b.fill(now); b.level >= 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(-b.level/float64(b.rate)*float64(time.Second)))
}

// bound keeps answers small where the rate is low, so that reading is even: a quarter of a second, but several batches, so
// that little of the answer is a batch that is cut off. Where these would take too long it is one: the first of an answer
// comes whole, however little is asked for, and nothing behind it.
func (b *bucket) bound(most, batch int32) int32 {
	switch {
	case b.rate <= 0:
		return most
	case batch <= 0:
		return min(most, leastAnswer)
	case int64(batch)*fewBatches > b.rate/2:
		return 1
	}
	return wholes(int32(min(int64(most), max(b.rate/4, int64(batch)*fewBatches))), batch)
}

// SetMaxBytesPerSecond limits what is read from now on, in bytes of record batches as they travel; 0: no limit. It may be
// called at any time.
func (p *mirror) SetMaxBytesPerSecond(n int64) {
	p.locked(func() { p.rate.set(max(0, n), time.Now()) })
	p.wake()
}

// HeldBack tells the limit of SetMaxBytesPerSecond, and for how long altogether the path has read nothing new for its sake.
func (p *mirror) HeldBack() (limit int64, held time.Duration) {
	p.locked(func() {
		if limit = p.rate.rate; limit > 0 {
			p.rate.fill(time.Now())
		}
		held = p.rate.owed
	})
	return limit, held
}

// charge notes what was read.
func (p *mirror) charge(n int) {
	p.locked(func() { p.rate.charge(n, time.Now()) })
}

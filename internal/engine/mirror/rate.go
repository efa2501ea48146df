package mirror

import "time"

// bucket keeps reading to a rate: it is charged with what was read, and while it is in debt nothing is wanted. The zero value
// limits nothing. The path's lock guards it.
type bucket struct {
	rate  int64 // bytes per second; 0: no limit
	level float64
	at    time.Time
}

const (
	// saved is how long of the rate an idle path may make up for at most.
	saved = 250 * time.Millisecond
	// leastAnswer bounds how small answers become by a low rate.
	leastAnswer = 16 << 10
)

func (b *bucket) fill(now time.Time) {
	if !b.at.IsZero() {
		b.level = min(b.level+now.Sub(b.at).Seconds()*float64(b.rate), float64(b.rate)*saved.Seconds())
	}
	b.at = now
}

// set changes the rate; what is owed stays owed.
func (b *bucket) set(rate int64, now time.Time) {
	b.fill(now)
	if b.rate = rate; rate <= 0 {
		*b = bucket{}
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

// bound keeps answers small where the rate is low, so that reading is even.
func (b *bucket) bound(bytes int32) int32 {
	if b.rate <= 0 {
		return bytes
	}
	return int32(min(int64(bytes), max(leastAnswer, b.rate/8)))
}

// SetMaxBytesPerSecond limits what is read from now on, in bytes of record batches as they travel; 0: no limit. It may be
// called at any time.
func (p *mirror) SetMaxBytesPerSecond(n int64) {
	p.locked(func() { p.rate.set(max(0, n), time.Now()) })
	p.wake()
}

// charge notes what was read.
func (p *mirror) charge(n int) {
	p.locked(func() { p.rate.charge(n, time.Now()) })
}

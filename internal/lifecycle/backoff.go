package lifecycle

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the wait between attempts: Base, then doubled each time up to
// Max, each time shortened by a random part of up to a half so that many
// waiters spread. The zero value waits 100 ms to 10 s.
type Backoff struct {
	Base, Max time.Duration
	attempt   int
}

// Next answers the next wait.
func (b *Backoff) Next() time.Duration {
	base, most := b.Base, b.Max
	if base <= 0 {
		base = 100 * time.Millisecond
	}
	if most <= 0 {
		most = 10 * time.Second
	}
	d := most
	if b.attempt < 32 && base<<b.attempt < most && base<<b.attempt > 0 {
		d = base << b.attempt
		b.attempt++
	}
	return d - time.Duration(rand.Int64N(int64(d)/2+1))
}

// Reset begins again at Base.
func (b *Backoff) Reset() { b.attempt = 0 }

// Wait waits for Next, or until ctx ends, and answers ctx's cause then.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d, or until ctx ends, and answers ctx's cause then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

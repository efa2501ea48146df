package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestB93AnEngineMayNotWriteWhenTheLeaseIsOverThoughNoTimerHasFiredYet(t *testing.T) {
	t.Parallel()
	_, opener := keyPair(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, opener)
		key := b.lease(nil)
		b.start()
		pass(400 * time.Millisecond)
		e := b.engine(0)
		require.True(t, e.cfg.MayWrite())
		b.s.mu.Lock()
		held := b.s.held[slot{key.FlowID, key.Task}]
		b.s.mu.Unlock()
		require.NotNil(t, held)
		// As a process finds itself that stood still for longer than its lease: nothing has run yet, and the clock has.
		held.mu.Lock()
		current := held.term
		held.term.attempt = time.Now().Add(-ttl)
		held.mu.Unlock()
		require.NoError(t, held.ctx.Err())
		require.False(t, e.cfg.MayWrite())
		held.extend(current)
		require.True(t, e.cfg.MayWrite())
		held.lose("test")
		require.False(t, e.cfg.MayWrite())
	})
}

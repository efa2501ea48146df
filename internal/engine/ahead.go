package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// ahead is a look around that was taken before the first refresh.
type ahead struct {
	source topics.Discovery
	target topics.Target
	wanted []topics.Selected
	at     time.Time
}

// aheadAge is how old a look ahead may be that the first refresh goes by.
const aheadAge = 2 * time.Second

// lookAhead looks around and claims before the first refresh, which goes by it, or does the same where it failed, and
// reports that. What was claimed has been stored by who had it before, so that the state is to be read after it.
func (t *Task) lookAhead(ctx context.Context) {
	if !t.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	began := time.Now()
	d, err := t.topics.Discover(ctx)
	if err != nil || d.Matched == 0 { // of a topic just made not every broker knows yet: the refresh looks again
		return
	}
	have, err := t.topics.DescribeTarget(ctx, remoteNames(d.Topics))
	if err != nil {
		return
	}
	wanted, _ := t.claim(ctx, d)
	t.ahead = &ahead{d, have, wanted, began}
}

// makeAhead makes the remote topics that lookAhead found missing.
func (t *Task) makeAhead(ctx context.Context) {
	a := t.ahead
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	have, err := t.topics.Ensure(ctx, a.wanted, a.target)
	if err != nil {
		t.log.Debug("remote topics not made ahead", slog.Any("error", err))
		t.ahead = nil
		return
	}
	a.target = have
}

// lookedAhead answers what lookAhead found, once and as long as it is fresh.
func (t *Task) lookedAhead() (d topics.Discovery, have topics.Target, ok bool) {
	a := t.ahead
	t.ahead = nil
	if a == nil || time.Since(a.at) > aheadAge {
		return d, have, false
	}
	return a.source, a.target, true
}

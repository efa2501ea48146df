package mirror

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// identify gives the partition a producer identity that it has not used before, or asks the target for one. The lock is
// held.
func (p *mirror) identify(ctx context.Context, t *part, now time.Time) bool {
	used, was := p.used[t.asg.Target]
	switch {
	case t.hasID && (t.id.pid >= 0 || p.ids.pid < 0): // else there are identities again
		return true
	case was && used.pid >= 0 && !t.anew && used.epoch < math.MaxInt16-1:
		// Of an earlier assignment a batch may still be on its way, its request given up. Once the target has a batch of a
		// higher epoch, it refuses those of lower ones: the old one lands before all new ones or not at all.
		t.id = identity{pid: used.pid, epoch: used.epoch + 1}
	case p.hasIDs && (!was || p.ids.pid < 0 || used.pid != p.ids.pid):
		t.id = p.ids
	default:
		p.wantIdentity(ctx, now)
		return false
	}
	t.hasID, t.anew = true, false
	p.used[t.asg.Target] = t.id
	return true
}

// wantIdentity has the target asked for an identity, unless that is going on or was tried just now; the lock is held.
func (p *mirror) wantIdentity(ctx context.Context, now time.Time) {
	if !p.askingID && !now.Before(p.idsAfter) {
		p.askingID = true
		p.spawn("asking for a producer id", func() { p.askIdentity(ctx) })
	}
}

func (p *mirror) askIdentity(ctx context.Context) {
	reqCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	mark := p.target.begin()
	resp, err := req.RequestWith(reqCtx, p.target.client)
	p.target.end(mark, err)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askingID = false
	switch {
	case err == nil:
		if p.hasIDs && p.ids.pid < 0 {
			p.cfg.Logger.Info("the target grants idempotent writes again")
			p.events.push(func() { p.cfg.Observer.Idempotence(nil) })
		}
		p.ids, p.hasIDs = identity{pid: resp.ProducerID, epoch: resp.ProducerEpoch}, true
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		// Older brokers want a right of its own for idempotent writing.
		if !p.hasIDs || p.ids.pid >= 0 {
			p.cfg.Logger.Warn("the target denies idempotent writes", slog.Any("error", err))
			p.events.push(func() { p.cfg.Observer.Idempotence(err) })
		}
		p.ids, p.hasIDs = identity{pid: -1, epoch: -1, seq: -1}, true
		p.idsAfter = time.Now().Add(p.askAgain)
	default:
		p.metrics.failure("target", "producer_id", err)
		p.idsAfter = time.Now().Add(300 * time.Millisecond)
		time.AfterFunc(300*time.Millisecond, func() { p.locked(p.enlistAll) })
		return
	}
	p.enlistAll()
}

// enlistAll enlists all partitions that wait for what they share; the lock is held.
func (p *mirror) enlistAll() {
	for _, t := range p.order {
		p.enlist(t)
	}
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// anchor stores points before anything is written behind them.
func (t *Task) anchor(ctx context.Context, points map[mirror.TP]mirror.Point) error {
	for tp, at := range points {
		p := t.parts.get(tp)
		if p == nil {
			continue // unselected meanwhile; nothing of it will be written
		}
		p.mu.Lock()
		position, deciding := p.position, p.deciding
		if !deciding && position == at.Source {
			p.point = &at
			p.touch()
		}
		p.mu.Unlock()
		if deciding || position != at.Source {
			return fmt.Errorf("engine: the point of %s belongs to offset %d, and its position is %d", p, at.Source, position)
		}
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	return t.save(c)
}

// producerOf is a point as it is stored.
func producerOf(at *mirror.Point) *state.Producer {
	if at == nil || at.ProducerID < 0 {
		return nil
	}
	return &state.Producer{ID: at.ProducerID, Epoch: at.Epoch, Sequence: at.Sequence, Target: at.Target}
}

// errNotTold says that a partition cannot start before the source has said whether its topic is compacted.
var errNotTold = errors.New("engine: the source has not told the topic's cleanup.policy")

var errPolicy = errors.New("engine: the answer to DescribeConfigs has another form than expected")

// countable tells of which topics the records between two offsets can be counted: those that are not compacted. A topic about
// which the source may not be asked is none. A topic that is not in the answer could not be asked about now.
func (t *Task) countable(ctx context.Context, pending []pendingStart) map[string]bool {
	req := kmsg.NewPtrDescribeConfigsRequest()
	asked := map[string]bool{}
	for _, s := range pending {
		topic := s.p.tp.Topic
		if asked[topic] || !t.hasPoint(s.p) {
			continue
		}
		asked[topic] = true
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"cleanup.policy"}
		req.Resources = append(req.Resources, r)
	}
	out := map[string]bool{}
	if len(asked) == 0 {
		return out
	}
	answer, err := req.RequestWith(ctx, t.source.client)
	if err != nil {
		t.source.failed("start", err)
		return out
	}
	for _, r := range answer.Resources {
		err := kerr.ErrorForCode(r.ErrorCode)
		if err == nil && len(r.Configs) != 1 {
			err = errPolicy
		}
		if err != nil {
			if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
				t.log.Warn("the source does not say whether a topic is compacted, so that what was copied last is copied again", slog.String("topic", r.ResourceName))
				out[r.ResourceName] = false
			}
			continue
		}
		policy := r.Configs[0].Value
		out[r.ResourceName] = policy != nil && !strings.Contains(*policy, "compact")
	}
	return out
}

// hasPoint tells whether a partition has a point to go on from.
func (t *Task) hasPoint(p *partition) bool {
	p.mu.Lock()
	held := p.point
	p.mu.Unlock()
	if held != nil {
		return held.ProducerID >= 0
	}
	e, ok := t.entryOf(p.tp.Topic, p.tp.Partition)
	return ok && e.Producer != nil
}

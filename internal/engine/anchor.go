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
		if !deciding && position != at.Source {
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

var errPolicy = errors.New("engine: the answer to DescribeConfigs has another form than expected")

// countable tells of which topics the records between two offsets can be counted: those that are not compacted. Where the
// source does not say, none are.
func (t *Task) countable(ctx context.Context, pending []pendingStart) map[string]bool {
	req := kmsg.NewPtrDescribeConfigsRequest()
	asked := map[string]bool{}
	for _, s := range pending {
		topic := s.p.tp.Topic
		if e, ok := t.entryOf(topic, s.p.tp.Partition); asked[topic] || !ok || e.Producer == nil {
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
		t.log.Warn("it is not known which topics are compacted, so that what was copied last is copied again", slog.Any("error", err))
		return out
	}
	for _, r := range answer.Resources {
		err := kerr.ErrorForCode(r.ErrorCode)
		if err == nil && len(r.Configs) != 1 {
			err = errPolicy
		}
		if err != nil {
			t.log.Warn("it is not known whether a topic is compacted, so that what was copied last is copied again", slog.String("topic", r.ResourceName), slog.Any("error", err))
			continue
		}
		policy := r.Configs[0].Value
		out[r.ResourceName] = policy != nil && !strings.Contains(*policy, "compact")
	}
	return out
}

package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// presence tells which of the two topics may hold something.
type presence struct{ state, positions bool }

// find tells which topics are there to be read, and makes both unless they are missing for sure. Only the controller
// knows that: metadata of a broker that lags may leave out a topic that has been there for years, and taking its
// positions for none would copy everything again. So it is asked to create them, without doing so.
func (s *TopicStore) find(ctx context.Context) (presence, error) {
	s.mu.Lock()
	known := s.made || s.gone || s.life.lost
	s.mu.Unlock()
	if !known {
		exists, err := s.ask(ctx)
		if err != nil && !errors.Is(err, kafka.ErrCreateDenied) {
			return presence{}, fmt.Errorf("state: %w", err)
		}
		there := presence{exists[s.topic], exists[s.offset]}
		if missing := !there.state || s.cfg.MM2Positions && !there.positions; err == nil && missing {
			return there, nil
		}
	}
	return presence{true, true}, s.make(ctx)
}

// ask has the controller tell which of the topics exist. Where it does not let us create one it does not tell either, and
// the error wraps kafka.ErrCreateDenied; others say why creating one would fail.
func (s *TopicStore) ask(ctx context.Context) (exists map[string]bool, err error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = 10_000, true
	for topic, n := range s.partitioned() {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, n, s.cfg.ReplicationFactor
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil, fmt.Errorf("look for the topics: %w", err)
	}
	exists = map[string]bool{}
	answered := 0
	for _, t := range resp.Topics {
		answered++
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
		case errors.Is(err, kerr.TopicAlreadyExists):
			exists[t.Topic] = true
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnsupportedVersion):
			return nil, fmt.Errorf("%w: topic %s: %w", kafka.ErrCreateDenied, t.Topic, err)
		default:
			return nil, fmt.Errorf("create topic %s: %w", t.Topic, err)
		}
	}
	if answered != len(req.Topics) {
		return nil, fmt.Errorf("look for the topics: the answer names %d of %d", answered, len(req.Topics))
	}
	return exists, nil
}

// partitioned are the topics with the partitions that they are made with.
func (s *TopicStore) partitioned() map[string]int32 {
	topics := map[string]int32{s.topic: 1}
	if s.cfg.MM2Positions {
		topics[s.offset] = mm2.ConnectOffsetsPartitions
	}
	return topics
}

// ready makes the topics, and reads ours if that was not done yet: nothing may be written without knowing what stands
// there. What was lost with a topic that was made anew is written again.
func (s *TopicStore) ready(ctx context.Context) error {
	if err := s.make(ctx); err != nil {
		return err
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if !loaded {
		if _, err := s.loadOwn(ctx); err != nil {
			return err
		}
	}
	return s.refill(ctx)
}

// make creates the topics that are missing, and looks at times whether they are those that it made or found.
func (s *TopicStore) make(ctx context.Context) error {
	s.look(ctx)
	s.mu.Lock()
	made, gone := s.made, s.gone
	s.mu.Unlock()
	if made {
		return nil
	}
	if gone {
		// The client would look for the topics that it knew for ever.
		s.mu.Lock() // nobody writes
		s.client.PurgeTopicsFromProducing(s.topic, s.offset)
		s.mu.Unlock()
	}
	if !s.cfg.MayWrite() {
		return fmt.Errorf("create the topics: %w", ErrMayNotWrite)
	}
	partitions := s.partitioned()
	var counts map[string]int32
	var ids map[string][16]byte
	for began := time.Now(); ; {
		for topic, n := range partitions {
			if err := kafka.CreateCompacted(ctx, s.client, topic, n, s.cfg.ReplicationFactor); err != nil && !errors.Is(err, kafka.ErrCreateDenied) {
				return fmt.Errorf("state: %w", err)
			}
		}
		var err error
		if counts, ids, err = s.partitions(ctx, partitions); err == nil {
			break
		}
		// A topic that was being deleted may have passed for one that is there: then it is made now.
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || time.Since(began) > 10*time.Second {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.gone, s.mm2Partitions = true, false, counts[s.offset]
	s.life.ids, s.life.looked = ids, time.Now()
	return nil
}

// partitions waits until the topics are in the metadata, with a leader for each partition, and counts them. A topic just
// made may take its time.
func (s *TopicStore) partitions(ctx context.Context, topics map[string]int32) (map[string]int32, map[string][16]byte, error) {
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	for began := time.Now(); ; {
		counts, ids := map[string]int32{}, map[string][16]byte{}
		details, err := kadm.NewClient(s.client).ListTopics(ctx, names...)
		if err == nil {
			err = details.Error()
		}
		if err == nil {
			for _, t := range details {
				counts[t.Topic], ids[t.Topic] = int32(len(t.Partitions)), t.ID
				for _, p := range t.Partitions {
					if p.Leader < 0 {
						err = kerr.LeaderNotAvailable
					}
				}
			}
		}
		if err == nil && len(counts) == len(topics) {
			return counts, ids, nil
		}
		unknown := errors.Is(err, kerr.UnknownTopicOrPartition)
		if !unknown && !kerr.IsRetriable(err) || time.Since(began) > 10*time.Second || unknown && time.Since(began) > time.Second {
			return nil, nil, fmt.Errorf("state: look for the topics %v: %w", names, err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

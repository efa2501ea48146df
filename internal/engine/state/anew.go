package state

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lookEvery is how often a store in use looks whether its topics are still the same ones. A topic made anew takes what is
// written to it without a word, as far as the broker goes by names, and has lost what is not written again.
const lookEvery = 5 * time.Second

// life is what a store keeps to notice that a topic was made anew, and to fill the new one.
type life struct {
	ids    map[string][16]byte // of the topics as last made or found; zero: the cluster has none
	looked time.Time
	// saved are the entries that this store saved.
	saved map[Key]Entry
	// lost: what was saved may not stand in the topic any more.
	lost bool
}

// Check notices that a topic was deleted or made anew, and writes again what was lost with it: the entries and notes that
// this store saved, and the notes it read. It asks the cluster at times only and may be called often.
func (s *TopicStore) Check(ctx context.Context) error { return s.ready(ctx) }

// look asks for the topics' ids when it is time. A failure to ask says nothing.
func (s *TopicStore) look(ctx context.Context) {
	s.mu.Lock()
	due := s.made && time.Since(s.life.looked) >= lookEvery
	ids := s.life.ids
	if due {
		s.life.looked = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	details, err := kadm.NewClient(s.client).ListTopics(ctx, s.topic, s.offset)
	if err != nil {
		s.cfg.Logger.Debug("topics of the state not looked at", slog.Any("error", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, id := range ids {
		d, ok := details[topic]
		now := [16]byte(d.ID)
		switch {
		case !ok || d.Err == kerr.UnknownTopicOrPartition, //nolint:errorlint // kerr's codes are values
			d.Err == nil && now != id && now != [16]byte{} && id != [16]byte{}:
			s.deleted(topic)
		}
	}
}

// deleted notes that a topic was deleted under us: the next call makes it again, unless somebody else did, and nothing of
// ours is there. The lock is held.
func (s *TopicStore) deleted(topic string) {
	if !s.life.lost {
		s.cfg.Logger.Warn("a topic of the state was deleted or made anew; what it held is written again", slog.String("topic", topic))
	}
	s.made, s.gone, s.life.lost = false, true, true
	if topic == s.offset {
		clear(s.mm2)
		return
	}
	for _, n := range s.held {
		n.own, n.obsolete = map[uint64]bool{}, map[blockID]bool{}
	}
}

// refill writes what was lost with a topic. What others wrote to the new one meanwhile is read first and stays. The lock
// loading is held.
func (s *TopicStore) refill(ctx context.Context) error {
	s.mu.Lock()
	var entries map[Key]Entry
	lost := s.life.lost
	if lost {
		entries = maps.Clone(s.life.saved)
	}
	s.mu.Unlock()
	if !lost {
		return nil
	}
	known, own := s.notes.known()
	if _, err := s.loadOwn(ctx); err != nil {
		return err
	}
	var records []*kgo.Record
	for name, value := range s.notes.putBack(known, own) {
		records = append(records, &kgo.Record{Topic: s.topic, Key: noteKey(name), Value: value})
	}
	s.mu.Lock()
	err := s.write(ctx, records)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("save notes again: %w", err)
	}
	if err := s.save(ctx, entries); err != nil {
		return fmt.Errorf("save positions again: %w", err)
	}
	s.mu.Lock()
	s.life.lost = s.gone
	s.mu.Unlock()
	return nil
}

// regain is refill for who does not hold loading.
func (s *TopicStore) regain(ctx context.Context) error {
	s.mu.Lock()
	lost := s.life.lost
	s.mu.Unlock()
	if !lost {
		return nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	return s.refill(ctx)
}

// known are the notes as they are, and the names of those that were written here.
func (n *notebook) known() (all map[string][]byte, own map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.m), maps.Clone(n.own)
}

// putBack adds notes that what was read lacks, and answers those that are to be written: of one that stands there with
// another value, only if it was written here.
func (n *notebook) putBack(known map[string][]byte, own map[string]bool) map[string][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	write := map[string][]byte{}
	for name, value := range known {
		now, there := n.m[name]
		if n.fresh[name] || there && (!own[name] || bytes.Equal(now, value)) {
			continue
		}
		setNote(&n.m, name, value)
		write[name] = value
	}
	return write
}

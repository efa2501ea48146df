package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config is what a TopicStore needs.
type Config struct {
	Target      kafka.Cluster
	ClientID    string
	SourceAlias string
	// Flow and LeaseEpoch say who writes: of writers that took a partition over at the same time, of one flow, the higher
	// epoch's state counts.
	Flow       string
	LeaseEpoch int64
	// ReplicationFactor of topics that have to be made; 0 and -1 are the cluster's default.
	ReplicationFactor int16
	// MM2Positions makes Save and Forget keep MM2's positions too, and Load adopt those that have no state of ours. Under the
	// identity policy of MM2 it is right as well: MM2's keys carry source names.
	MM2Positions bool
	// RemoteTopic gives a source topic's name on the target; needed to adopt MM2's positions, which carry source names.
	RemoteTopic func(source string) string
	// MayWrite is asked right before records are sent; false: ErrMayNotWrite. Default: always.
	MayWrite func() bool
	Logger   *slog.Logger // default: discard
}

// TopicStore is the Store on the target's topics. The state topic is made with one partition: all flows of an alias
// share it, entries are small, and one partition is read in one sweep; if somebody made it with more, records go to
// partition 0 all the same and all are read. Methods are safe for concurrent use.
type TopicStore struct {
	cfg    Config
	topic  string
	offset string // MM2's positions
	client *kgo.Client

	loading sync.Mutex // one Load at a time

	mu   sync.Mutex
	held map[Key]*holding
	// mm2 are the positions last written or read, so that unchanged ones are not written again.
	mm2           map[Key]int64
	sources       map[Key]string
	mm2Partitions int32
	made, loaded  bool
	gone          bool // deleted under us, while the client knew it
	life          life

	notes notebook
}

// ErrMayNotWrite is wrapped by errors of a store that may not write now (Config.MayWrite).
var ErrMayNotWrite = errors.New("state: nothing may be written now")

// holding is what a store knows of a partition's records in the topic.
type holding struct {
	found      int64 // the highest generation that was read
	generation int64 // that of our own saves; 0: none yet
	// own are the blocks of our last head, obsolete those that go once the next head stands: of earlier terms, and our own
	// of which the removal is not known to have landed.
	own      map[uint64]bool
	obsolete map[blockID]bool
}

func newHolding() *holding { return &holding{own: map[uint64]bool{}, obsolete: map[blockID]bool{}} }

var _ Store = (*TopicStore)(nil)

// Open makes a store; nothing is dialled before the first call.
func Open(cfg Config) (*TopicStore, error) {
	if cfg.SourceAlias == "" || cfg.ClientID == "" || cfg.Target.Credentials == nil {
		return nil, errors.New("state: config: SourceAlias, ClientID and Target are required")
	}
	if cfg.MM2Positions && cfg.RemoteTopic == nil {
		return nil, errors.New("state: config: RemoteTopic is required for MM2's positions")
	}
	if cfg.ReplicationFactor == 0 {
		cfg.ReplicationFactor = -1
	}
	if cfg.MayWrite == nil {
		cfg.MayWrite = func() bool { return true }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	opts, err := cfg.Target.Options(cfg.ClientID, cfg.Logger)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		return nil, fmt.Errorf("make client %s: %w", cfg.ClientID, err)
	}
	return &TopicStore{
		cfg: cfg, topic: mm2.StateTopic(cfg.SourceAlias), offset: mm2.ConnectOffsetsTopic(cfg.SourceAlias), client: client,
		held: map[Key]*holding{}, mm2: map[Key]int64{}, sources: map[Key]string{},
		life: life{saved: map[Key]Entry{}},
	}, nil
}

// Close implements Store.
func (s *TopicStore) Close() { s.client.Close() }

// Load implements Store.
func (s *TopicStore) Load(ctx context.Context) (map[Key]Entry, error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	if err := s.make(ctx); err != nil {
		return nil, err
	}
	if err := s.refill(ctx); err != nil {
		return nil, err
	}
	entries, err := s.loadOwn(ctx)
	if err != nil {
		return nil, err
	}
	if s.cfg.MM2Positions {
		if err := s.adopt(ctx, entries); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.offset, err)
		}
	}
	return entries, nil
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
	partitions := map[string]int32{s.topic: 1}
	if s.cfg.MM2Positions {
		partitions[s.offset] = mm2.ConnectOffsetsPartitions
	}
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

// loadOwn reads the state topic.
func (s *TopicStore) loadOwn(ctx context.Context) (map[Key]Entry, error) {
	var fault error
	heads, blocks, notes := map[Key]head{}, map[Key]map[blockID][]byte{}, map[string][]byte{}
	s.notes.begin()
	err := sidetopic.Read(ctx, s.client, s.topic, func(r *kgo.Record) {
		if takeNote(r, notes) {
			return
		}
		if err := take(r, heads, blocks); err != nil {
			if errors.Is(err, ErrVersion) {
				fault = fmt.Errorf("record at offset %d: %w", r.Offset, err)
			}
			s.cfg.Logger.Warn("record of the state topic is passed over", slog.Any("topic", s.topic), slog.Any("offset", r.Offset), slog.Any("error", err))
		}
	})
	if err := errors.Join(err, fault); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.topic, err)
	}
	s.notes.replace(notes)
	entries := make(map[Key]Entry, len(heads))
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, h := range heads {
		e, complete := h.entry(blocks[k])
		if !complete {
			s.cfg.Logger.Warn("offset map is incomplete and is given up", slog.Any("topic", h.source), slog.Any("partition", k.Partition))
		}
		entries[k] = e
		s.sources[k] = e.SourceTopic
	}
	s.learn(heads, blocks)
	s.loaded = true
	return entries, nil
}

// learn takes over what was read of each partition, except of those that we have ourselves. The lock is held.
func (s *TopicStore) learn(heads map[Key]head, blocks map[Key]map[blockID][]byte) {
	held := map[Key]*holding{}
	at := func(k Key) *holding {
		if held[k] == nil {
			held[k] = newHolding()
		}
		return held[k]
	}
	for k, h := range heads {
		at(k).found = h.generation
	}
	for k, all := range blocks {
		for id := range all {
			n := at(k)
			n.obsolete[id] = true
			n.found = max(n.found, id.generation)
		}
	}
	for k, old := range s.held {
		if h := heads[k]; old.generation > 0 && (h.generation <= old.generation || h.flow == s.cfg.Flow) {
			held[k] = old
		}
	}
	s.held = held
}

// take applies one record of the state topic.
func take(r *kgo.Record, heads map[Key]head, blocks map[Key]map[blockID][]byte) error {
	kind, k, id, err := parseKey(r.Key)
	switch {
	case err != nil:
		return err
	case kind == kindBlock && r.Value == nil:
		delete(blocks[k], id)
	case kind == kindBlock:
		b, err := parseBlock(r.Value)
		if err != nil {
			return err
		}
		if blocks[k] == nil {
			blocks[k] = map[blockID][]byte{}
		}
		blocks[k][id] = b
	case r.Value == nil:
		delete(heads, k)
	default:
		h, err := parseHead(r.Value)
		if err != nil {
			return err
		}
		// What a writer wrote late, when another had taken over, does not count. After compaction it may be all that is left,
		// which is no harm: it was acknowledged, only less far.
		if old, ok := heads[k]; !ok || h.outranks(old.stamp) {
			heads[k] = h
		}
	}
	return nil
}

// adopt adds entries for partitions of which only MM2 knows the position.
func (s *TopicStore) adopt(ctx context.Context, entries map[Key]Entry) error {
	found := map[mm2.TopicPartition]int64{}
	err := sidetopic.Read(ctx, s.client, s.offset, func(r *kgo.Record) {
		o, canonical, err := mm2.ParseConnectSourceKey(r.Key)
		if err != nil || !canonical || o.Connector != mm2.SourceConnectorName || o.Cluster != s.cfg.SourceAlias {
			return // MM2's other connectors keep theirs here too
		}
		tp := mm2.TopicPartition{Topic: o.Topic, Partition: o.Partition}
		at, err := mm2.ParseConnectOffsetValue(r.Value)
		switch {
		case errors.Is(err, mm2.ErrTombstone), err == nil && at < 0:
			delete(found, tp)
		case err != nil:
			s.cfg.Logger.Warn("position of MM2 cannot be read", slog.Any("topic", o.Topic), slog.Any("partition", o.Partition), slog.Any("error", err))
		default:
			found[tp] = at
		}
	})
	if err != nil && !errors.Is(err, sidetopic.ErrMissing) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A position that a flow of ours wrote for MM2 is not for another flow, which mirrors the topic under another name and
	// has its own way to go.
	ownedBy := map[mm2.TopicPartition]Key{}
	for k, e := range entries {
		ownedBy[mm2.TopicPartition{Topic: e.SourceTopic, Partition: k.Partition}] = k
	}
	for tp, at := range found {
		k := Key{RemoteTopic: s.cfg.RemoteTopic(tp.Topic), Partition: tp.Partition}
		e, ours := entries[k]
		if owner, ok := ownedBy[tp]; ok && owner != k || ours && e.SourceTopic != tp.Topic {
			continue
		}
		if n := s.held[k]; n == nil || n.generation == 0 { // else what we wrote is newer
			s.mm2[k] = at
		}
		s.sources[k] = tp.Topic
		if !ours {
			entries[k] = Entry{SourceTopic: tp.Topic, Position: at + 1, TargetNext: -1}
		}
	}
	return nil
}

// Save implements Store. Blocks go out before the heads that name them; MM2's positions and removals after both.
func (s *TopicStore) Save(ctx context.Context, entries map[Key]Entry) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.save(ctx, entries)
}

func (s *TopicStore) save(ctx context.Context, entries map[Key]Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var blocks, heads, rest []*kgo.Record
	named := map[Key]map[uint64]bool{}
	for k, e := range entries {
		n := s.held[k]
		if n == nil {
			n = newHolding()
			s.held[k] = n
		}
		by := stamp{term{n.generation, s.cfg.LeaseEpoch}, s.cfg.Flow}
		if by.generation == 0 {
			by.generation = n.found + 1
		}
		value, parts, err := encodeEntry(e, by)
		if err != nil {
			return err
		}
		named[k] = map[uint64]bool{}
		for hash, b := range parts {
			named[k][hash] = true
			if !n.own[hash] {
				blocks = append(blocks, &kgo.Record{Topic: s.topic, Key: blockKey(k, blockID{by.term, hash}), Value: b})
			}
		}
		heads = append(heads, &kgo.Record{Topic: s.topic, Key: headKey(k), Value: value})
		if r := s.position(k, e); r != nil {
			rest = append(rest, r)
		}
	}
	// From here on the generations are ours: the records may land whatever the answer is.
	for k := range entries {
		if n := s.held[k]; n.generation == 0 {
			n.generation = n.found + 1
		}
	}
	if err := s.write(ctx, blocks); err != nil {
		return err
	}
	for k, hashes := range named {
		for hash := range hashes {
			s.held[k].own[hash] = true
		}
	}
	if err := s.write(ctx, heads); err != nil {
		return err
	}
	for k := range entries {
		n := s.held[k]
		// A block on its way out does not count as there, whether or not the removal is known to have landed.
		for hash := range n.own {
			if !named[k][hash] {
				n.obsolete[blockID{term{n.generation, s.cfg.LeaseEpoch}, hash}] = true
			}
		}
		for hash := range named[k] {
			delete(n.obsolete, blockID{term{n.generation, s.cfg.LeaseEpoch}, hash})
		}
		n.own = named[k]
		for id := range n.obsolete {
			rest = append(rest, &kgo.Record{Topic: s.topic, Key: blockKey(k, id)})
		}
	}
	if err := s.write(ctx, rest); err != nil {
		return err
	}
	for k, e := range entries {
		s.held[k].obsolete = map[blockID]bool{}
		s.sources[k] = e.SourceTopic
		s.life.saved[k] = e
		if s.cfg.MM2Positions && e.Position > 0 {
			s.mm2[k] = e.Position - 1
		}
	}
	return nil
}

// position is MM2's record of an entry: the offset of the last record done. Nil when it says nothing new.
func (s *TopicStore) position(k Key, e Entry) *kgo.Record {
	if !s.cfg.MM2Positions || e.Position <= 0 {
		return nil
	}
	if at, ok := s.mm2[k]; ok && at == e.Position-1 {
		return nil
	}
	return s.mm2Record(k, e.SourceTopic, mm2.ConnectOffsetValue(e.Position-1))
}

func (s *TopicStore) mm2Record(k Key, source string, value []byte) *kgo.Record {
	key := mm2.ConnectSourceOffset{Connector: mm2.SourceConnectorName, Cluster: s.cfg.SourceAlias, Topic: source, Partition: k.Partition}.Key()
	return &kgo.Record{Topic: s.offset, Key: key, Value: value, Partition: mm2.KeyPartition(key, s.mm2Partitions)}
}

// Forget implements Store. It needs a Load before, to know what to remove.
func (s *TopicStore) Forget(ctx context.Context, keys []Key) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var heads, rest []*kgo.Record
	for _, k := range keys {
		heads = append(heads, &kgo.Record{Topic: s.topic, Key: headKey(k)})
		if n := s.held[k]; n != nil {
			for hash := range n.own {
				rest = append(rest, &kgo.Record{Topic: s.topic, Key: blockKey(k, blockID{term{n.generation, s.cfg.LeaseEpoch}, hash})})
			}
			for id := range n.obsolete {
				rest = append(rest, &kgo.Record{Topic: s.topic, Key: blockKey(k, id)})
			}
		}
		if _, ok := s.mm2[k]; ok {
			rest = append(rest, s.mm2Record(k, s.sources[k], nil))
		}
	}
	// MM2's first: a crash between the two must not let its position be adopted.
	if err := s.write(ctx, rest); err != nil {
		return err
	}
	if err := s.write(ctx, heads); err != nil {
		return err
	}
	for _, k := range keys {
		delete(s.held, k)
		delete(s.mm2, k)
		delete(s.sources, k)
		delete(s.life.saved, k)
	}
	return nil
}

// write sends records and waits for all acknowledgements, or until ctx ends: the client itself would go on waiting for
// those that it has sent once, since giving them up would break its numbering. They may land later; what is written
// after them stands behind them. The lock is held.
func (s *TopicStore) write(ctx context.Context, records []*kgo.Record) error {
	if len(records) > 0 && !s.cfg.MayWrite() {
		return fmt.Errorf("write to %s: %w", records[0].Topic, ErrMayNotWrite)
	}
	results := make(chan kgo.ProduceResult, len(records))
	for _, r := range records {
		s.client.Produce(ctx, r, func(r *kgo.Record, err error) { results <- kgo.ProduceResult{Record: r, Err: err} })
	}
	for range records {
		select {
		case r := <-results:
			if r.Err != nil {
				if errors.Is(r.Err, kerr.UnknownTopicOrPartition) || errors.Is(r.Err, kerr.UnknownTopicID) {
					s.deleted(r.Record.Topic)
				}
				return fmt.Errorf("write to %s: %w", r.Record.Topic, r.Err)
			}
		case <-ctx.Done():
			return fmt.Errorf("write to %s: %w", records[0].Topic, ctx.Err())
		}
	}
	return nil
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

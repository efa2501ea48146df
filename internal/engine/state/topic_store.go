package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config is what a TopicStore needs.
type Config struct {
	// Client is a client of the target, with the manual partitioner, that the store uses and leaves open. Without one it
	// makes its own of Target and ClientID.
	Client      *kgo.Client
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
	own    bool // the client is the store's

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
	if cfg.SourceAlias == "" || cfg.Client == nil && (cfg.ClientID == "" || cfg.Target.Credentials == nil) {
		return nil, errors.New("state: config: SourceAlias, and Client or ClientID and Target, are required")
	}
	if cfg.Client != nil && !kafka.PartitionsManually(cfg.Client) {
		return nil, errors.New("state: config: Client must have the manual partitioner")
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
	s := &TopicStore{
		cfg: cfg, topic: mm2.StateTopic(cfg.SourceAlias), offset: mm2.ConnectOffsetsTopic(cfg.SourceAlias), client: cfg.Client,
		held: map[Key]*holding{}, mm2: map[Key]int64{}, sources: map[Key]string{},
		life: life{saved: map[Key]Entry{}},
	}
	if s.client == nil {
		var err error
		s.client, err = kafka.NewClient(cfg.Target, cfg.ClientID, cfg.Logger, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
			kgo.MetadataMinAge(250*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			return nil, err
		}
		s.own = true
	}
	return s, nil
}

// Close implements Store.
func (s *TopicStore) Close() {
	if s.own {
		s.client.Close()
	}
}

// Load implements Store. Topics that the target surely does not have hold nothing, and are made by the first save, so that
// a fresh target is not waited for.
func (s *TopicStore) Load(ctx context.Context) (map[Key]Entry, error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	there, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.refill(ctx); err != nil {
		return nil, err
	}
	entries := map[Key]Entry{}
	if there.state {
		if entries, err = s.loadOwn(ctx); err != nil {
			return nil, err
		}
	} else {
		s.nothingStored()
	}
	if s.cfg.MM2Positions && there.positions {
		if err := s.adopt(ctx, entries); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.offset, err)
		}
	}
	return entries, nil
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

// nothingStored is loadOwn of a topic that does not exist.
func (s *TopicStore) nothingStored() {
	s.notes.begin()
	s.notes.replace(map[string][]byte{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learn(nil, nil)
	s.loaded = true
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

// write sends records and waits for all acknowledgements, or until ctx ends; they may land later then. The lock is held.
func (s *TopicStore) write(ctx context.Context, records []*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	if !s.cfg.MayWrite() {
		return fmt.Errorf("write to %s: %w", records[0].Topic, ErrMayNotWrite)
	}
	var first error
	for i, err := range sidetopic.Write(ctx, s.client, records...) {
		if err == nil {
			continue
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
			s.deleted(records[i].Topic)
		}
		if first == nil {
			first = fmt.Errorf("write to %s: %w", records[i].Topic, err)
		}
	}
	return first
}

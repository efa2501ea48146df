package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// The records' forms; doc.go describes them. Numbers are big-endian, strings have a uint16 length.
const (
	keyMagic  = "mf"
	kindHead  = 'H'
	kindBlock = 'B'

	keyVersion      = 1 // of heads and notes, and of blocks without a term
	blockKeyVersion = 2
	headVersion     = 3 // 1: no generation, no flow; 2: no producer
	blockVersion    = 1

	blockBytes = 16 << 10
	// maxBlocks keeps a head far below message.max.bytes.
	maxBlocks = 1 << 12
)

var (
	// ErrCodec is wrapped by the errors about records of the state topic that cannot be read.
	ErrCodec = errors.New("state: not a record of ours")
	// ErrVersion is wrapped by the error about a record of a newer version; nothing may be decided without it.
	ErrVersion = errors.New("state: written by a newer version")
)

// term is a writer's turn at a partition. Generations rise with each take-over, whoever takes over; lease epochs rise
// within a task of a flow and mean nothing beyond it.
type term struct{ generation, epoch int64 }

// stamp says who wrote a head.
type stamp struct {
	term
	flow string
}

// outranks tells whether a head counts that was read after one of the stamp old.
func (s stamp) outranks(old stamp) bool {
	switch {
	case s.generation != old.generation:
		return s.generation > old.generation
	case s.flow == old.flow:
		return s.epoch >= old.epoch
	}
	return true
}

// blockTerm is the term under which a head's blocks are named.
func (s stamp) blockTerm() term {
	if s.generation == 0 { // head of version 1
		return term{}
	}
	return s.term
}

// blockID names a block of a partition: by whose it is and by its content.
type blockID struct {
	term
	hash uint64
}

type head struct {
	stamp
	source     string
	sourceID   [16]byte
	targetID   [16]byte
	position   int64
	targetNext int64
	producer   *Producer
	prefix     []byte
	blocks     []uint64
	rest       []byte
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func headKey(k Key) []byte { return appendKey(keyVersion, kindHead, k) }

func blockKey(k Key, id blockID) []byte {
	if id.term == (term{}) {
		return binary.BigEndian.AppendUint64(appendKey(keyVersion, kindBlock, k), id.hash)
	}
	b := appendKey(blockKeyVersion, kindBlock, k)
	b = binary.BigEndian.AppendUint64(b, uint64(id.generation))
	b = binary.BigEndian.AppendUint64(b, uint64(id.epoch))
	return binary.BigEndian.AppendUint64(b, id.hash)
}

func appendKey(version, kind byte, k Key) []byte {
	b := appendString(append([]byte(keyMagic), version, kind), k.RemoteTopic)
	return binary.BigEndian.AppendUint32(b, uint32(k.Partition))
}

// parseKey reads either kind of key; id is zero for a head.
func parseKey(b []byte) (kind byte, k Key, id blockID, err error) {
	d := decoder{buf: b}
	if string(d.take(len(keyMagic))) != keyMagic {
		return 0, k, id, fmt.Errorf("%w: foreign key", ErrCodec)
	}
	version := d.version(blockKeyVersion)
	kind = d.byte()
	k.RemoteTopic = d.string()
	k.Partition = int32(d.uint32())
	known := kind == kindHead && version == keyVersion || kind == kindBlock
	if kind == kindBlock {
		if version == blockKeyVersion {
			id.generation, id.epoch = int64(d.uint64()), int64(d.uint64())
			known = id.generation > 0
		}
		id.hash = d.uint64()
	}
	if d.err == nil && (!known || k.Partition < 0 || len(d.buf) != 0) {
		d.err = fmt.Errorf("%w: key of kind %d, version %d, with %d bytes too many", ErrCodec, kind, version, len(d.buf))
	}
	return kind, k, id, d.err
}

// encodeEntry makes the head's value and the blocks that it names.
func encodeEntry(e Entry, by stamp) (value []byte, blocks map[uint64][]byte, err error) {
	if n := max(len(e.SourceTopic), len(by.flow)); n > math.MaxUint16 {
		return nil, nil, fmt.Errorf("state: source topic or flow with a name of %d bytes", n)
	}
	if e.Position < 0 || e.TargetNext < -1 {
		return nil, nil, fmt.Errorf("state: position %d and target next %d of topic %s are no offsets", e.Position, e.TargetNext, e.SourceTopic)
	}
	var prefix, body []byte
	if e.Map != nil {
		data, err := e.Map.MarshalBinary()
		if err != nil {
			return nil, nil, fmt.Errorf("state: encode offset map: %w", err)
		}
		_, n := binary.Uvarint(data[1:]) // version byte, count
		prefix, body = data[:1+n], data[1+n:]
	}
	b := binary.BigEndian.AppendUint64([]byte{headVersion}, uint64(by.generation))
	b = binary.BigEndian.AppendUint64(b, uint64(by.epoch))
	b = appendString(appendString(b, by.flow), e.SourceTopic)
	b = append(b, e.SourceTopicID[:]...)
	b = append(b, e.TargetTopicID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Position))
	b = binary.BigEndian.AppendUint64(b, uint64(e.TargetNext))
	b = appendProducer(b, e.Producer)
	b = append(b, byte(len(prefix)))
	b = append(b, prefix...)
	full := len(body) / blockBytes
	if full > maxBlocks {
		return nil, nil, fmt.Errorf("state: an offset map of %d bytes is too large", len(body))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(full))
	blocks = make(map[uint64][]byte, full)
	for i := range full {
		block := body[i*blockBytes : (i+1)*blockBytes]
		hash := hashOf(block)
		blocks[hash] = append([]byte{blockVersion}, block...)
		b = binary.BigEndian.AppendUint64(b, hash)
	}
	return append(b, body[full*blockBytes:]...), blocks, nil
}

// appendProducer writes whether there is one, and it.
func appendProducer(b []byte, p *Producer) []byte {
	if p == nil {
		return append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(append(b, 1), uint64(p.ID))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Sequence))
	return binary.BigEndian.AppendUint64(b, uint64(p.Target))
}

func (d *decoder) producer() *Producer {
	switch there := d.byte(); {
	case d.err != nil || there == 0:
		return nil
	case there != 1:
		d.err = fmt.Errorf("%w: a producer of kind %d", ErrCodec, there)
		return nil
	}
	p := &Producer{ID: int64(d.uint64()), Epoch: int16(d.uint16()), Sequence: int32(d.uint32()), Target: int64(d.uint64())}
	if d.err == nil && (p.ID < 0 || p.Epoch < 0 || p.Sequence < 0 || p.Target < 0) {
		d.err = fmt.Errorf("%w: producer %d, epoch %d, sequence %d, target %d", ErrCodec, p.ID, p.Epoch, p.Sequence, p.Target)
	}
	return p
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b) //nolint:errcheck // a hash's Write never fails
	return h.Sum64()
}

func parseHead(b []byte) (head, error) {
	d := decoder{buf: b}
	var h head
	version := d.version(headVersion)
	if version > 1 {
		h.generation = int64(d.uint64())
	}
	h.epoch = int64(d.uint64())
	if version > 1 {
		h.flow = d.string()
	}
	h.source = d.string()
	copy(h.sourceID[:], d.take(16))
	copy(h.targetID[:], d.take(16))
	h.position, h.targetNext = int64(d.uint64()), int64(d.uint64())
	if version > 2 {
		h.producer = d.producer()
	}
	h.prefix = d.take(int(d.byte()))
	n := int(d.uint16())
	if d.err == nil && (n > maxBlocks || n*8 > len(d.buf)) {
		d.err = fmt.Errorf("%w: %d blocks", ErrCodec, n)
	}
	if d.err == nil {
		h.blocks = make([]uint64, n)
		for i := range h.blocks {
			h.blocks[i] = d.uint64()
		}
		h.rest = d.buf
	}
	if d.err == nil && (h.position < 0 || h.targetNext < -1 || version > 1 && h.generation < 1) {
		d.err = fmt.Errorf("%w: position %d, target next %d, generation %d", ErrCodec, h.position, h.targetNext, h.generation)
	}
	return h, d.err
}

// entry joins a head with its blocks. A map of which a block is missing or altered is given up, and complete is false:
// the position stands by itself.
func (h head) entry(blocks map[blockID][]byte) (e Entry, complete bool) {
	e = Entry{
		SourceTopic: h.source, SourceTopicID: h.sourceID, TargetTopicID: h.targetID, Position: h.position, TargetNext: h.targetNext,
		LeaseEpoch: h.epoch, Producer: h.producer,
	}
	if len(h.prefix) == 0 {
		return e, len(h.blocks) == 0 && len(h.rest) == 0
	}
	data := append([]byte(nil), h.prefix...)
	for _, hash := range h.blocks {
		b, ok := blocks[blockID{h.blockTerm(), hash}]
		if !ok || hashOf(b) != hash {
			return e, false
		}
		data = append(data, b...)
	}
	m, err := mm2.UnmarshalOffsetMap(append(data, h.rest...), 0)
	if err != nil {
		return e, false
	}
	e.Map = m
	return e, true
}

// parseBlock returns a block's bytes.
func parseBlock(b []byte) ([]byte, error) {
	d := decoder{buf: b}
	d.version(blockVersion)
	return d.buf, d.err
}

type decoder struct {
	buf []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if len(d.buf) < n {
		d.err = fmt.Errorf("%w: truncated", ErrCodec)
		return nil
	}
	b := d.buf[:n]
	d.buf = d.buf[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint16() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) string() string { return string(d.take(int(d.uint16()))) }

// version reads a version byte, which must not pass newest.
func (d *decoder) version(newest byte) byte {
	v := d.byte()
	switch {
	case d.err != nil || v > 0 && v <= newest:
	case v > newest:
		d.err = fmt.Errorf("%w: version %d, this program reads up to %d", ErrVersion, v, newest)
	default:
		d.err = fmt.Errorf("%w: version %d", ErrCodec, v)
	}
	return v
}

package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// The state topic holds two kinds of records. Numbers are big-endian, strings have a uint16 length.
//
//	head  key:   "mf", version, kindHead, remote topic, int32 partition
//	      value: version, int64 lease epoch, source topic, source topic id, target topic id, int64 position,
//	             int64 target next, map prefix (uint8 length), uint16 count of blocks, a uint64 hash for each, rest of the map
//	block key:   "mf", version, kindBlock, remote topic, int32 partition, uint64 hash
//	      value: version, bytes of the map
//
// The map is MarshalBinary's bytes: its first bytes, which change with every run, are the prefix; what follows is cut in
// blocks of blockBytes, the remainder stays in the head. A map that grows at its end leaves the blocks before alone, so a
// save writes the head only. Blocks are named by their content: a head and the blocks it names cannot disagree, whatever
// was written last before a crash.
const (
	codecVersion = 1
	keyMagic     = "mf"
	kindHead     = 'H'
	kindBlock    = 'B'

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

type head struct {
	leaseEpoch int64
	source     string
	sourceID   [16]byte
	targetID   [16]byte
	position   int64
	targetNext int64
	prefix     []byte
	blocks     []uint64
	rest       []byte
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func headKey(k Key) []byte { return appendKey(kindHead, k) }

func blockKey(k Key, hash uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(kindBlock, k), hash)
}

func appendKey(kind byte, k Key) []byte {
	b := appendString(append([]byte(keyMagic), codecVersion, kind), k.RemoteTopic)
	return binary.BigEndian.AppendUint32(b, uint32(k.Partition))
}

// parseKey reads either kind of key; hash is 0 for a head.
func parseKey(b []byte) (kind byte, k Key, hash uint64, err error) {
	d := decoder{buf: b}
	if string(d.take(len(keyMagic))) != keyMagic {
		return 0, k, 0, fmt.Errorf("%w: foreign key", ErrCodec)
	}
	d.version()
	kind = d.byte()
	k.RemoteTopic = d.string()
	k.Partition = int32(d.uint32())
	if kind == kindBlock {
		hash = d.uint64()
	}
	if d.err == nil && (kind != kindHead && kind != kindBlock || k.Partition < 0 || len(d.buf) != 0) {
		d.err = fmt.Errorf("%w: key of kind %d with %d bytes too many", ErrCodec, kind, len(d.buf))
	}
	return kind, k, hash, d.err
}

// encodeEntry makes the head's value and the blocks that it names.
func encodeEntry(e Entry) (value []byte, blocks map[uint64][]byte, err error) {
	if len(e.SourceTopic) > math.MaxUint16 {
		return nil, nil, fmt.Errorf("state: source topic name of %d bytes", len(e.SourceTopic))
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
	b := binary.BigEndian.AppendUint64([]byte{codecVersion}, uint64(e.LeaseEpoch))
	b = appendString(b, e.SourceTopic)
	b = append(b, e.SourceTopicID[:]...)
	b = append(b, e.TargetTopicID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Position))
	b = binary.BigEndian.AppendUint64(b, uint64(e.TargetNext))
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
		blocks[hash] = append([]byte{codecVersion}, block...)
		b = binary.BigEndian.AppendUint64(b, hash)
	}
	return append(b, body[full*blockBytes:]...), blocks, nil
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b) //nolint:errcheck // a hash's Write never fails
	return h.Sum64()
}

func parseHead(b []byte) (head, error) {
	d := decoder{buf: b}
	d.version()
	h := head{leaseEpoch: int64(d.uint64()), source: d.string()}
	copy(h.sourceID[:], d.take(16))
	copy(h.targetID[:], d.take(16))
	h.position, h.targetNext = int64(d.uint64()), int64(d.uint64())
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
	if d.err == nil && (h.position < 0 || h.targetNext < -1) {
		d.err = fmt.Errorf("%w: position %d, target next %d", ErrCodec, h.position, h.targetNext)
	}
	return h, d.err
}

// entry joins a head with its blocks. A map of which a block is missing or altered is given up, and complete is false:
// the position stands by itself.
func (h head) entry(blocks map[uint64][]byte) (e Entry, complete bool) {
	e = Entry{
		SourceTopic: h.source, SourceTopicID: h.sourceID, TargetTopicID: h.targetID, Position: h.position, TargetNext: h.targetNext,
		LeaseEpoch: h.leaseEpoch,
	}
	if len(h.prefix) == 0 {
		return e, len(h.blocks) == 0 && len(h.rest) == 0
	}
	data := append([]byte(nil), h.prefix...)
	for _, hash := range h.blocks {
		b, ok := blocks[hash]
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
	d.version()
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

func (d *decoder) version() {
	v := d.byte()
	switch {
	case d.err != nil || v == codecVersion:
	case v > codecVersion:
		d.err = fmt.Errorf("%w: version %d, this program reads up to %d", ErrVersion, v, codecVersion)
	default:
		d.err = fmt.Errorf("%w: version %d", ErrCodec, v)
	}
}

package batch_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
)

const (
	appendTime = 1 << 3
	txn        = 1 << 4
	control    = 1 << 5
	horizon    = 1 << 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rec is one record of a test batch.
type rec struct {
	delta int32
	ts    int64
	key   []byte
	value []byte
	hdrs  []kmsg.Header
}

// spec describes a batch; it is encoded by the protocol library, not by the code under test.
type spec struct {
	base      int64
	last      int32 // default: the last record's delta
	attrs     int16
	codec     int8
	baseTime  int64
	maxTime   int64
	pid       int64
	epoch     int16
	sequence  int32
	records   []rec
	leader    int32
	overCount int32 // added to the record count
}

// records makes n records of values with size bytes that compress to about a half.
func records(n, size int) []rec {
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	rs := make([]rec, n)
	for i := range rs {
		v := make([]byte, size)
		for k := range v[:size/2] {
			v[k] = byte(rnd.Uint32())
		}
		rs[i] = rec{delta: int32(i), ts: 1_700_000_000_000 + int64(i), key: binary.BigEndian.AppendUint32(nil, uint32(i)), value: v}
	}
	return rs
}

func codecs(tb testing.TB) *codec.Codec {
	tb.Helper()
	c, err := codec.New()
	require.NoError(tb, err)
	return c
}

func (s spec) make(tb testing.TB) batch.Batch {
	tb.Helper()
	if s.baseTime == 0 && len(s.records) > 0 {
		s.baseTime = s.records[0].ts
	}
	var raw []byte
	last := s.last
	for _, r := range s.records {
		k := kmsg.Record{TimestampDelta64: r.ts - s.baseTime, OffsetDelta: r.delta, Key: r.key, Value: r.value, Headers: r.hdrs}
		body := k.AppendTo(nil)[1:] // the length is zero, one byte
		raw = binary.AppendVarint(raw, int64(len(body)))
		raw = append(raw, body...)
		s.maxTime = max(s.maxTime, r.ts)
		if s.last == 0 {
			last = max(last, r.delta)
		}
	}
	if s.codec > 0 {
		packed, err := codecs(tb).Compress(nil, raw, s.codec)
		require.NoError(tb, err)
		raw = packed
	}
	b := kmsg.RecordBatch{
		FirstOffset: s.base, Length: int32(49 + len(raw)), PartitionLeaderEpoch: s.leader, Magic: 2,
		Attributes: s.attrs | int16(s.codec), LastOffsetDelta: last, FirstTimestamp: s.baseTime, MaxTimestamp: s.maxTime,
		ProducerID: s.pid, ProducerEpoch: s.epoch, FirstSequence: s.sequence, NumRecords: int32(len(s.records)) + s.overCount, Records: raw,
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	parsed, err := batch.Parse(out)
	require.NoError(tb, err)
	return parsed
}

// read decodes batches with the client library, which also verifies checksums.
func read(tb testing.TB, bs ...batch.Batch) []*kgo.Record {
	tb.Helper()
	var all []*kgo.Record
	for _, b := range bs {
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = b
		p.HighWatermark = 1 << 40
		fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", KeepControlRecords: true}, &p, kgo.DefaultDecompressor(), nil)
		require.NoError(tb, fp.Err)
		require.Len(tb, fp.Records, int(b.Count()))
		all = append(all, fp.Records...)
	}
	return all
}

// marker makes a transaction marker.
func marker(tb testing.TB, base, pid int64, commit bool) batch.Batch {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	return spec{base: base, attrs: control | txn, pid: pid, records: []rec{{ts: 1, key: key, value: make([]byte, 6)}}}.make(tb)
}

func join(bs ...batch.Batch) []byte {
	var out []byte
	for _, b := range bs {
		out = append(out, b...)
	}
	return out
}

// putHeader sets what a fuzzer chose, and the checksum.
func putHeader(b []byte, attrs uint8, count, last int32) {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[22] = attrs
	binary.BigEndian.PutUint32(b[23:], uint32(last))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}

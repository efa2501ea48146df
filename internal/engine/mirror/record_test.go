package mirror

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func header(key string, value []byte) []byte {
	b := binary.AppendVarint(nil, int64(len(key)))
	return appendBytes(append(b, key...), value)
}

func body(key, value []byte, headers ...[]byte) []byte {
	b := appendBytes(appendBytes(nil, key), value)
	b = binary.AppendVarint(b, int64(len(headers)))
	for _, h := range headers {
		b = append(b, h...)
	}
	return b
}

func samples(codec int8) []record {
	rs := []record{
		{ts: 981173106789, body: body(nil, nil)},
		{ts: -1, body: body([]byte{}, []byte{})},
		{ts: 1_700_000_000_000_000, body: body([]byte{0, 255, 128}, make([]byte, 3000), header("a", nil), header("a", []byte{}), header("é", []byte{255}))},
		{ts: 0, body: body(nil, []byte("v"))},
	}
	for i := range rs {
		rs[i].codec = codec
		rs[i].offset = int64(i)
	}
	return rs
}

func fetched(batches ...[]byte) *kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	for _, b := range batches {
		p.RecordBatches = append(p.RecordBatches, b...)
	}
	return &p
}

// at gives a batch a base offset, as the broker does.
func at(b []byte, base int64) []byte {
	out := append([]byte(nil), b...)
	binary.BigEndian.PutUint64(out, uint64(base))
	return out
}

// change alters what stands under the checksum and repairs it.
func change(b []byte, f func(b []byte)) []byte {
	out := append([]byte(nil), b...)
	f(out)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return out
}

func attrs(b []byte, set uint16) []byte {
	return change(b, func(b []byte) { binary.BigEndian.PutUint16(b[21:], binary.BigEndian.Uint16(b[21:])|set) })
}

func coders(tb testing.TB) (*codecs, kgo.Decompressor) {
	tb.Helper()
	c, err := newCodecs()
	require.NoError(tb, err)
	return &c, kgo.DefaultDecompressor()
}

func TestRecordsSurviveEncodingWithEveryCodec(t *testing.T) {
	t.Parallel()
	c, d := coders(t)
	for codec := range int8(5) {
		b := c.encode(samples(codec), identity{pid: 7, epoch: 1, seq: 3})
		require.EqualValues(t, codec, b[22]&attrCodec)
		got, err := decode(TP{"t", 0}, fetched(at(b, 40)), 40, true, d)
		require.NoError(t, err)
		require.EqualValues(t, 44, got.upTo)
		want := samples(codec)
		for i := range want {
			want[i].offset += 40
		}
		require.Equal(t, want, got.records)

		// kgo reads the same.
		fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: 40, Topic: "t"}, fetched(at(b, 40)), d, nil)
		require.NoError(t, fp.Err)
		require.EqualValues(t, 44, next)
		require.Nil(t, fp.Records[0].Key)
		require.Nil(t, fp.Records[0].Value)
		require.NotNil(t, fp.Records[1].Value)
		require.Equal(t, []kgo.RecordHeader{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "é", Value: []byte{255}}}, fp.Records[2].Headers)
		require.Equal(t, time.UnixMilli(981173106789), fp.Records[0].Timestamp)
	}
}

func TestDecodePassesMarkersAbortedBatchesAndHoles(t *testing.T) {
	t.Parallel()
	c, d := coders(t)
	batch := func(base int64, n int, pid int64, set uint16) []byte {
		return attrs(at(c.encode(samples(0)[:n], identity{pid: pid}), base), set)
	}
	marker := func(base, pid int64, kind byte) []byte {
		rs := []record{{body: body([]byte{0, 0, 0, kind}, make([]byte, 6))}}
		return attrs(at(c.encode(rs, identity{pid: pid}), base), attrTxn|attrControl)
	}
	emptied := change(batch(30, 1, -1, 0), func(b []byte) {
		binary.BigEndian.PutUint32(b[23:], 9) // last offset 39
		binary.BigEndian.PutUint32(b[57:], 0)
	})[:batchHeaderLen]
	binary.BigEndian.PutUint32(emptied[8:], batchHeaderLen-12)
	emptied = change(emptied, func([]byte) {})
	p := fetched(
		batch(10, 2, 5, attrTxn), batch(12, 2, 6, attrTxn), marker(14, 5, 0), batch(15, 1, 5, attrTxn), marker(16, 5, 1), marker(17, 6, 1),
		batch(20, 4, -1, 0), emptied, batch(40, 4, -1, 0)[:90],
	)
	p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 5, FirstOffset: 10}}
	offsets := func(d decoded) (all []int64) {
		for _, r := range d.records {
			all = append(all, r.offset)
		}
		return all
	}
	got, err := decode(TP{}, p, 11, true, d)
	require.NoError(t, err)
	require.Equal(t, []int64{12, 13, 15, 20, 21, 22, 23}, offsets(got))
	require.EqualValues(t, 40, got.upTo, "behind the emptied batch, before the cut one")
	got, err = decode(TP{}, p, 11, false, d)
	require.NoError(t, err)
	require.Equal(t, []int64{11, 12, 13, 15, 20, 21, 22, 23}, offsets(got))
}

func TestDecodeTakesTheAppendTimeOfLogAppendTimeTopics(t *testing.T) {
	t.Parallel()
	c, d := coders(t)
	b := change(attrs(c.encode(samples(0), identity{}), attrAppendTime), func(b []byte) { binary.BigEndian.PutUint64(b[35:], 777) })
	got, err := decode(TP{}, fetched(b), 0, true, d)
	require.NoError(t, err)
	for _, r := range got.records {
		require.EqualValues(t, 777, r.ts)
	}
}

func TestDecodeReportsDamageAtTheBatchConcerned(t *testing.T) {
	t.Parallel()
	c, d := coders(t)
	good := c.encode(samples(1), identity{})
	for name, bad := range map[string][]byte{
		"a flipped bit":       func() []byte { b := at(good, 4); b[len(b)-1] ^= 1; return b }(),
		"an unknown magic":    func() []byte { b := at(good, 4); b[16] = 9; return b }(),
		"too many records":    change(at(good, 4), func(b []byte) { binary.BigEndian.PutUint32(b[57:], 99) }),
		"a negative count":    change(at(good, 4), func(b []byte) { binary.BigEndian.PutUint32(b[57:], 1<<31) }),
		"an impossible codec": change(at(good, 4), func(b []byte) { b[22] = 7 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(TP{}, fetched(good, bad), 0, true, d)
			require.ErrorIs(t, err, errCorrupt)
			require.EqualValues(t, 4, got.upTo)
			require.Len(t, got.records, 4)
		})
	}
}

func TestSpansJoinWhatIsConsecutive(t *testing.T) {
	t.Parallel()
	rs := []record{{offset: 5, ts: 1, body: make([]byte, 2)}, {offset: 6, ts: 2, body: make([]byte, 3)}, {offset: 9, ts: 3}}
	spans, bytes := spansOf(rs, 100)
	require.EqualValues(t, 5, bytes)
	require.Equal(t, []Span{
		{Source: 5, Target: 100, Count: 2, Bytes: 5, FirstTimestamp: 1, LastTimestamp: 2},
		{Source: 9, Target: 102, Count: 1, FirstTimestamp: 3, LastTimestamp: 3},
	}, spans)
}

func FuzzDecodeNeverPanics(f *testing.F) {
	c, d := coders(f)
	for codec := range int8(5) {
		f.Add(c.encode(samples(codec), identity{}), codec == 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) > batchHeaderLen && b[16] == 2 {
			b = change(b, func([]byte) {})
		}
		p := fetched(b)
		p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{}}
		got, err := decode(TP{"t", 0}, p, 0, true, d)
		if err == nil && len(got.records) > 0 {
			again, err := decode(TP{"t", 0}, fetched(c.encode(got.records, identity{})), 0, true, d)
			require.NoError(t, err)
			require.Len(t, again.records, len(got.records), fmt.Sprint(got.records))
		}
	})
}

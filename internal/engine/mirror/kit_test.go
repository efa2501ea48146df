package mirror

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
)

const (
	attrAppendTime = 1 << 3
	attrTxn        = 1 << 4
	attrControl    = 1 << 5
)

// record is one record of a made-up source; body is what stands behind the offset delta in a batch.
type record struct {
	offset, ts int64
	body       []byte
	codec      int8
}

func header(key string, value []byte) []byte {
	b := binary.AppendVarint(nil, int64(len(key)))
	return appendBytes(append(b, key...), value)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
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

// encoded is one batch of records, at base offset 0.
func encoded(tb testing.TB, records []record, id identity) []byte {
	tb.Helper()
	c, err := codec.New()
	require.NoError(tb, err)
	w := batch.NewBuilder(c)
	w.Reset(batch.Options{})
	for i, r := range records {
		require.NoError(tb, w.AddRecord(int64(i), r.ts, r.body, r.codec))
	}
	out, built, err := w.Build(nil)
	require.NoError(tb, err)
	require.Len(tb, built, 1)
	batch.Patch(built[0].Batch, batch.Producer{ID: id.pid, Epoch: id.epoch, Sequence: id.seq})
	return out
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
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func attrs(b []byte, set uint16) []byte {
	return change(b, func(b []byte) { binary.BigEndian.PutUint16(b[21:], binary.BigEndian.Uint16(b[21:])|set) })
}

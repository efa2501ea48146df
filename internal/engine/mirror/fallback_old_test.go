package mirror

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// No broker writes the formats before v2 any more, and topics that are old enough still have segments of them. So these
// segments are made by hand.

// old is a message of format 0 or 1.
type old struct {
	magic      byte
	attrs      byte // 1: its value is a gzip of messages, 3: LZ4; 8: with the time of its storing
	offset, ts int64
	key, value []byte
}

func (m old) encode() []byte {
	nullable := func(dst, b []byte) []byte {
		if b == nil {
			return append(dst, 0xff, 0xff, 0xff, 0xff)
		}
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
	}
	body := []byte{m.magic, m.attrs}
	if m.magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(m.ts))
	}
	body = nullable(nullable(body, m.key), m.value)
	out := binary.BigEndian.AppendUint64(nil, uint64(m.offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body)), body...)
}

// wrapped compresses messages of consecutive offsets into one, by gzip or LZ4. Offsets inside are absolute in format 0, and
// count from 0 in format 1; the outer one is the last one's.
func wrapped(t *testing.T, attrs byte, ts int64, inner ...old) old {
	t.Helper()
	var packed bytes.Buffer
	last := inner[len(inner)-1]
	var w io.WriteCloser = gzip.NewWriter(&packed)
	if attrs&7 == 3 {
		l := lz4.NewWriter(&packed)
		require.NoError(t, l.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1)))
		w = l
	}
	for i, m := range inner {
		if m.magic == 1 {
			m.offset = int64(i)
		}
		_, err := w.Write(m.encode())
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	value := packed.Bytes()
	if attrs&7 == 3 && last.magic == 0 {
		// As clients did: the checksum of the frame's header begins with the frame's magic number.
		require.Equal(t, value[6], byte(shortXXH32(value[4:6])>>8), "the checksum of the standard")
		value[6] = byte(shortXXH32(value[:6]) >> 8)
	}
	return old{magic: last.magic, attrs: attrs, offset: last.offset, ts: ts, value: value}
}

// oldSegment are messages of both formats, plain and compressed, with every kind of timestamp, and the records in it.
func oldSegment(t *testing.T) (segment []byte, want []kafkatest.Record) {
	t.Helper()
	offset := int64(0)
	messages := func(magic byte, n int, ts int64) (all []old) {
		for i := range n {
			m := old{magic: magic, offset: offset, ts: ts + int64(i), key: fmt.Append(nil, "key-", offset), value: fmt.Append(nil, "value-", offset)}
			switch i {
			case 1:
				m.key = nil
			case 2:
				m.value = nil
			case 3:
				m.key, m.value = []byte{}, []byte{}
			}
			offset++
			all = append(all, m)
		}
		return all
	}
	note := func(all []old, ts func(old) int64) {
		for _, m := range all {
			want = append(want, kafkatest.Record{Offset: m.offset, Key: m.key, Value: m.value, Timestamp: time.UnixMilli(ts(m))})
		}
	}
	write := func(all ...old) {
		for _, m := range all {
			segment = append(segment, m.encode()...)
		}
	}
	own, none := func(m old) int64 { return m.ts }, func(old) int64 { return -1 }
	const time0, stored = 1_400_000_000_000, 1_450_000_000_000

	plain0 := messages(0, 5, 0)
	write(plain0...)
	note(plain0, none)
	packed0 := messages(0, 6, 0)
	write(wrapped(t, 1, 0, packed0...))
	note(packed0, none)
	lz40 := messages(0, 5, 0)
	write(wrapped(t, 3, 0, lz40...))
	note(lz40, none)
	plain1 := messages(1, 5, time0)
	write(plain1...)
	note(plain1, own)
	packed1 := messages(1, 7, time0+1000)
	write(wrapped(t, 1, time0+1006, packed1...))
	note(packed1, own)
	lz41 := messages(1, 5, time0+1500)
	write(wrapped(t, 3, time0+1504, lz41...))
	note(lz41, own)
	offset += 10 // the cleaner's work
	appended := messages(1, 4, time0+2000)
	write(wrapped(t, 1|8, stored, appended...))
	note(appended, func(old) int64 { return stored })
	return segment, want
}

// plant replaces the log of partition 0 of an empty topic by a segment.
func plant(t *testing.T, c *kafkatest.Cluster, topic string, segment []byte) {
	t.Helper()
	c.Stop(t)
	data := c.Nodes()[0].DataDir()
	// What the broker noted about the log when it stopped is not true any more.
	require.NoError(t, os.Remove(filepath.Join(data, ".kafka_cleanshutdown")))
	folder := filepath.Join(data, topic+"-0")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "partition.metadata" {
			require.NoError(t, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%020d.log", 0)), segment, 0o600))
	c.Restart(t)
}

func TestMessagesOfOldFormatsArriveAsRecords(t *testing.T) {
	t.Parallel()
	for _, version := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			source, target := kafkatest.Start(t, kafkatest.Options{Version: version}), kafkatest.Shared(t, kafkatest.V43)
			topic := kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, source, topic, 1, map[string]string{"retention.ms": "-1"})
			segment, want := oldSegment(t)
			plant(t, source, topic, segment)
			end := logEnds(t, source, topic)[0]
			require.Equal(t, want[len(want)-1].Offset+1, end)
			// Newer records follow.
			produceRaw(t, source, topic, sealed(t, 3, 1000, times(100), nil))
			served := rawEntries(t, source, topic)
			require.Contains(t, served, int8(0), "the broker serves old messages as they are")
			require.Contains(t, served, int8(1))

			c := startCopying(t, source, target, topic, map[string]string{"retention.ms": "-1"}, nil)
			c.until(source, topic)
			got := kafkatest.ReadAll(t, target, remote(topic), kafkatest.ReadCommitted)
			kafkatest.RequireEqual(t, map[int32][]kafkatest.Record{0: want}, map[int32][]kafkatest.Record{0: got[0][:len(want)]})
			require.Len(t, got[0], len(want)+100)
			for i := range 100 {
				want = append(want, kafkatest.Record{Offset: end + int64(i)})
			}
			c.requireSpans(map[int32][]kafkatest.Record{0: want}, got, topic)
			v := c.verdicts()
			require.Equal(t, 5+1+1+5+1+1+1, v["fallback old_format"], "%v", v)
			requireOneProducer(t, rawBatches(t, target, remote(topic)))

			// A start inside a compressed one leaves out what comes before.
			for _, start := range []int64{3, 8, 13, 24, 30, 40, 46} {
				from := fmt.Sprint("from-", start)
				kafkatest.CreateTopic(t, target, from+topic, 1, map[string]string{"retention.ms": "-1"})
				b := run(t, batches, plain("source", source.Bootstrap()), plain("target", target.Bootstrap()), nil)
				b.path.Assign([]Assignment{{Source: TP{topic, 0}, Target: TP{from + topic, 0}, Start: start}})
				b.until(source, topic)
				var rest []kafkatest.Record
				for i, r := range want {
					if r.Offset >= start {
						r.Key, r.Value, r.Timestamp = got[0][i].Key, got[0][i].Value, got[0][i].Timestamp
						rest = append(rest, r)
					}
				}
				b.requireSpans(map[int32][]kafkatest.Record{0: rest}, kafkatest.ReadAll(t, target, from+topic, kafkatest.ReadCommitted), topic)
				kafkatest.RequireEqual(t, map[int32][]kafkatest.Record{0: rest}, kafkatest.ReadAll(t, target, from+topic, kafkatest.ReadCommitted))
				b.end()
			}
		})
	}
}

// rawEntries counts what a fetch from the first offset on holds, by format.
func rawEntries(t *testing.T, c *kafkatest.Cluster, topic string) map[int8]int {
	t.Helper()
	client := kafkatest.Client(t, c)
	md := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	md.Topics = append(md.Topics, mt)
	meta, err := md.RequestWith(t.Context(), client)
	require.NoError(t, err)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 1 << 20
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID, rp.PartitionMaxBytes = topic, meta.Topics[0].TopicID, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := client.Broker(int(meta.Topics[0].Partitions[0].Leader)).Request(t.Context(), req)
	require.NoError(t, err)
	resp, ok := answer.(*kmsg.FetchResponse)
	require.True(t, ok)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	all := map[int8]int{}
	s := batch.Slice(resp.Topics[0].Partitions[0].RecordBatches)
	for s.Next() {
		all[s.Magic()]++
	}
	require.NoError(t, s.Err())
	return all
}

package dataset

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func set(codec Codec) Set {
	return Set{
		Topic: "orders", Partitions: 5, RecordBytes: 1024, Codec: codec, BatchBytes: 64 << 10, PerPartition: 777,
		Begin: time.UnixMilli(1_700_000_000_000),
	}
}

func fake(t *testing.T) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// ratio is what the codecs make of the records.
var ratio = map[Codec]float64{None: 1, LZ4: 2.1, Zstd: 2.5}

func TestWhatIsLoadedIsFoundAgain(t *testing.T) {
	t.Parallel()
	for _, codec := range []Codec{None, LZ4, Zstd} {
		bootstrap, s := fake(t), set(codec)
		loaded, err := Load(t.Context(), bootstrap, s)
		require.NoError(t, err)
		require.Equal(t, s.Records(), loaded.Records)
		checked, err := Check(t.Context(), bootstrap, s.Topic, s)
		require.NoError(t, err)
		require.True(t, checked.Good(), checked)
		require.Equal(t, s.Records(), checked.Records)
		require.InDelta(t, ratio[codec], float64(loaded.RawBytes)/float64(loaded.BatchBytes), 0.2, codec)
	}
}

func TestRecordsOfAllSizesCompressAlike(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 1024, 10240} {
		for _, codec := range []Codec{LZ4, Zstd} {
			s := set(codec)
			s.RecordBytes, s.BatchBytes, s.PerPartition = size, 256<<10, 1<<20
			b, err := newBatcher(s)
			require.NoError(t, err)
			got := b.next(0, 0)
			require.InDelta(t, ratio[codec], float64(got.rawBytes)/float64(len(got.bytes)), 0.6, "%d B %s", size, codec)
		}
	}
}

func TestBatchesAreAsLargeAsTheSetSays(t *testing.T) {
	t.Parallel()
	for _, codec := range []Codec{None, LZ4, Zstd} {
		for record, large := range map[int]int{100: 64 << 10, 1024: 256 << 10, 10240: 256 << 10} {
			s := set(codec)
			s.RecordBytes, s.BatchBytes, s.PerPartition = record, large, 1<<20
			b, err := newBatcher(s)
			require.NoError(t, err)
			for _, got := range []built{b.next(0, 0), b.next(3, 5000)} {
				require.GreaterOrEqual(t, len(got.bytes), large, "%d B %s", record, codec)
				require.LessOrEqual(t, len(got.bytes), large*5/4, "%d B %s", record, codec)
			}
			s.BatchBytes, s.BatchAtMost = 16<<10, true
			b, err = newBatcher(s)
			require.NoError(t, err)
			for _, got := range []built{b.next(0, 0), b.next(3, 5000)} {
				require.LessOrEqual(t, len(got.bytes), s.BatchBytes, "%d B %s", record, codec)
				if record < 10240 { // of those one or two make a batch
					require.GreaterOrEqual(t, len(got.bytes), s.BatchBytes*4/5, "%d B %s", record, codec)
				}
			}
		}
	}
	s := set(None)
	s.BatchBytes, s.BatchAtMost, s.RecordBytes = 16<<10, true, 20<<10
	b, err := newBatcher(s)
	require.NoError(t, err)
	require.Equal(t, int64(1), b.next(0, 0).records, "a record larger than a batch gets one of its own")
}

func TestASizedSetHasAboutTheBytesAskedFor(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 1024, 10240} {
		s := set(None)
		s.RecordBytes = size
		s = s.Sized(50_000_000)
		b, err := newBatcher(s)
		require.NoError(t, err)
		got := b.next(0, 0)
		require.InDelta(t, 50e6, float64(got.rawBytes)/float64(got.records)*float64(s.Records()), 1.5e6)
	}
}

// records are those of a partition of the set, as a consumer gets them.
func records(s Set, partition int32) []*kgo.Record {
	var out []*kgo.Record
	for seq := range s.PerPartition {
		key, value := s.record(nil, partition, seq)
		r := &kgo.Record{Partition: partition, Offset: seq, Key: key[:], Value: value, Timestamp: time.UnixMilli(s.timestamp(seq))}
		if hasHeader(seq) {
			r.Headers = []kgo.RecordHeader{{Key: headerName, Value: []byte(headerValue)}}
		}
		out = append(out, r)
	}
	return out
}

func TestFaultsOfACopyAreCounted(t *testing.T) {
	t.Parallel()
	s := set(None)
	s.PerPartition = 50
	check := func(change func([]*kgo.Record) []*kgo.Record) Checked {
		c := newChecker(s)
		for _, r := range change(records(s, 3)) {
			c.record(r)
		}
		return c.finish()
	}
	same := func(r []*kgo.Record) []*kgo.Record { return r }
	require.Equal(t, Checked{Records: 50}, check(same))
	require.Equal(t, Checked{Records: 20}, check(func(r []*kgo.Record) []*kgo.Record { return r[:20] }), "a copy may end early")

	got := check(func(r []*kgo.Record) []*kgo.Record { return append(r[:10:10], r[13:]...) })
	require.EqualValues(t, 3, got.Missing)
	require.Contains(t, got.First, "record 13 where 10 was expected")
	require.False(t, got.Good())

	got = check(func(r []*kgo.Record) []*kgo.Record { return append(r[:10:10], r[8:]...) })
	require.EqualValues(t, 2, got.Duplicates)
	require.Zero(t, got.Missing)

	got = check(func(r []*kgo.Record) []*kgo.Record { r[10], r[11] = r[11], r[10]; return r })
	require.EqualValues(t, 1, got.Disordered)
	require.Zero(t, got.Missing+got.Duplicates)

	for what, change := range map[string]func(r *kgo.Record){
		"value":     func(r *kgo.Record) { r.Value = append([]byte{'x'}, r.Value[1:]...) },
		"timestamp": func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) },
		"header":    func(r *kgo.Record) { r.Headers = nil },
	} {
		got = check(func(r []*kgo.Record) []*kgo.Record { change(r[16]); return r })
		require.EqualValues(t, 1, got.Different, what)
		require.Contains(t, got.First, what)
	}
	got = check(func(r []*kgo.Record) []*kgo.Record { r[5].Partition = 2; return r })
	require.EqualValues(t, 1, got.Different)
}

func TestAMissingTopicHasNoEnds(t *testing.T) {
	t.Parallel()
	cl, err := Client(fake(t))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := Ends(t.Context(), cl, map[string]int32{"none": 2})
	require.NoError(t, err)
	require.Equal(t, map[string][]int64{"none": {Missing, Missing}}, ends)
	require.Zero(t, Sum(ends))
}

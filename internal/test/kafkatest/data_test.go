package kafkatest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

var versions = []kafkaproc.Version{V39, V43}

func onBothVersions(t *testing.T, test func(t *testing.T, c *Cluster)) {
	t.Parallel()
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			test(t, Shared(t, v))
		})
	}
}

func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	onBothVersions(t, func(t *testing.T, c *Cluster) {
		a, b := UniqueName(t), UniqueName(t)
		CreateTopic(t, c, a, 3, nil)
		CreateTopic(t, c, b, 3, map[string]string{"compression.type": "zstd"})
		next := Fill(t, c, a, FillOptions{Records: 5000, Partitions: 3, Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}})
		require.EqualValues(t, 5000, next)
		source := ReadAll(t, c, a, ReadCommitted)
		require.Len(t, source, 3)

		var nullKey, emptyKey, nullValue, emptyValue, nullHeader, old int
		var copies []*kgo.Record
		for p := range int32(3) {
			for _, r := range source[p] {
				copies = append(copies, &kgo.Record{Partition: p, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
				switch {
				case r.Key == nil:
					nullKey++
				case len(r.Key) == 0:
					emptyKey++
				}
				switch {
				case r.Value == nil:
					nullValue++
				case len(r.Value) == 0:
					emptyValue++
				}
				if len(r.Headers) > 1 && r.Headers[1].Value == nil {
					nullHeader++
				}
				if r.Timestamp.Before(time.Now().AddDate(-1, 0, 0)) {
					old++
				}
			}
		}
		for _, n := range []int{nullKey, emptyKey, nullValue, emptyValue, nullHeader, old} {
			require.Positive(t, n)
		}
		Produce(t, c, b, copies...)
		RequireEqual(t, source, ReadAll(t, c, b, ReadUncommitted))
		require.Equal(t, Sums(t, c, a, ReadUncommitted), Sums(t, c, b, ReadUncommitted))
		require.EqualValues(t, 5000, Total(Sums(t, c, b, ReadCommitted)))
		require.True(t, Reconcile(IDs(t, c, a, ReadCommitted), IDs(t, c, b, ReadCommitted)).Exact())
	})
}

func TestReadingEndsBehindAbortedAndOpenTransactions(t *testing.T) {
	onBothVersions(t, func(t *testing.T, c *Cluster) {
		topic := UniqueName(t)
		CreateTopic(t, c, topic, 2, nil)
		_, committed := FillTransactions(t, c, topic, FillOptions{Records: 400, Partitions: 2}, 40, 2)
		require.Equal(t, 200, committed)
		require.EqualValues(t, 200, Total(Sums(t, c, topic, ReadCommitted)))
		require.EqualValues(t, 400, Total(Sums(t, c, topic, ReadUncommitted)))

		end := OpenTransaction(t, c, topic, kgo.StringRecord("open"))
		require.EqualValues(t, 200, Total(Sums(t, c, topic, ReadCommitted)))
		require.EqualValues(t, 401, Total(Sums(t, c, topic, ReadUncommitted)))
		end(true)
		require.EqualValues(t, 201, Total(Sums(t, c, topic, ReadCommitted)))
	})
}

func TestACompactedTopicHasGapsAndIsReadToItsEnd(t *testing.T) {
	onBothVersions(t, func(t *testing.T, c *Cluster) {
		topic := UniqueName(t)
		CreateTopic(t, c, topic, 1, CompactedConfigs())
		next := FillCompacted(t, c, topic, FillOptions{Records: 500}, 10)
		all := ReadAll(t, c, topic, ReadCommitted)[0]
		require.Less(t, uint64(len(all)), next)
		require.EqualValues(t, next-1, all[len(all)-1].Offset)
	})
}

func TestCommittedOffsetsAreReadBack(t *testing.T) {
	onBothVersions(t, func(t *testing.T, c *Cluster) {
		topic, group := UniqueName(t), UniqueName(t)
		CreateTopic(t, c, topic, 2, nil)
		Commit(t, c, group, topic, map[int32]int64{0: 5, 1: 0})
		require.Equal(t, map[int32]int64{0: 5, 1: 0}, Committed(t, c, group, topic))
	})
}

func TestDiffNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	base := func() map[int32][]Record {
		return map[int32][]Record{0: {
			{Offset: 0, Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(1)},
			{Offset: 1, Key: []byte{}, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}, Timestamp: time.UnixMilli(2)},
		}}
	}
	cases := []struct {
		name   string
		change func(m map[int32][]Record)
		want   string
	}{
		{"equal", func(map[int32][]Record) {}, ""},
		{"other offsets", func(m map[int32][]Record) { m[0][1].Offset = 9 }, ""},
		{"key", func(m map[int32][]Record) { m[0][0].Key = []byte("K") }, `key "k" became "K"`},
		{"empty key became null", func(m map[int32][]Record) { m[0][1].Key = nil }, `key "" became null`},
		{"null value became empty", func(m map[int32][]Record) { m[0][1].Value = []byte{} }, `value null became ""`},
		{"timestamp", func(m map[int32][]Record) { m[0][0].Timestamp = time.UnixMilli(3) }, "timestamp 1 became 3"},
		{"header value", func(m map[int32][]Record) { m[0][1].Headers[0].Value = nil }, `headers ["h"="x"] became ["h"=null]`},
		{"lost header", func(m map[int32][]Record) { m[0][1].Headers = nil }, `became []`},
		{"missing at the end", func(m map[int32][]Record) { m[0] = m[0][:1] }, "1 records are missing"},
		{"too many", func(m map[int32][]Record) { m[0] = append(m[0], m[0][0]) }, "1 records too many"},
		{"missing partition", func(m map[int32][]Record) { delete(m, 0) }, "in target false"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			target := base()
			tc.change(target)
			got := Diff(base(), target)
			if tc.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tc.want)
			for p := range target {
				require.Equal(t, strings.HasPrefix(tc.name, "missing") || tc.name == "too many", len(target[p]) != len(base()[p]))
			}
		})
	}
}

func TestReconcileCountsLossDuplicatesAndOrder(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		target []uint64
		want   Account
	}{
		{"exact", []uint64{1, 2, 3, 4}, Account{}},
		{"duplicate", []uint64{1, 2, 1, 2, 3, 4}, Account{Duplicate: 2}},
		{"missing", []uint64{1, 3, 4}, Account{Missing: 1}},
		{"reordered", []uint64{1, 3, 2, 4}, Account{Reordered: 1}},
		{"foreign", []uint64{1, 2, 3, 4, 9}, Account{Foreign: 1}},
		{"nothing", nil, Account{Missing: 4}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := Reconcile(map[int32][]uint64{0: {1, 2, 3, 4}}, map[int32][]uint64{0: tc.target})
			require.Equal(t, tc.want.Missing+tc.want.Duplicate+tc.want.Reordered+tc.want.Foreign > 0, len(got.Examples) > 0)
			got.Examples = nil
			tc.want.Records = 4
			require.Equal(t, tc.want, got)
		})
	}
}

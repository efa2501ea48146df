package kafkatest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// differencesShown bounds a report; the rest is counted.
const differencesShown = 20

// Diff compares two topics record by record, in order, per partition: key, value, headers, timestamp; null and empty are
// different. Offsets are not compared. It returns "" when they are equal, else a report that names each difference.
func Diff(source, target map[int32][]Record) string {
	var report []string
	count := 0
	add := func(format string, args ...any) {
		if count++; count <= differencesShown {
			report = append(report, fmt.Sprintf(format, args...))
		}
	}
	partitions := map[int32]bool{}
	for p := range source {
		partitions[p] = true
	}
	for p := range target {
		partitions[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		a, inSource := source[p]
		b, inTarget := target[p]
		if inSource != inTarget {
			add("partition %d: in source %t, in target %t", p, inSource, inTarget)
			continue
		}
		for i := range min(len(a), len(b)) {
			if d := recordDiff(a[i], b[i]); d != "" {
				add("partition %d, record %d (source offset %d, target offset %d): %s", p, i, a[i].Offset, b[i].Offset, d)
			}
		}
		switch {
		case len(a) > len(b):
			add("partition %d: %d records are missing at the end of the target, the first at source offset %d", p, len(a)-len(b), a[len(b)].Offset)
		case len(b) > len(a):
			add("partition %d: %d records too many at the end of the target, the first at target offset %d", p, len(b)-len(a), b[len(a)].Offset)
		}
	}
	if count > differencesShown {
		report = append(report, fmt.Sprintf("and %d more differences", count-differencesShown))
	}
	return strings.Join(report, "\n")
}

// RequireEqual fails the test with Diff's report when two topics are not equal.
func RequireEqual(tb testing.TB, source, target map[int32][]Record) {
	tb.Helper()
	if d := Diff(source, target); d != "" {
		require.FailNow(tb, "the topics are not equal", d)
	}
}

func recordDiff(a, b Record) string {
	var parts []string
	if !sameBytes(a.Key, b.Key) {
		parts = append(parts, fmt.Sprintf("key %s became %s", show(a.Key), show(b.Key)))
	}
	if !sameBytes(a.Value, b.Value) {
		parts = append(parts, fmt.Sprintf("value %s became %s", show(a.Value), show(b.Value)))
	}
	if at, bt := a.Timestamp.UnixMilli(), b.Timestamp.UnixMilli(); at != bt {
		parts = append(parts, fmt.Sprintf("timestamp %d became %d", at, bt))
	}
	same := len(a.Headers) == len(b.Headers)
	for i := 0; same && i < len(a.Headers); i++ {
		same = a.Headers[i].Key == b.Headers[i].Key && sameBytes(a.Headers[i].Value, b.Headers[i].Value)
	}
	if !same {
		parts = append(parts, fmt.Sprintf("headers %s became %s", showHeaders(a), showHeaders(b)))
	}
	return strings.Join(parts, "; ")
}

// sameBytes tells null from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	const most = 40
	switch {
	case b == nil:
		return "null"
	case len(b) > most:
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	default:
		return fmt.Sprintf("%q", b)
	}
}

func showHeaders(r Record) string {
	parts := make([]string, 0, len(r.Headers))
	for _, h := range r.Headers {
		parts = append(parts, fmt.Sprintf("%q=%s", h.Key, show(h.Value)))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// Sum is what a partition holds: the number of its records, and a checksum of their keys, values, headers and timestamps in
// order, with null and empty told apart. Offsets are not part of it.
type Sum struct {
	Records int64
	SHA256  string
}

// Sums reads a topic and returns the Sum of each partition, without keeping records. Two topics are equal when their Sums
// are; where they are not, Diff says why.
func Sums(tb testing.TB, c *Cluster, topic string, isolation Isolation) map[int32]Sum {
	tb.Helper()
	hashes := map[int32]hash.Hash{}
	counts := map[int32]int64{}
	for p := range Partitions(tb, c, topic) {
		hashes[int32(p)] = sha256.New()
	}
	var scratch []byte
	ForEach(tb, c, topic, isolation, func(r Record) {
		counts[r.Partition]++
		scratch = appendRecord(scratch[:0], r)
		// Writing to a hash never fails.
		_, _ = hashes[r.Partition].Write(scratch)
	})
	sums := map[int32]Sum{}
	for p, h := range hashes {
		sums[p] = Sum{Records: counts[p], SHA256: hex.EncodeToString(h.Sum(nil))}
	}
	return sums
}

// Total is the number of records in all partitions.
func Total(sums map[int32]Sum) int64 {
	var n int64
	for _, s := range sums {
		n += s.Records
	}
	return n
}

// appendRecord encodes a record so that different records have different encodings: every part carries its length.
func appendRecord(dst []byte, r Record) []byte {
	part := func(b []byte) {
		if b == nil {
			dst = binary.AppendVarint(dst, -1)
			return
		}
		dst = binary.AppendVarint(dst, int64(len(b)))
		dst = append(dst, b...)
	}
	part(r.Key)
	part(r.Value)
	dst = binary.AppendVarint(dst, r.Timestamp.UnixMilli())
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		part([]byte(h.Key))
		part(h.Value)
	}
	return dst
}

// IDs reads the record ids that Fill and its kin put into the header IDHeader, per partition in order. It fails the test on
// a record without.
func IDs(tb testing.TB, c *Cluster, topic string, isolation Isolation) map[int32][]uint64 {
	tb.Helper()
	ids := map[int32][]uint64{}
	bad := 0
	ForEach(tb, c, topic, isolation, func(r Record) {
		id, ok := recordID(r)
		if !ok {
			bad++
			return
		}
		ids[r.Partition] = append(ids[r.Partition], id)
	})
	require.Zero(tb, bad, "records of %s without an id", topic)
	return ids
}

func recordID(r Record) (uint64, bool) {
	for _, h := range r.Headers {
		if h.Key == IDHeader && len(h.Value) == 8 {
			return binary.BigEndian.Uint64(h.Value), true
		}
	}
	return 0, false
}

// Account compares the ids on a target with those on its source.
type Account struct {
	Records   int // on the source
	Missing   int // on the source only
	Duplicate int // occurrences on the target after the first
	Reordered int // first occurrences that stand before one that precedes them on the source
	Foreign   int // on the target only
	Examples  []string
}

// Exact says that everything is there once, in order, and nothing else.
func (a Account) Exact() bool { return a.Lossless() && a.Duplicate == 0 }

// Lossless says that everything is there in order, and nothing else; some of it perhaps more than once.
func (a Account) Lossless() bool { return a.Missing == 0 && a.Reordered == 0 && a.Foreign == 0 }

// String is a line for the test's output, with the first examples of what is wrong.
func (a Account) String() string {
	line := fmt.Sprintf("%d records: %d missing, %d duplicate, %d reordered, %d foreign", a.Records, a.Missing, a.Duplicate, a.Reordered, a.Foreign)
	if len(a.Examples) > 0 {
		line += "; " + strings.Join(a.Examples[:min(3, len(a.Examples))], "; ")
	}
	return line
}

// Reconcile compares ids per partition. Ids must be unique on the source.
func Reconcile(source, target map[int32][]uint64) Account {
	var a Account
	example := func(format string, args ...any) {
		if len(a.Examples) < differencesShown {
			a.Examples = append(a.Examples, fmt.Sprintf(format, args...))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(source)) {
		a.Records += len(source[p])
		place := make(map[uint64]int, len(source[p]))
		for i, id := range source[p] {
			place[id] = i
		}
		seen := make([]bool, len(source[p]))
		highest := -1
		for i, id := range target[p] {
			at, known := place[id]
			switch {
			case !known:
				a.Foreign++
				example("partition %d: record %d of the target has the foreign id %d", p, i, id)
			case seen[at]:
				a.Duplicate++
				example("partition %d: id %d again as record %d of the target", p, id, i)
			default:
				seen[at] = true
				if at < highest {
					a.Reordered++
					example("partition %d: id %d stands after id %d on the target, before it on the source", p, id, source[p][highest])
				}
				highest = max(highest, at)
			}
		}
		for i, ok := range seen {
			if !ok {
				a.Missing++
				example("partition %d: id %d, record %d of the source, is missing", p, source[p][i], i)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(target)) {
		if _, ok := source[p]; !ok && len(target[p]) > 0 {
			a.Foreign += len(target[p])
			example("partition %d has records on the target only", p)
		}
	}
	return a
}

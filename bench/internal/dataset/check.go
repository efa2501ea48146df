package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Checked is what a topic holds compared with the set.
type Checked struct {
	Records int64 `json:"records"` // read
	// Missing records lie before the last record that was found; those behind it are not counted.
	Missing    int64 `json:"missing"`
	Duplicates int64 `json:"duplicates"`
	Disordered int64 `json:"disordered"` // came after a later one, for the first time
	Different  int64 `json:"different"`  // key, value, headers or timestamp
	// First names the first fault.
	First string `json:"first,omitempty"`
}

// Good says that each record was there once, in order and unchanged.
func (c Checked) Good() bool {
	return c.Missing == 0 && c.Duplicates == 0 && c.Disordered == 0 && c.Different == 0
}

func (c *Checked) fault(format string, args ...any) {
	if c.First == "" {
		c.First = fmt.Sprintf(format, args...)
	}
}

// Check reads topic up to its present ends and compares each partition with the beginning of the set's: a copy that was
// stopped half way is good, and Records tells how far it came.
func Check(ctx context.Context, bootstrap, topic string, set Set) (Checked, error) {
	admin, err := Client(bootstrap)
	if err != nil {
		return Checked{}, err
	}
	defer admin.Close()
	ends, err := Ends(ctx, admin, map[string]int32{topic: set.Partitions})
	if err != nil {
		return Checked{}, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("mirrorbench-check"), kgo.DisableClientMetrics())
	if err != nil {
		return Checked{}, err
	}
	defer cl.Close()
	left, from := map[int32]int64{}, map[int32]kgo.Offset{}
	for p, end := range ends[topic] {
		if end > 0 {
			left[int32(p)], from[int32(p)] = end, kgo.NewOffset().At(0)
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	c := newChecker(set)
	for len(left) > 0 {
		// A partition whose last offsets are markers never gives a record at its end; nothing here writes markers.
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err0(); err != nil {
			return c.out, fmt.Errorf("read %s: %w, with %d partitions not read to their ends", topic, err, len(left))
		}
		for _, e := range fetches.Errors() {
			return c.out, fmt.Errorf("read %s partition %d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, reading := left[r.Partition]
			if !reading || r.Offset >= end {
				return
			}
			c.record(r)
			if r.Offset == end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return c.finish(), nil
}

// checker compares records as they come, partition by partition in order.
type checker struct {
	set     Set
	out     Checked
	next    map[int32]int64 // sequence number expected
	skipped map[int32]map[int64]struct{}
	value   []byte
}

func newChecker(set Set) *checker {
	return &checker{set: set, next: map[int32]int64{}, skipped: map[int32]map[int64]struct{}{}}
}

func (c *checker) record(r *kgo.Record) {
	c.out.Records++
	if len(r.Key) != keyBytes {
		c.out.Different++
		c.out.fault("partition %d offset %d: the key has %d bytes", r.Partition, r.Offset, len(r.Key))
		return
	}
	id := binary.BigEndian.Uint64(r.Key)
	partition, seq := int32(id>>48), int64(id&(1<<48-1))
	if partition != r.Partition || seq >= c.set.PerPartition {
		c.out.Different++
		c.out.fault("partition %d offset %d: holds record %d of partition %d", r.Partition, r.Offset, seq, partition)
		return
	}
	want := c.next[partition]
	switch {
	case seq > want:
		if c.skipped[partition] == nil {
			c.skipped[partition] = map[int64]struct{}{}
		}
		for s := want; s < seq; s++ {
			c.skipped[partition][s] = struct{}{}
		}
		c.out.fault("partition %d offset %d: record %d where %d was expected", partition, r.Offset, seq, want)
	case seq < want:
		c.out.fault("partition %d offset %d: record %d again or late, where %d was expected", partition, r.Offset, seq, want)
		if _, late := c.skipped[partition][seq]; late {
			delete(c.skipped[partition], seq)
			c.out.Disordered++
		} else {
			c.out.Duplicates++
		}
	}
	c.next[partition] = max(want, seq+1)
	if what := c.differ(r, partition, seq); what != "" {
		c.out.Different++
		c.out.fault("partition %d offset %d: the %s of record %d is another", partition, r.Offset, what, seq)
	}
}

func (c *checker) differ(r *kgo.Record, partition int32, seq int64) string {
	_, c.value = c.set.record(c.value[:0], partition, seq)
	switch {
	case !bytes.Equal(c.value, r.Value):
		return "value"
	case r.Timestamp.UnixMilli() != c.set.timestamp(seq):
		return "timestamp"
	case !hasHeader(seq) && len(r.Headers) != 0,
		hasHeader(seq) && (len(r.Headers) != 1 || r.Headers[0].Key != headerName || string(r.Headers[0].Value) != headerValue):
		return "header"
	}
	return ""
}

func (c *checker) finish() Checked {
	for _, seqs := range c.skipped {
		c.out.Missing += int64(len(seqs))
	}
	return c.out
}

package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Count prints how many offsets a topic's partitions span.
type Count struct {
	Bootstrap string `required:""`
	Topic     string `required:""`
}

// Run prints the sum of end minus start offsets.
func (c *Count) Run(ctx context.Context) error {
	cl, err := client(c.Bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	n, err := count(ctx, kadm.NewClient(cl), c.Topic)
	if err != nil {
		return err
	}
	fmt.Println(n)
	return nil
}

// Wait waits until a topic holds a number of records.
type Wait struct {
	Bootstrap string        `required:""`
	Topic     string        `required:""`
	Records   int64         `required:""`
	Timeout   time.Duration `default:"60s"`
}

// Run prints a progress line and fails after Timeout.
func (c *Wait) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cl, err := client(c.Bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	begin, shown, rewind := time.Now(), time.Time{}, ""
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		rewind = "\r" // a progress line only where somebody watches it move
	}
	for {
		n, err := count(ctx, adm, c.Topic)
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("count %s: %w", c.Topic, err)
		}
		if n >= c.Records {
			fmt.Printf("%s   %s: %d of %d records on the target after %.1f s\n", rewind, c.Topic, n, c.Records, time.Since(begin).Seconds())
			return nil
		}
		if rewind != "" && time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Printf("%s   %s: %d of %d records on the target", rewind, c.Topic, n, c.Records)
		}
		select {
		case <-ctx.Done():
			fmt.Println()
			return fmt.Errorf("%s holds %d of %d records after %s", c.Topic, n, c.Records, c.Timeout)
		case <-tick.C:
		}
	}
}

// Compare reads a topic and its copy and compares them record by record.
type Compare struct {
	Source string `required:"" help:"Bootstrap server of the source."`
	Target string `required:"" help:"Bootstrap server of the target."`
	Topic  string `required:""`
	Remote string `required:"" help:"Name of the copy on the target."`
}

// Run fails at the first difference of a partition, naming it.
func (c *Compare) Run(ctx context.Context) error {
	want, err := readAll(ctx, c.Source, c.Topic)
	if err != nil {
		return err
	}
	got, err := readAll(ctx, c.Target, c.Remote)
	if err != nil {
		return err
	}
	if len(want) != len(got) {
		return fmt.Errorf("%d partitions on the source, %d on the target", len(want), len(got))
	}
	total := 0
	for p, w := range want {
		g := got[p]
		for i := range min(len(w), len(g)) {
			if d := differ(w[i], g[i]); d != "" {
				return fmt.Errorf("partition %d: source offset %d and target offset %d differ in %s", p, w[i].Offset, g[i].Offset, d)
			}
		}
		if len(w) != len(g) {
			return fmt.Errorf("partition %d: %d records on the source, %d on the target", p, len(w), len(g))
		}
		total += len(w)
	}
	fmt.Printf("   compared %d records of %s in %d partitions: equal\n", total, c.Topic, len(want))
	return nil
}

func differ(a, b *kgo.Record) string {
	same := func(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }
	switch {
	case !same(a.Key, b.Key):
		return "key"
	case !same(a.Value, b.Value):
		return "value"
	case !a.Timestamp.Equal(b.Timestamp):
		return "timestamp"
	case len(a.Headers) != len(b.Headers):
		return "number of headers"
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return fmt.Sprintf("header %d", i)
		}
	}
	return ""
}

// readAll reads each partition to the end it had when reading began.
func readAll(ctx context.Context, bootstrap, topic string) (map[int32][]*kgo.Record, error) {
	cl, err := client(bootstrap, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	out, left, from := map[int32][]*kgo.Record{}, map[int32]int64{}, map[int32]kgo.Offset{}
	for p, e := range ends[topic] {
		out[p] = nil
		if s := starts[topic][p].Offset; s < e.Offset {
			left[p], from[p] = e.Offset, kgo.NewOffset().At(s)
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return nil, err
		}
		for _, fe := range fs.Errors() {
			return nil, fmt.Errorf("read %s partition %d: %w", fe.Topic, fe.Partition, fe.Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok {
				return
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return out, nil
}

func count(ctx context.Context, adm *kadm.Client, topic string) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	if err := ends.Error(); err != nil {
		return 0, err
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	if err := starts.Error(); err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) {
		n += o.Offset
		if s, ok := starts.Lookup(o.Topic, o.Partition); ok {
			n -= s.Offset
		}
	})
	return n, nil
}

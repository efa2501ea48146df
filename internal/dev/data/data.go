// Package data makes, counts and compares records for the demo and the example
// scripts, as commands of mirrorflow-dev. It uses a Kafka client of its own and
// nothing of the engine, so that what it says of a copy is an outside view.
//
// Start at Produce and Compare.
package data

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Produce makes records with keys, headers, null values and timestamps in the past.
type Produce struct {
	Bootstrap  string `required:"" help:"Bootstrap server."`
	Topic      string `required:"" help:"Topic, created when missing."`
	Partitions int32  `help:"How many partitions to write to, and to create the topic with (default: all that the topic has; 1 for a new one)."`
	Records    int    `default:"1000" help:"Records to produce."`
}

// Run produces and waits for every acknowledgement.
func (c *Produce) Run(ctx context.Context) error {
	cl, err := client(c.Bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	partitions, err := c.ensureTopic(ctx, kadm.NewClient(cl))
	if err != nil {
		return err
	}
	var first error
	start := time.Now().Add(-24 * time.Hour).Truncate(time.Millisecond)
	for i := range c.Records {
		r := &kgo.Record{
			Topic: c.Topic, Partition: int32(i) % partitions,
			Key:       fmt.Appendf(nil, "item-%d", i%997),
			Value:     fmt.Appendf(nil, `{"item":%d,"quantity":%d,"warehouse":"GRA-%d"}`, i, i*7%100, i%5),
			Timestamp: start.Add(time.Duration(i) * time.Millisecond),
			Headers:   []kgo.RecordHeader{{Key: "origin", Value: []byte("demo")}, {Key: "n", Value: binary.BigEndian.AppendUint64(nil, uint64(i))}},
		}
		switch i % 50 {
		case 7:
			r.Value = nil // a tombstone
		case 8:
			r.Key = nil
		}
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil && first == nil {
				first = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if first != nil {
		return fmt.Errorf("produce to %s: %w", c.Topic, first)
	}
	fmt.Printf("   produced %d records to %s\n", c.Records, c.Topic)
	return nil
}

// ensureTopic creates the topic when it is missing and returns how many of its partitions, from the first on, are to be
// written to.
func (c *Produce) ensureTopic(ctx context.Context, adm *kadm.Client) (int32, error) {
	if c.Partitions < 0 {
		return 0, fmt.Errorf("--partitions is %d", c.Partitions)
	}
	created := max(1, c.Partitions)
	_, err := adm.CreateTopic(ctx, created, -1, nil, c.Topic)
	if err == nil {
		return created, nil
	}
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		return 0, fmt.Errorf("create topic %s: %w", c.Topic, err)
	}
	topics, err := adm.ListTopics(ctx, c.Topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list partitions of %s: %w", c.Topic, err)
	}
	has := int32(len(topics[c.Topic].Partitions))
	switch {
	case c.Partitions == 0:
		return has, nil
	case c.Partitions > has:
		return 0, fmt.Errorf("topic %s has %d partitions, not %d", c.Topic, has, c.Partitions)
	}
	return c.Partitions, nil
}

// Commit stores offsets for a group without members.
type Commit struct {
	Bootstrap string `required:""`
	Topic     string `required:""`
	Group     string `required:""`
	At        int64  `required:"" help:"Offset to commit in each partition."`
}

// Run commits.
func (c *Commit) Run(ctx context.Context) error {
	cl, err := client(c.Bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx, c.Topic)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for p := range topics[c.Topic].Partitions {
		offsets.Add(kadm.Offset{Topic: c.Topic, Partition: p, At: c.At, LeaderEpoch: -1, Metadata: "demo"})
	}
	if err := adm.CommitAllOffsets(ctx, c.Group, offsets); err != nil {
		return fmt.Errorf("commit for group %s: %w", c.Group, err)
	}
	fmt.Printf("   group %s committed offset %d in %d partitions of %s\n", c.Group, c.At, len(topics[c.Topic].Partitions), c.Topic)
	return nil
}

// Group prints a group's committed offsets on a topic.
type Group struct {
	Bootstrap string `required:""`
	Topic     string `required:""`
	Group     string `required:""`
	Expect    int64  `default:"-1" help:"Fail unless every partition has this offset."`
}

// Run prints and compares.
func (c *Group) Run(ctx context.Context) error {
	cl, err := client(c.Bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx, c.Topic)
	if err != nil {
		return err
	}
	got, err := adm.FetchOffsets(ctx, c.Group)
	if err != nil {
		return err
	}
	for p := range len(topics[c.Topic].Partitions) {
		o, ok := got.Lookup(c.Topic, int32(p))
		if !ok {
			return fmt.Errorf("group %s has no offset for partition %d of %s", c.Group, p, c.Topic)
		}
		if c.Expect >= 0 && o.At != c.Expect {
			return fmt.Errorf("group %s is at %d in partition %d of %s, not at %d", c.Group, o.At, p, c.Topic, c.Expect)
		}
		fmt.Printf("   group %s, %s partition %d: offset %d\n", c.Group, c.Topic, p, o.At)
	}
	return nil
}

// Topics lists topics.
type Topics struct {
	Bootstrap string   `required:""`
	Expect    []string `help:"Fail unless these exist."`
}

// Run lists and compares.
func (c *Topics) Run(ctx context.Context) error {
	cl, err := client(c.Bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	list, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx)
	if err != nil {
		return err
	}
	for _, t := range list.Sorted() {
		fmt.Printf("%s (%d partitions)\n", t.Topic, len(t.Partitions))
	}
	for _, name := range c.Expect {
		if !list.Has(name) {
			return fmt.Errorf("there is no topic %s", name)
		}
	}
	return nil
}

func client(bootstrap string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ClientID("mirrorflow-dev"), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.DisableClientMetrics(), kgo.ProducerLinger(5 * time.Millisecond),
	}, opts...)...)
}

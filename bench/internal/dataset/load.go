package dataset

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// Loaded says what Load wrote.
type Loaded struct {
	Records int64 `json:"records"`
	Batches int64 `json:"batches"`
	// RawBytes are the records of all batches before compression, with their lengths and deltas but without batch headers:
	// the "uncompressed record bytes" that CPU seconds per GB refer to.
	RawBytes int64 `json:"rawBytes"`
	// BatchBytes are all batches as they were sent.
	BatchBytes int64         `json:"batchBytes"`
	Took       time.Duration `json:"tookNs"`
}

// loaders write at the same time, each to its own partitions.
const loaders = 4

// Load creates the topic, which must not exist, on a cluster of one broker and writes the set. Topics take what the broker
// gives them, apart from compression.type=producer.
func Load(ctx context.Context, bootstrap string, set Set) (Loaded, error) {
	cl, err := Client(bootstrap)
	if err != nil {
		return Loaded{}, err
	}
	defer cl.Close()
	begin := time.Now()
	producer := "producer"
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, set.Partitions, 1, map[string]*string{"compression.type": &producer}, set.Topic); err != nil {
		return Loaded{}, fmt.Errorf("create topic %s: %w", set.Topic, err)
	}
	if err := WaitLeaders(ctx, cl, map[string]int32{set.Topic: set.Partitions}); err != nil {
		return Loaded{}, err
	}
	var records, batches, raw, wire atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for w := range min(int32(loaders), set.Partitions) {
		group.Go(func() error {
			b, err := newBatcher(set)
			if err != nil {
				return err
			}
			next := map[int32]int64{} // sequence number by partition
			for p := w; p < set.Partitions; p += loaders {
				next[p] = 0
			}
			for len(next) > 0 {
				request := kmsg.NewPtrProduceRequest()
				request.Acks, request.TimeoutMillis = -1, 30_000
				topic := kmsg.NewProduceRequestTopic()
				topic.Topic = set.Topic
				for p, seq := range next {
					batch := b.next(p, seq)
					partition := kmsg.NewProduceRequestTopicPartition()
					partition.Partition, partition.Records = p, batch.bytes
					topic.Partitions = append(topic.Partitions, partition)
					if next[p] += batch.records; next[p] >= set.PerPartition {
						delete(next, p)
					}
					records.Add(batch.records)
					batches.Add(1)
					raw.Add(batch.rawBytes)
					wire.Add(int64(len(batch.bytes)))
				}
				request.Topics = append(request.Topics, topic)
				if err := send(ctx, cl, request); err != nil {
					return fmt.Errorf("write to %s: %w", set.Topic, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Loaded{}, err
	}
	return Loaded{Records: records.Load(), Batches: batches.Load(), RawBytes: raw.Load(), BatchBytes: wire.Load(), Took: time.Since(begin)}, nil
}

// send sends a produce request to the only broker. Nothing is sent twice.
func send(ctx context.Context, cl *kgo.Client, request *kmsg.ProduceRequest) error {
	response, err := cl.SeedBrokers()[0].Request(ctx, request)
	if err != nil {
		return err
	}
	for _, t := range response.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
	}
	return nil
}

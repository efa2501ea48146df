package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Isolation says which records a reader sees.
type Isolation int8

// The isolation levels, in the protocol's values.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// Record is a record as it lies in a topic. Key, Value and header values are nil for null and not nil when empty.
type Record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Timestamp  time.Time
	// LogAppendTime is set when the broker chose the timestamp.
	LogAppendTime bool
}

// readTimeout bounds the reading of one topic.
const readTimeout = 3 * time.Minute

// ForEach calls fn for every record of a topic, from the start of each partition to its end as of the call, partition after
// partition, in order, without keeping them: for topics of any size. Record slices are valid during the call of fn only
// when fn copies them.
//
// The end is the high watermark, or the last stable offset for ReadCommitted. Reading goes by the offsets of batch headers,
// so it ends also when the last offsets of a partition hold no record (transaction markers, aborted or compacted records).
func ForEach(tb testing.TB, c *Cluster, topic string, isolation Isolation, fn func(Record)) {
	tb.Helper()
	require.NoError(tb, forEach(c, topic, isolation, fn), "read topic %s", topic)
}

// ReadAll returns the records of a topic by partition, every partition present, as ForEach passes them.
func ReadAll(tb testing.TB, c *Cluster, topic string, isolation Isolation) map[int32][]Record {
	tb.Helper()
	all := map[int32][]Record{}
	for p := range Partitions(tb, c, topic) {
		all[int32(p)] = nil
	}
	ForEach(tb, c, topic, isolation, func(r Record) { all[r.Partition] = append(all[r.Partition], r) })
	return all
}

// Partitions is the number of a topic's partitions.
func Partitions(tb testing.TB, c *Cluster, topic string) int {
	tb.Helper()
	details, err := Admin(tb, c).ListTopics(context.Background(), topic)
	require.NoError(tb, err)
	require.NoError(tb, details[topic].Err, "look up topic %s", topic)
	return len(details[topic].Partitions)
}

func forEach(c *Cluster, topic string, isolation Isolation, fn func(Record)) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.AdminBootstraps()...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	list := admin.ListEndOffsets
	if isolation == ReadCommitted {
		list = admin.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	r := reader{client: client, topic: topic, id: details[topic].ID, isolation: isolation, decompressor: kgo.DefaultDecompressor()}
	var partitions []int32
	for p := range ends[topic] {
		partitions = append(partitions, p)
	}
	slices.Sort(partitions)
	for _, p := range partitions {
		detail, ok := details[topic].Partitions[p]
		if !ok || detail.Err != nil {
			return fmt.Errorf("partition %d has no leader: %w", p, detail.Err)
		}
		if err := r.read(ctx, p, detail.Leader, starts[topic][p].Offset, ends[topic][p].Offset, fn); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}

// reader fetches with requests of its own, since a consuming client does not tell how far it is where no records are.
type reader struct {
	client       *kgo.Client
	topic        string
	id           kadm.TopicID
	isolation    Isolation
	decompressor kgo.Decompressor
}

func (r *reader) read(ctx context.Context, partition, leader int32, offset, end int64, fn func(Record)) error {
	for offset < end {
		request := kmsg.NewPtrFetchRequest()
		request.MaxWaitMillis = 500
		request.MinBytes = 1
		request.MaxBytes = 8 << 20
		request.IsolationLevel = int8(r.isolation)
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition = partition
		part.FetchOffset = offset
		part.PartitionMaxBytes = 8 << 20
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = r.topic
		topic.TopicID = r.id
		topic.Partitions = append(topic.Partitions, part)
		request.Topics = append(request.Topics, topic)
		answer, err := r.client.Broker(int(leader)).RetriableRequest(ctx, request)
		if err != nil {
			return fmt.Errorf("fetch from offset %d: %w", offset, err)
		}
		response, ok := answer.(*kmsg.FetchResponse)
		if !ok || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
			return fmt.Errorf("fetch from offset %d: unexpected answer %T", offset, answer)
		}
		got := &response.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return fmt.Errorf("fetch from offset %d: %w", offset, err)
		}
		fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: offset, IsolationLevel: r.level(), Topic: r.topic, Partition: partition,
		}, got, r.decompressor, nil)
		if fetched.Err != nil {
			return fmt.Errorf("decode from offset %d: %w", offset, fetched.Err)
		}
		for _, rec := range fetched.Records {
			// The last batch may reach past the end as of the call.
			if rec.Offset >= end {
				return nil
			}
			fn(Record{
				Partition: partition, Offset: rec.Offset, Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
				Timestamp: rec.Timestamp, LogAppendTime: rec.Attrs.TimestampType() == 1,
			})
		}
		offset = next
	}
	return nil
}

func (r *reader) level() kgo.IsolationLevel {
	if r.isolation == ReadCommitted {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

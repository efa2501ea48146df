package dataset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Client is a client of a cluster with one broker, for Load, Ends and administration. It speaks Kafka 3.9's versions of
// requests, in which topics have names.
func Client(bootstrap string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("mirrorbench"), kgo.MaxVersions(kversion.V3_9_0()),
		kgo.DisableClientMetrics())
}

// Missing is the log end of a partition that is not there, or has no leader yet.
const Missing = -1

// Ends asks the only broker for the log ends of topics with the given numbers of partitions, with one request and without
// metadata. What does not exist is Missing.
func Ends(ctx context.Context, cl *kgo.Client, topics map[string]int32) (map[string][]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	for name, partitions := range topics {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		for p := range partitions {
			partition := kmsg.NewListOffsetsRequestTopicPartition()
			partition.Partition, partition.Timestamp = p, -1
			topic.Partitions = append(topic.Partitions, partition)
		}
		request.Topics = append(request.Topics, topic)
	}
	response, err := cl.SeedBrokers()[0].RetriableRequest(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask for log ends: %w", err)
	}
	out := map[string][]int64{}
	for _, t := range response.(*kmsg.ListOffsetsResponse).Topics {
		ends := make([]int64, topics[t.Topic])
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.LeaderNotAvailable):
				ends[p.Partition] = Missing
			case err != nil:
				return nil, fmt.Errorf("log end of %s partition %d: %w", t.Topic, p.Partition, err)
			default:
				ends[p.Partition] = p.Offset
			}
		}
		out[t.Topic] = ends
	}
	return out, nil
}

// Sum adds log ends, of existing partitions.
func Sum(ends map[string][]int64) (sum int64) {
	for _, list := range ends {
		for _, end := range list {
			sum += max(end, 0)
		}
	}
	return sum
}

// leadersWithin is long, since thousands of partitions on a busy machine take their time.
const leadersWithin = 5 * time.Minute

// WaitLeaders waits until all partitions of new topics have leaders, so that what is sent then is not refused for that.
func WaitLeaders(ctx context.Context, cl *kgo.Client, topics map[string]int32) error {
	ctx, cancel := context.WithTimeout(ctx, leadersWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ends, err := Ends(ctx, cl, topics)
		if err != nil {
			return err
		}
		ready := true
		for _, list := range ends {
			for _, end := range list {
				ready = ready && end != Missing
			}
		}
		if ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("new topics have no leaders: %w", ctx.Err())
		}
	}
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrCreateDenied is wrapped by the error of CreateCompacted when the cluster does not let us create the topic, or is too
// old for it. The topic may exist all the same; the first use tells.
var ErrCreateDenied = errors.New("creating the topic is denied")

// CreateCompacted creates a topic with cleanup.policy=compact unless it exists; one that exists is left alone.
// replicationFactor -1 leaves it to the cluster.
func CreateCompacted(ctx context.Context, client *kgo.Client, topic string, partitions int32, replicationFactor int16) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, replicationFactor
	policy := kmsg.NewCreateTopicsRequestTopicConfig()
	policy.Name, policy.Value = "cleanup.policy", kmsg.StringPtr("compact")
	t.Configs = append(t.Configs, policy)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("create topic %s: the answer names %d topics", topic, len(resp.Topics))
	}
	err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnsupportedVersion):
		return fmt.Errorf("%w: topic %s: %w", ErrCreateDenied, topic, err)
	}
	return fmt.Errorf("create topic %s: %w", topic, err)
}

// EnsureCompacted is CreateCompacted for the topics of one partition that MM2's readers know (heartbeats, checkpoints).
// As in MM2, a cluster that does not let us create the topic is taken to have it: writing to it tells the truth.
func EnsureCompacted(ctx context.Context, client *kgo.Client, topic string, replicationFactor int16) error {
	if err := CreateCompacted(ctx, client, topic, 1, replicationFactor); err != nil && !errors.Is(err, ErrCreateDenied) {
		return err
	}
	return nil
}

// PartitionsManually tells whether a client sends each record to the partition
// that the record names, which writers of MM2's topics need: readers look at
// partition 0 only.
func PartitionsManually(client *kgo.Client) bool {
	p, ok := client.OptValue(kgo.RecordPartitioner).(kgo.Partitioner)
	// Partitioners of other types need not bear being asked.
	if !ok || reflect.TypeOf(p) != reflect.TypeOf(kgo.ManualPartitioner()) {
		return false
	}
	of := p.ForTopic("")
	for want := range 3 {
		if of.Partition(&kgo.Record{Partition: int32(want)}, 3) != want {
			return false
		}
	}
	return true
}

// Brief is a short text for the evidence of a condition: the broker's code, the
// kind of connection problem, or that no answer came. It never quotes addresses
// or what a server sent.
func Brief(err error) string {
	if code, ok := errors.AsType[*kerr.Error](err); ok {
		return code.Message
	}
	if p := Classify(err); p != nil {
		return string(p.Code)
	}
	if isTimeout(err) {
		return "no answer in time"
	}
	return "request failed"
}

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

// EnsureCompacted creates one of the topics that MM2's readers know (heartbeats,
// checkpoints, offset syncs): one partition, compacted. replicationFactor -1
// leaves it to the cluster. An existing topic is left alone.
//
// As in MM2, a cluster that is too old to create topics this way, or does not
// let us, is taken to have the topic: writing to it tells the truth.
func EnsureCompacted(ctx context.Context, client *kgo.Client, topic string, replicationFactor int16) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, replicationFactor
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
	case err == nil,
		errors.Is(err, kerr.TopicAlreadyExists), errors.Is(err, kerr.UnsupportedVersion),
		errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return nil
	}
	return fmt.Errorf("create topic %s: %w", topic, err)
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

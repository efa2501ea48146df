// Package sidetopic creates the compacted topics that lie beside the mirrored data: offset syncs, state, MM2's positions.
//
// It owns one function. It must never alter or delete a topic.
//
// Start at Ensure.
package sidetopic

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrDenied is wrapped by the error of Ensure when the cluster does not let us create the topic. It may exist all the
// same; the first use tells.
var ErrDenied = errors.New("creating the topic is denied")

// Ensure creates a topic with cleanup.policy=compact unless it exists; one that exists is left alone. replication -1 is
// the cluster's default.
func Ensure(ctx context.Context, client *kgo.Client, topic string, partitions int32, replication int16) error {
	resp, err := kadm.NewClient(client).CreateTopic(ctx, partitions, replication, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, topic)
	if err == nil {
		err = resp.Err
	}
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%w: topic %s: %w", ErrDenied, topic, err)
	}
	return fmt.Errorf("create topic %s: %w", topic, err)
}

package sidetopic_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
)

func TestWhatIsWrittenIsAcknowledgedOneByOne(t *testing.T) {
	t.Parallel()
	ctx, client := setup(t)
	got := sidetopic.Write(ctx, client, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("a")}, &kgo.Record{Topic: "none"}, &kgo.Record{Topic: "t", Partition: 2})
	require.Len(t, got, 3)
	require.NoError(t, got[0])
	require.ErrorIs(t, got[1], kerr.UnknownTopicOrPartition)
	require.NoError(t, got[2])
	require.Empty(t, sidetopic.Write(ctx, client))
}

func TestAnAcknowledgementThatDoesNotComeIsNotWaitedForLongerThanAsked(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	asked, leave := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(leave) })
	cluster.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		cluster.SleepControl(func() { <-leave })
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan []error, 1)
	go func() { result <- sidetopic.Write(ctx, client, &kgo.Record{Topic: "t"}) }()
	<-asked
	cancel()
	select {
	case got := <-result:
		require.ErrorIs(t, got[0], context.Canceled)
	case <-time.After(10 * time.Second):
		require.Fail(t, "still waiting")
	}
}

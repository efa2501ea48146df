package sidetopic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) (context.Context, *kgo.Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(3, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	// A topic that does not exist is given up when the metadata have said so twice, which they say once each MetadataMinAge.
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx, client
}

func TestEachPartitionIsReadInOrderToItsEnd(t *testing.T) {
	t.Parallel()
	ctx, client := setup(t)
	for i := range 100 {
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: fmt.Append(nil, i)}).FirstErr())
	}
	got := map[int32][]string{}
	require.NoError(t, sidetopic.Read(ctx, client, "t", func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], string(r.Value)) }))
	require.Len(t, got, 2)
	for p, values := range got {
		require.Len(t, values, 50)
		for i, v := range values {
			require.Equal(t, fmt.Sprint(2*i+int(p)), v)
		}
	}
}

func TestATopicThatIsNotThereIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	ctx, client := setup(t)
	require.ErrorIs(t, sidetopic.Read(ctx, client, "none", func(*kgo.Record) {}), sidetopic.ErrMissing)
}

func TestAPanicOfTheCallersFunctionIsTheError(t *testing.T) {
	t.Parallel()
	ctx, client := setup(t)
	require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	var fault *report.PanicError
	require.ErrorAs(t, sidetopic.Read(ctx, client, "t", func(*kgo.Record) { panic("boom") }), &fault)
}

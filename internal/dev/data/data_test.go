package data

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestProduceWritesToThePartitionsThatTheTopicHas(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "there"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	bootstrap := cluster.ListenAddrs()[0]
	cl, err := client(bootstrap)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)

	for _, step := range []struct {
		args []string
		want []int64 // records by partition, over all steps
	}{
		{[]string{"--topic", "there"}, []int64{10, 10, 10, 10}},
		{[]string{"--topic", "there", "--partitions", "2"}, []int64{30, 30, 10, 10}},
		{[]string{"--topic", "new"}, []int64{40}},
		{[]string{"--topic", "newer", "--partitions", "2"}, []int64{20, 20}},
	} {
		require.NoError(t, Run(t.Context(), append([]string{"produce", "--bootstrap", bootstrap, "--records", "40"}, step.args...)))
		topic := step.args[1]
		ends, err := adm.ListEndOffsets(t.Context(), topic)
		require.NoError(t, err)
		require.NoError(t, ends.Error())
		written := make([]int64, len(ends[topic]))
		for p, o := range ends[topic] {
			written[p] = o.Offset
		}
		require.Equal(t, step.want, written, step.args)
	}
	require.ErrorContains(t, Run(t.Context(), []string{"produce", "--bootstrap", bootstrap, "--topic", "new", "--partitions", "3"}), "has 1 partitions, not 3")
}

package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func setConfig(tb testing.TB, c *kafkatest.Cluster, topic, key, value string) {
	tb.Helper()
	rs, err := kafkatest.Admin(tb, c).AlterTopicConfigs(tb.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	require.NoError(tb, err)
	for _, r := range rs {
		require.NoError(tb, r.Err)
	}
}

func getConfig(tb testing.TB, c *kafkatest.Cluster, topic, key string) string {
	tb.Helper()
	rs, err := kafkatest.Admin(tb, c).DescribeTopicConfigs(tb.Context(), topic)
	require.NoError(tb, err)
	r, err := rs.On(topic, nil)
	require.NoError(tb, err)
	require.NoError(tb, r.Err)
	for _, cfg := range r.Configs {
		if cfg.Key == key {
			return cfg.MaybeValue()
		}
	}
	return ""
}

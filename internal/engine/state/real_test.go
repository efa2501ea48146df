package state

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func TestMain(m *testing.M) {
	code := kafkatest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestStateLivesOnARealBroker(t *testing.T) {
	t.Parallel()
	for _, c := range []*kafkatest.Cluster{kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)} {
		name := strings.ToLower(kafkatest.UniqueName(t))
		start := func(epoch int64) *TopicStore {
			s, err := Open(Config{
				Target:   kafka.Cluster{BootstrapServers: []string{c.Bootstrap()}, Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"})},
				ClientID: "a->b|flow-0|state", SourceAlias: name, LeaseEpoch: epoch, MM2Positions: true,
				RemoteTopic: func(source string) string { return name + "." + source },
			})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			return s
		}
		k := func(p int32) Key { return Key{name + ".orders", p} }
		first := start(1)
		m := holed(t, 8000)
		require.NoError(t, first.Save(within(t), map[Key]Entry{
			k(0): {SourceTopic: "orders", Position: 10, TargetNext: 10, Map: m}, k(1): {SourceTopic: "orders", Position: 5, TargetNext: 5},
		}))
		second := start(2)
		got, err := second.Load(within(t))
		require.NoError(t, err)
		require.Equal(t, m.Runs(), got[k(0)].Map.Runs())
		require.Equal(t, mm2.ConnectOffsetsPartitions, kafkatest.Partitions(t, c, mm2.ConnectOffsetsTopic(name)))
		require.Equal(t, 1, kafkatest.Partitions(t, c, mm2.StateTopic(name)))
		require.NoError(t, second.Forget(within(t), []Key{k(0)}))
		got, err = start(3).Load(within(t))
		require.NoError(t, err)
		require.Len(t, got, 1)
	}
}

package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func TestASessionIsOpenedAgainAfterTheBrokerWasRestarted(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V39})
	kafkatest.CreateTopic(t, b, "t", 3, nil)
	h := newHub(t, Config{})
	cluster := join(t, h, at("source", "k", b.Bootstrap()))
	topic := describe(t, cluster, "t")["t"]
	leader := topic.Partitions[0].Leader
	e := newEater(t, cluster, true, always)
	e.leader = leader
	for p := range int32(3) {
		e.reader.Set(leader, Want{TP: TP{"t", p}, TopicID: topic.ID})
	}
	for round := range 3 {
		for p := range int32(3) {
			produce(t, cluster, "t", p, 10)
			e.until(TP{"t", p}, int64(10*(round+1)))
		}
		if round < 2 {
			b.Restart(t)
		}
	}
	for p := range int32(3) {
		require.Equal(t, 30, e.count(TP{"t", p}), "once each")
	}
}

func TestABusyPartitionOfARealBrokerDoesNotWaitForIdleOnes(t *testing.T) {
	t.Parallel()
	for _, version := range []kafkatest.Options{{Version: kafkatest.V39}, {Version: kafkatest.V43}} {
		t.Run(string(version.Version), func(t *testing.T) {
			t.Parallel()
			b := kafkatest.Shared(t, version.Version)
			const idle, rounds = 200, 30
			many, busy := kafkatest.UniqueName(t), kafkatest.UniqueName(t)
			kafkatest.CreateTopic(t, b, many, idle, nil)
			kafkatest.CreateTopic(t, b, busy, 2, nil)
			h := newHub(t, Config{})
			cluster := join(t, h, at("source", "k", b.Bootstrap()))
			topics := describe(t, cluster, many, busy)
			leader := topics[busy].Partitions[0].Leader
			// One asks on from within, one from without, which misses the poll.
			inside, outside := newEater(t, cluster, true, always), newEater(t, cluster, true, nil)
			inside.leader = leader
			for p := range int32(2) { // a leader that was just chosen may answer that it is none
				produce(t, cluster, busy, p, 1)
			}
			for p := range int32(idle) {
				inside.reader.Set(leader, Want{TP: TP{many, p}, TopicID: topics[many].ID})
			}
			inside.reader.Set(leader, Want{TP: TP{busy, 0}, TopicID: topics[busy].ID})
			began := time.Now()
			for i := range rounds {
				outside.reader.Set(leader, Want{TP: TP{busy, 1}, TopicID: topics[busy].ID, Offset: int64(i + 1)})
				for p := range int32(2) {
					r := &kgo.Record{Topic: busy, Partition: p, Value: []byte(fmt.Sprint(i))}
					require.NoError(t, cluster.Client().ProduceSync(t.Context(), r).FirstErr())
				}
				inside.until(TP{busy, 0}, int64(i+2))
				g := takeRecords(t, outside)
				require.Zero(t, g.part.Fetched.ErrorCode, "round %d", i)
				require.Equal(t, 1, g.records, "round %d", i)
			}
			require.Less(t, time.Since(began), rounds*pollWait/2)
		})
	}
}

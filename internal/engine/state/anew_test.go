package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestATopicMadeAnewGetsAllThatWasSavedAgain(t *testing.T) {
	t.Parallel()
	for _, v := range []kafkaproc.Version{kafkatest.V39, kafkatest.V43} {
		for _, byHand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s by hand %t", v, byHand), func(t *testing.T) {
				t.Parallel()
				c := kafkatest.Shared(t, v)
				name := strings.ToLower(kafkatest.UniqueName(t))
				name = strings.Map(func(r rune) rune {
					if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) {
						return r
					}
					return '-'
				}, name)
				start := func(epoch int64, flow string) *TopicStore {
					s, err := Open(Config{
						Target:   kafka.Cluster{BootstrapServers: []string{c.Bootstrap()}, Credentials: kafka.NewCredentials(kafka.Security{Protocol: "PLAINTEXT"})},
						ClientID: "a->b|flow-0|state", SourceAlias: name, Flow: flow, LeaseEpoch: epoch, MM2Positions: true,
						RemoteTopic: func(source string) string { return name + "." + source },
					})
					require.NoError(t, err)
					t.Cleanup(s.Close)
					return s
				}
				k := func(p int32) Key { return Key{name + ".orders", p} }
				s, m := start(1, "flow"), holed(t, 8000)
				require.NoError(t, s.Save(within(t), map[Key]Entry{
					k(0): {SourceTopic: "orders", Position: 10, TargetNext: 10, Map: m}, k(1): {SourceTopic: "orders", Position: 5, TargetNext: 5, Map: m},
				}))
				require.NoError(t, s.SaveNote(within(t), "n", []byte("x")))
				admin := kafkatest.Admin(t, c)
				for _, topic := range []string{mm2.StateTopic(name), mm2.ConnectOffsetsTopic(name)} {
					before, err := admin.ListTopics(within(t), topic)
					require.NoError(t, errors.Join(err, before.Error()))
					gone, err := admin.DeleteTopic(within(t), topic)
					require.NoError(t, errors.Join(err, gone.Err))
					if byHand {
						wait.For(t, 20*time.Second, "the topic made by hand", func() error {
							made, err := admin.CreateTopic(within(t), int32(partitionsMade[topic == mm2.StateTopic(name)]), 1, nil, topic)
							return errors.Join(err, made.Err)
						})
					}
					// Until the broker knows, reads and writes go to the old topic and prove nothing.
					wait.For(t, time.Minute, "the broker to know that the old topic is gone", func() error {
						now, err := admin.ListTopics(within(t), topic)
						if err == nil && now[topic].Err == nil && now[topic].ID == before[topic].ID {
							err = errors.New("it is still there")
						}
						return err
					})
				}
				// Nothing changes but one partition; the other is idle.
				began := time.Now()
				wait.For(t, 20*time.Second, "all in the new topic", func() error {
					if err := s.Check(within(t)); err != nil {
						return err
					}
					other := start(2, "flow")
					defer other.Close()
					got, err := other.Load(within(t))
					if err != nil {
						return err
					}
					note, ok := other.Note("n")
					if len(got) != 2 || !ok || string(note) != "x" {
						return fmt.Errorf("%d entries, note %q", len(got), note)
					}
					for _, e := range got {
						if e.Map == nil {
							return errors.New("the map is lost")
						}
					}
					require.EqualValues(t, 10, got[k(0)].Position)
					require.Equal(t, m.Runs(), got[k(1)].Map.Runs())
					return nil
				})
				require.Less(t, time.Since(began), 10*time.Second)
				// A save may be the one that finds MM2's topic to be another; the task saves again, as after any failure.
				wait.For(t, 10*time.Second, "a save", func() error {
					return s.Save(within(t), map[Key]Entry{k(1): {SourceTopic: "orders", Position: 6, TargetNext: 6, Map: m}})
				})
				wait.For(t, time.Minute, "both positions read by another", func() error {
					other := start(3, "flow")
					defer other.Close()
					got, err := other.Load(within(t))
					if err == nil && (got[k(1)].Position != 6 || got[k(0)].Position != 10) {
						err = fmt.Errorf("positions %d and %d; saved again at the next look", got[k(0)].Position, got[k(1)].Position)
					}
					return errors.Join(err, s.Check(within(t)))
				})
			})
		}
	}
}

// partitionsMade are the topics' numbers of partitions: of the state's, and of MM2's positions.
var partitionsMade = map[bool]int{true: 1, false: mm2.ConnectOffsetsPartitions}

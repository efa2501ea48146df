package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestTopicsThatDidNotChangeAreNotTranslatedAgain(t *testing.T) {
	t.Parallel()
	topic := func(name string, position int64) report.Topic {
		return report.Topic{Name: name, RemoteName: "a." + name, Partitions: []report.Partition{{Partition: 0, LogEnd: 9, Position: position, Lag: 9 - position, State: "RUNNING"}}}
	}
	var last translated
	status := func(topics ...report.Topic) report.Status {
		return report.Status{ObservedAt: time.Now(), Topics: topics}
	}
	s := status(topic("a", 3), topic("b", 4))
	first := toTaskStatus(s, &last)
	require.Len(t, first.Topics, 2)
	require.EqualValues(t, 5, first.Topics[1].Partitions[0].RecordLag)
	again := s
	again.ObservedAt = time.Now()
	second := toTaskStatus(again, &last)
	require.Same(t, &first.Topics[0], &second.Topics[0])
	require.True(t, sameStatus(first, second))

	third := toTaskStatus(status(s.Topics[0], topic("b", 5)), &last)
	require.Same(t, &first.Topics[0].Partitions[0], &third.Topics[0].Partitions[0])
	require.EqualValues(t, 4, third.Topics[1].Partitions[0].RecordLag)
	require.EqualValues(t, 5, second.Topics[1].Partitions[0].RecordLag, "what was told stays as it was")
	require.False(t, sameStatus(second, third))

	moved := toTaskStatus(status(topic("b", 5)), &last)
	require.Len(t, moved.Topics, 1)
	require.Equal(t, "b", moved.Topics[0].Name)
	require.Nil(t, toTaskStatus(status(), &last).Topics)
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// watched runs the watch of the task's source, whose check answers what the test wants.
func watched(t *testing.T) (s *side, task *Task, check func(*kafka.Problem)) {
	t.Helper()
	task, _, _ = idle(t)
	s = task.source
	answers := make(chan *kafka.Problem, 1)
	s.diagnose = func(ctx context.Context, _ kafka.Cluster, _ error) *kafka.Problem {
		select {
		case p := <-answers:
			answers <- p
			return p
		case <-ctx.Done():
			return nil
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.watch(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s, task, func(p *kafka.Problem) {
		select {
		case <-answers:
		default:
		}
		answers <- p
	}
}

func TestAClusterThatAnswersIsNotUnreachableForThoseWhoDoNotWorkWithItAnyMore(t *testing.T) {
	t.Parallel()
	s, task, check := watched(t)
	refused := &kafka.Problem{Code: kafka.Unreachable, Step: kafka.StepConnect, Message: "refused the connection"}
	check(refused)
	s.failed("data path", errors.New("refused"))
	s.failed("refresh", errors.New("refused"))
	eventually(t, "the problem shows", func() bool { return task.board.Has("SOURCE_UNREACHABLE", report.Flow) })
	s.ok("refresh")
	require.False(t, s.checkID("this", "that"))
	s.withdrawn()
	eventually(t, "the problem is gone", func() bool { return !task.board.Has("SOURCE_UNREACHABLE", report.Flow) })
	require.True(t, task.board.Has("SOURCE_CLUSTER_CHANGED", report.Flow))
	s.failed("offsets", errors.New("refused"))
	eventually(t, "another outage shows", func() bool { return task.board.Has("SOURCE_UNREACHABLE", report.Flow) })
}

func TestAClusterThatRefusesARequestIsNotUnreachable(t *testing.T) {
	t.Parallel()
	s, task, check := watched(t)
	check(&kafka.Problem{Code: kafka.Unreachable, Step: kafka.StepConnect, Message: "refused the connection"})
	s.failed("offsets", errors.New("refused"))
	eventually(t, "the problem shows", func() bool { return task.board.Has("SOURCE_UNREACHABLE", report.Flow) })
	check(nil)
	s.failed("offsets", fmt.Errorf("offsets: %w", kerr.UnknownTopicOrPartition))
	signal(s.wake)
	eventually(t, "the problem is gone", func() bool { return !task.board.Has("SOURCE_UNREACHABLE", report.Flow) })
}

func TestOffsetSyncsThatWaitForAClusterThatIsAwayAreNoFaultOfTheirOwn(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	_, err := net.DialTimeout("tcp", "127.0.0.1:1", time.Second)
	require.Error(t, err)
	task.syncsFailed(task.target, "syncs", err)
	require.Empty(t, task.board.List())
	task.syncsFailed(task.target, "syncs", kerr.TopicAuthorizationFailed)
	require.Equal(t, []string{report.OffsetSyncsFailed}, codesOf(task))
	task.syncsFailed(task.target, "syncs", nil)
	require.Empty(t, task.board.List())
}

package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestDeniedIdempotentWritesAreAConditionOfTheFlowWhileItLasts(t *testing.T) {
	t.Parallel()
	task := &Task{board: report.NewBoard(time.Now)}
	o := observer{task}
	o.Idempotence(kerr.ClusterAuthorizationFailed)
	require.True(t, task.board.Has(report.IdempotenceDenied, report.Flow))
	o.Idempotence(nil)
	require.False(t, task.board.Has(report.IdempotenceDenied, report.Flow))
}

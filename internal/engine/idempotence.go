package engine

import (
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Idempotence implements mirror.Observer: it keeps IDEMPOTENT_WRITES_DENIED in step.
func (o observer) Idempotence(denied error) {
	if denied == nil {
		o.t.board.Clear(report.IdempotenceDenied, report.Flow)
		return
	}
	o.t.board.Set(report.Condition{
		Code: report.IdempotenceDenied, Severity: report.Warning, Subject: report.Flow,
		Message: fmt.Sprintf("the target denies idempotent writes (%s): copying goes on, but when the answer to a write is lost its records may be there twice",
			kafka.Brief(denied)),
		Remedy: "grant IDEMPOTENT_WRITE on the cluster to the target's user; it is asked for again each minute",
	})
}

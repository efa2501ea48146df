package engine

import (
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// openTransaction is the condition of a partition that waits at its last stable offset.
func openTransaction(p *partition, stable, end int64) report.Condition {
	return report.Condition{
		Code: report.OpenTransaction, Severity: report.Warning,
		Subject: report.Subject{Topic: p.tp.Topic, Partition: p.tp.Partition},
		Message: fmt.Sprintf("%s waits at offset %d for an open transaction on the source; %d offsets behind it are written and not readable yet",
			p, stable, end-stable),
		Evidence: map[string]any{"last_stable_offset": stable, "high_watermark": end},
		Remedy:   "end the transaction (kafka-transactions.sh find-hanging and abort on the source); copying goes on by itself",
	}
}

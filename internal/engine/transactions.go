package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// openTransactionAfter is how long the last stable offset may stand still below the high watermark. With two looks in
	// between and a broker that answers none of them, the condition is there within 10 s.
	openTransactionAfter = 4 * time.Second
	// transactionsTimeout bounds one look. It is short since a leader that is away must not hold up the others' answers.
	transactionsTimeout = 3 * time.Second
)

// transactionsLoop watches for open transactions, until ctx ends.
func (t *Task) transactionsLoop(ctx context.Context) {
	if t.cfg.ReadUncommitted {
		return
	}
	for sleep(ctx, t.boundsPause()) {
		t.watchTransactions(ctx)
	}
}

// watchTransactions asks for the last stable offsets of partitions with something to read, and keeps OPEN_TRANSACTION in
// step. Brokers that do not answer are boundsLoop's to report; the answers of the others count.
func (t *Task) watchTransactions(ctx context.Context) {
	var behind []*partition
	var tps []mirror.TP
	for _, p := range t.parts.all() {
		p.mu.Lock()
		if p.state == partRunning && p.position >= 0 && p.position < p.highWatermark {
			behind = append(behind, p)
			tps = append(tps, p.tp)
		} else {
			p.stuckSince = time.Time{}
		}
		p.mu.Unlock()
	}
	c, cancel := context.WithTimeout(ctx, transactionsTimeout)
	defer cancel()
	stable, _ := listOffsets(c, t.source.client, tps, atEnd, committed)
	if ctx.Err() == nil {
		t.judgeTransactions(time.Now(), behind, stable)
	}
}

// judgeTransactions sets OPEN_TRANSACTION where reading has stood at the last stable offset for a while although the log
// goes on behind it, and clears it where it does not. Where there was no answer the condition stays as it is.
func (t *Task) judgeTransactions(now time.Time, behind []*partition, stable map[mirror.TP]listed) {
	keep := map[report.Subject]bool{}
	for _, p := range behind {
		sub := p.subject()
		got := stable[p.tp]
		if got.err != nil {
			keep[sub] = true
			continue
		}
		p.mu.Lock()
		p.lastStable = got.offset
		waiting := got.offset < p.highWatermark && p.position >= got.offset
		switch {
		case !waiting:
			p.stuckSince = time.Time{}
		case p.stuckSince.IsZero() || p.stuckAt != got.offset:
			p.stuckSince, p.stuckAt = now, got.offset
		}
		since, end := p.stuckSince, p.highWatermark
		p.mu.Unlock()
		if since.IsZero() || now.Sub(since) < openTransactionAfter {
			continue
		}
		keep[sub] = true
		t.board.Set(openTransaction(p, got.offset, end))
	}
	t.board.ClearWhere(func(c report.Condition) bool { return c.Code == report.OpenTransaction && !keep[c.Subject] })
}

// openTransaction is the condition of a partition that waits at its last stable offset.
func openTransaction(p *partition, stable, end int64) report.Condition {
	return report.Condition{
		Code: report.OpenTransaction, Severity: report.Warning,
		Subject: p.subject(),
		Message: fmt.Sprintf("%s waits at offset %d for an open transaction on the source; %d offsets behind it are written and not readable yet",
			p, stable, end-stable),
		Evidence: map[string]any{"last_stable_offset": stable, "high_watermark": end},
		Remedy:   "end the transaction (kafka-transactions.sh find-hanging and abort on the source); copying goes on by itself",
	}
}

package engine

import (
	"context"
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// redactingSink takes the secrets of both clusters out of what a task tells: messages quote brokers, and a broker may
// echo what it was sent.
type redactingSink struct {
	Sink
	r kafka.Redactor
}

// Status implements Sink.
func (s redactingSink) Status(st report.Status) {
	conds := make([]report.Condition, len(st.Conditions))
	for i, c := range st.Conditions {
		c.Message, c.Remedy, c.Evidence = s.r.Text(c.Message), s.r.Text(c.Remedy), s.evidence(c.Evidence)
		conds[i] = c
	}
	st.Conditions = conds
	s.Sink.Status(st)
}

// Event implements Sink.
func (s redactingSink) Event(ctx context.Context, e report.Event) error {
	e.Message, e.Evidence = s.r.Text(e.Message), s.evidence(e.Evidence)
	return s.Sink.Event(ctx, e)
}

// evidence is a copy; values that hold a secret, whatever they are, become text.
func (s redactingSink) evidence(of map[string]any) map[string]any {
	if of == nil {
		return nil
	}
	out := make(map[string]any, len(of))
	for k, v := range of {
		if text := fmt.Sprint(v); s.r.Text(text) != text {
			v = s.r.Text(text)
		}
		out[k] = v
	}
	return out
}

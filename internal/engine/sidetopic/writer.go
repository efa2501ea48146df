package sidetopic

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Write sends records to the partitions that they name and waits for all acknowledgements, or until ctx ends: the client
// itself would go on waiting for those that it has sent once, since giving them up would break its numbering. They may
// land later; what is written after them stands behind them.
//
// The results are in the records' order; those of which nothing is known when ctx ends have its error.
func Write(ctx context.Context, client *kgo.Client, records ...*kgo.Record) []error {
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(records))
	for i, r := range records {
		client.Produce(ctx, r, func(_ *kgo.Record, err error) { results <- result{i, err} })
	}
	out := make([]error, len(records))
	open := make([]bool, len(records))
	for i := range open {
		open[i] = true
	}
	for range records {
		select {
		case r := <-results:
			out[r.i], open[r.i] = r.err, false
			continue
		case <-ctx.Done():
		}
		for i := range open {
			if open[i] {
				out[i] = fmt.Errorf("no acknowledgement: %w", ctx.Err())
			}
		}
		break
	}
	return out
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

// wanCase lets MM2 at its defaults and ours copy one partition over a line to the target, as far as they come.
func (b *bench) wanCase(ctx context.Context, r *results.Result, age time.Duration) error {
	engines, err := b.contestants(lab.MM2, lab.Ours)
	if err != nil {
		return err
	}
	// Enough for ours to be at it for some seconds; MM2 copies a part of it.
	const total, window = 512e6, 30 * time.Second
	set := dataset.Set{Topic: r.Case, Partitions: 1, RecordBytes: 1024, Codec: dataset.LZ4, BatchBytes: smallBatch, BatchAtMost: true}
	t, err := b.load(ctx, r, set, int64(total*b.Scale), time.Now().Add(-time.Hour).Add(-age))
	if err != nil {
		return err
	}
	t.source, t.target = b.lab.Source.Bootstrap(), b.lab.Target.Far
	t.window = b.scaled(window)
	r.Params["window"] = t.window.String()
	defer b.lab.Target.Line.SetRoundTrip(0)
	for _, roundTrip := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond} {
		b.lab.Target.Line.SetRoundTrip(roundTrip)
		err := b.rounds(r, engines, func(engine string) (results.Run, error) {
			run, err := b.drain(ctx, engine, t)
			run.Variant = wanVariant(roundTrip)
			return run, err
		})
		if err != nil {
			return err
		}
	}
	return b.clean(ctx)
}

func wanVariant(roundTrip time.Duration) string {
	return fmt.Sprintf("%d ms", roundTrip.Milliseconds())
}

// scaled is a time span for the present scale, at least a tenth of the full one.
func (b *bench) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(max(b.Scale, 0.1), 1)).Round(time.Millisecond)
}

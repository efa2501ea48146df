package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

// dataCase lets all contestants copy a set.
func (b *bench) dataCase(ctx context.Context, r *results.Result, set dataset.Set, total int64) error {
	engines, err := b.contestants(lab.EngineNames...)
	if err != nil {
		return err
	}
	set.Topic = r.Case
	t, err := b.load(ctx, r, set, int64(float64(total)*b.Scale), time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	t.source, t.target = b.lab.Source.Bootstrap(), b.lab.Target.Bootstrap()
	err = b.rounds(r, engines, func(engine string) (results.Run, error) { return b.drain(ctx, engine, t) })
	if err != nil {
		return err
	}
	return b.clean(ctx)
}

// load writes the set to the source, reads it once, which proves it and warms caches, gives a consumer group a place in its
// middle, and warms the target with a part of it.
func (b *bench) load(ctx context.Context, r *results.Result, set dataset.Set, total int64, begin time.Time) (drainTask, error) {
	set.Begin = begin.UTC().Truncate(time.Millisecond)
	set = set.Sized(total)
	if err := b.room(4 * total); err != nil {
		return drainTask{}, err
	}
	loaded, err := dataset.Load(ctx, b.lab.Source.Bootstrap(), set)
	if err != nil {
		return drainTask{}, fmt.Errorf("write the records to the source: %w", err)
	}
	if err := b.prove(ctx, b.lab.Source, set); err != nil {
		return drainTask{}, err
	}
	warm := set
	warm.Topic += "-warm-up"
	warm = warm.Sized(min(total, 300e6))
	if _, err := dataset.Load(ctx, b.lab.Target.Bootstrap(), warm); err != nil {
		return drainTask{}, fmt.Errorf("warm the target: %w", err)
	}
	if err := b.prove(ctx, b.lab.Target, warm); err != nil {
		return drainTask{}, err
	}
	if err := b.lab.Source.Commit(ctx, "bench-readers", set.Topic, set.Partitions, set.PerPartition/2); err != nil {
		return drainTask{}, err
	}
	b.say("   %s: %.0f MB, %.0f MB on disk, written in %.1f s", set, float64(loaded.RawBytes)/1e6, float64(loaded.BatchBytes)/1e6, loaded.Took.Seconds())
	r.Set, r.Loaded = &set, &loaded
	return drainTask{set: set, loaded: loaded}, b.clean(ctx, set.Topic)
}

// prove reads a whole set.
func (b *bench) prove(ctx context.Context, broker *lab.Broker, set dataset.Set) error {
	checked, err := dataset.Check(ctx, broker.Bootstrap(), set.Topic, set)
	if err != nil {
		return err
	}
	if !checked.Good() || checked.Records != set.Records() {
		return fmt.Errorf("the records written to %s are not the ones meant: %+v", set.Topic, checked)
	}
	return nil
}

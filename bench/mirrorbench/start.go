package main

import (
	"context"
	"errors"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

const (
	startPartitions = 4
	// MM2 at its defaults looks for new topics each ten minutes.
	newTopicWithin = 11 * time.Minute
	// ours is quick, so it can be asked more often.
	startsOfOurs = 3
)

// startCase measures how long it takes until something moves.
func startCase(ctx context.Context, b *bench, r *results.Result) error {
	engines, err := b.contestants(lab.MM2, lab.Ours)
	if err != nil {
		return err
	}
	waited := map[string]bool{} // MM2 waits for the new topic in its first run at full scale only
	return b.rounds(r, engines, func(engine string) (results.Run, error) {
		if engine == lab.MM2 {
			wait := !waited[engine] && b.Scale >= 1
			waited[engine] = true
			return b.startOf(ctx, engine, wait)
		}
		for range startsOfOurs - 1 {
			run, err := b.startOf(ctx, engine, true)
			if err != nil {
				return run, err
			}
			run.Round = len(r.Runs)/len(engines) + 1
			r.Runs = append(r.Runs, run)
			b.say("   %s", results.Line(run))
		}
		return b.startOf(ctx, engine, true)
	})
}

func (b *bench) startOf(ctx context.Context, engine string, newTopic bool) (results.Run, error) {
	run := results.Run{Engine: engine, Started: time.Now().UTC(), Metrics: map[string]float64{}}
	if err := b.topicWithRecords(ctx, "start-there", "posted-there"); err != nil {
		return run, err
	}
	prepared, mirror, err := b.begin(ctx, engine, lab.Task{
		Source: b.lab.Source.Bootstrap(), Target: b.lab.Target.Bootstrap(), Pattern: "start-.*", Codec: dataset.None, Partitions: startPartitions,
	})
	if err != nil {
		return run, err
	}
	if failed := b.measureStart(ctx, &run, prepared, mirror, newTopic); failed != nil {
		run.Error = failed.Error()
		b.say("    %s: %v; end of its output:\n%s", engine, failed, mirror.LogTail(15))
	}
	if err := mirror.Stop(ctx); err != nil {
		run.Notes = append(run.Notes, err.Error())
	}
	return run, errors.Join(ctx.Err(), prepared.Close(context.WithoutCancel(ctx)), b.clean(ctx))
}

func (b *bench) measureStart(ctx context.Context, run *results.Run, prepared lab.Prepared, mirror *lab.Mirror, newTopic bool) error {
	remote := func(topic string) map[string]int32 { return map[string]int32{prepared.Remote(topic): startPartitions} }
	at, err := b.waitRecords(ctx, mirror, b.lab.Target, remote("start-there"), 1, firstWithin)
	if err != nil {
		return err
	}
	run.Metrics[results.FirstRecord] = at.Sub(mirror.Begun).Seconds()
	if worker, ok := prepared.(*lab.PreparedOurs); ok {
		begin := time.Now()
		if err := worker.AddFlow(ctx, worker.Pair(), lab.Task{Pattern: "posted-.*"}); err != nil {
			return err
		}
		if at, err = b.waitRecords(ctx, mirror, b.lab.Target, remote("posted-there"), 1, firstWithin); err != nil {
			return err
		}
		run.Metrics[results.FromPOST] = at.Sub(begin).Seconds()
	}
	if !newTopic {
		run.Notes = append(run.Notes, "not asked for a new topic, which takes ten minutes")
		return nil
	}
	begin := time.Now()
	if err := b.topicWithRecords(ctx, "start-later"); err != nil {
		return err
	}
	if at, err = b.waitRecords(ctx, mirror, b.lab.Target, remote("start-later"), 1, newTopicWithin); err != nil {
		return err
	}
	run.Metrics[results.NewTopic] = at.Sub(begin).Seconds()
	return nil
}

// topicWithRecords makes topics on the source with a record in each partition.
func (b *bench) topicWithRecords(ctx context.Context, topics ...string) error {
	if err := b.lab.Source.CreateTopics(ctx, startPartitions, topics...); err != nil {
		return err
	}
	return writeOneEach(ctx, b.lab.Source, topics, startPartitions)
}

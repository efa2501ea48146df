package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/procfs"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

// How long a contestant may do nothing before it counts as hanging.
const (
	firstWithin    = 3 * time.Minute
	progressWithin = 90 * time.Second
)

// drainTask is a set on the source that contestants copy, each to a topic of its own.
type drainTask struct {
	set            dataset.Set
	loaded         dataset.Loaded
	source, target string // bootstrap servers for the mirror
	// window ends the run so long after the first record, drained or not; 0: only when drained.
	window time.Duration
}

// perRecord is the mean size of a record before compression.
func (t drainTask) perRecord() float64 {
	return float64(t.loaded.RawBytes) / float64(t.loaded.Records)
}

// drain runs one contestant over the task. A contestant that fails is a run with an error; the error returned is of the
// stage itself, or the end of ctx.
func (b *bench) drain(ctx context.Context, engine string, t drainTask) (results.Run, error) {
	run := results.Run{Engine: engine, Started: time.Now().UTC(), Metrics: map[string]float64{}}
	prepared, mirror, err := b.begin(ctx, engine, lab.Task{
		Source: t.source, Target: t.target, Topics: []string{t.set.Topic}, Codec: t.set.Codec, Partitions: t.set.Partitions,
	})
	if err != nil {
		return run, err
	}
	remote := prepared.Remote(t.set.Topic)
	samples, failed := b.watch(ctx, mirror, remote, t)
	run.SetSamples(samples)
	b.figures(&run, samples, t)
	if m, err := procfs.NewTree(mirror.Pid()).Memory(); err == nil {
		run.Metrics[results.PeakMB] = float64(m.Peak) / 1e6
	}
	if share, err := procfs.SystemShare(mirror.Pid()); err == nil {
		run.Metrics[results.SystemShare] = share
	}
	if failed != nil {
		run.Error = failed.Error()
		b.say("    %s: %v; end of its output:\n%s", engine, failed, mirror.LogTail(15))
	}
	if err := mirror.Stop(ctx); err != nil {
		run.Notes = append(run.Notes, err.Error())
	}
	if err := ctx.Err(); err != nil {
		return run, errors.Join(err, prepared.Close(context.WithoutCancel(ctx)))
	}
	if err := b.afterwards(ctx, &run, remote, t); err != nil {
		return run, err
	}
	return run, errors.Join(prepared.Close(ctx), b.clean(ctx, t.set.Topic))
}

// begin prepares a contestant on clean brokers and starts it.
func (b *bench) begin(ctx context.Context, engine string, task lab.Task) (lab.Prepared, *lab.Mirror, error) {
	e, err := b.lab.Engine(engine)
	if err != nil {
		return nil, nil, err
	}
	prepared, err := e.Prepare(ctx, task)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare %s: %w", engine, err)
	}
	mirror, err := prepared.Start(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", engine, err)
	}
	return prepared, mirror, nil
}

// clean removes from both brokers what a run left, and lets what is not written yet reach the disk outside of the next run.
func (b *bench) clean(ctx context.Context, keep ...string) error {
	if err := b.lab.Target.DeleteTopics(ctx); err != nil {
		return err
	}
	if err := b.lab.Source.DeleteTopics(ctx, keep...); err != nil {
		return err
	}
	syncDisks()
	return nil
}

// watch samples until the task is done, its window is over, or the mirror has failed. The samples begin with the first
// moment that could be observed.
func (b *bench) watch(ctx context.Context, mirror *lab.Mirror, remote string, t drainTask) ([]stats.Sample, error) {
	// Fine steps in the beginning, where the fast contestants do all of their work; then coarse ones, which cost less.
	const fine, coarse, fineFor = 20 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second
	watch := newWatch(b.lab, mirror)
	var samples []stats.Sample
	var first, moved time.Duration
	tick := time.NewTicker(fine)
	defer tick.Stop()
	step := fine
	for {
		ends, err := dataset.Ends(ctx, b.lab.Target.Client, map[string]int32{remote: t.set.Partitions})
		if err != nil {
			return samples, err
		}
		s, err := watch.sample(dataset.Sum(ends))
		if err != nil {
			return samples, err
		}
		if n := len(samples); s.Records > 0 && (n == 0 || s.Records > samples[n-1].Records) {
			moved = s.At
			if first == 0 {
				first = s.At
			}
		}
		samples = append(samples, s)
		switch {
		case s.Records >= t.set.Records(), t.window > 0 && first > 0 && s.At >= first+t.window:
			return samples, nil
		case first == 0 && s.At > firstWithin:
			return samples, fmt.Errorf("no record on the target after %s", firstWithin)
		case first > 0 && s.At > moved+progressWithin:
			return samples, fmt.Errorf("stands still at %d of %d records for %s", s.Records, t.set.Records(), progressWithin)
		case step == fine && first > 0 && s.At > first+fineFor:
			step = coarse
			tick.Reset(coarse)
		}
		select {
		case <-ctx.Done():
			return samples, ctx.Err()
		case <-mirror.Done():
			return samples, errors.New("the mirror's process ended")
		case <-tick.C:
		}
	}
}

// figures computes the run's metrics from its samples.
func (b *bench) figures(run *results.Run, samples []stats.Sample, t drainTask) {
	var first stats.Sample
	for _, s := range samples {
		if s.Records > 0 {
			first = s
			break
		}
	}
	if first.Records == 0 {
		return
	}
	last := samples[len(samples)-1]
	gb := func(records float64) float64 { return records * t.perRecord() / 1e9 }
	run.Metrics[results.FirstRecord] = first.At.Seconds()
	run.Metrics[results.MBAtEnd] = gb(float64(last.Records)) * 1e3
	if last.Records >= t.set.Records() {
		run.Metrics[results.Drain] = last.At.Seconds()
		run.Metrics[results.DrainFromFirst] = (last.At - first.At).Seconds()
		run.Metrics[results.CPUTotal] = last.CPU[mirrorCPU].Seconds() / gb(float64(last.Records))
	}
	w, ok := stats.Middle(samples, last.Records, 0.1, 0.9)
	if !ok {
		run.Notes = append(run.Notes, "too fast for the samples to show a steady middle")
		return
	}
	source, target := w.CPU[sourceCPU].Seconds(), w.CPU[targetCPU].Seconds()
	run.Metrics[results.Throughput] = gb(w.Records) * 1e3 / w.Seconds()
	run.Metrics[results.CPUSteady] = w.CPU[mirrorCPU].Seconds() / gb(w.Records)
	run.Metrics[results.SourceSteady] = source / gb(w.Records)
	run.Metrics[results.TargetSteady] = target / gb(w.Records)
	run.Metrics[results.BrokersSteady] = (source + target) / gb(w.Records)
	run.Metrics[results.BrokersCores] = (source + target) / w.Seconds()
	run.Metrics[results.AllCores] = (source + target + w.CPU[mirrorCPU].Seconds()) / w.Seconds()
}

// afterwards checks the copy and its size, once the mirror has ended.
func (b *bench) afterwards(ctx context.Context, run *results.Run, remote string, t drainTask) error {
	checked, err := dataset.Check(ctx, b.lab.Target.Bootstrap(), remote, t.set)
	if err != nil {
		run.Error = joinText(run.Error, "the copy could not be checked: "+err.Error())
		return ctx.Err()
	}
	run.Checked = &checked
	if !checked.Good() {
		run.Error = joinText(run.Error, fmt.Sprintf("the copy differs: %d missing, %d twice, %d out of order, %d changed; first: %s",
			checked.Missing, checked.Duplicates, checked.Disordered, checked.Different, checked.First))
	}
	if checked.Records < t.set.Records() {
		return nil // not drained: sizes do not compare
	}
	have, err := b.lab.Source.LogBytes(t.set.Topic)
	if err != nil {
		return err
	}
	got, err := b.lab.Target.LogBytes(remote)
	if err != nil {
		return err
	}
	run.Metrics[results.DiskRatio] = float64(got) / float64(have)
	return nil
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

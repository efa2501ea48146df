package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/procfs"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

const (
	latencyPartitions  = 16
	latencyRecordBytes = 1024
	// Time for compilers and caches before the clock counts, and the counted time.
	latencyWarmUp  = 20 * time.Second
	latencyMeasure = 60 * time.Second
)

// latencyCase sends records at fixed times, whatever happens to them, and measures when they can be read.
func (b *bench) latencyCase(ctx context.Context, r *results.Result, rate int) error {
	engines, err := b.contestants(lab.MM2Tuned, lab.Ours)
	if err != nil {
		return err
	}
	// Pauses of this process would count as latency of both sides.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	r.Params["rate"], r.Params["measured"] = fmt.Sprint(rate), b.scaled(latencyMeasure).String()
	return b.rounds(r, engines, func(engine string) (results.Run, error) { return b.latency(ctx, engine, r.Case, rate) })
}

func (b *bench) latency(ctx context.Context, engine, topic string, rate int) (results.Run, error) {
	run := results.Run{Engine: engine, Started: time.Now().UTC(), Metrics: map[string]float64{}}
	if err := b.lab.Source.CreateTopics(ctx, latencyPartitions, topic); err != nil {
		return run, err
	}
	prepared, mirror, err := b.begin(ctx, engine, lab.Task{
		Source: b.lab.Source.Bootstrap(), Target: b.lab.Target.Bootstrap(), Topics: []string{topic}, Codec: dataset.None, Partitions: latencyPartitions,
	})
	if err != nil {
		return run, err
	}
	failed := b.measureLatency(ctx, &run, mirror, topic, prepared.Remote(topic), rate)
	if failed != nil {
		run.Error = failed.Error()
		b.say("    %s: %v; end of its output:\n%s", engine, failed, mirror.LogTail(15))
	}
	if err := mirror.Stop(ctx); err != nil {
		run.Notes = append(run.Notes, err.Error())
	}
	return run, errors.Join(ctx.Err(), prepared.Close(context.WithoutCancel(ctx)), b.clean(ctx))
}

func (b *bench) measureLatency(ctx context.Context, run *results.Run, mirror *lab.Mirror, topic, remote string, rate int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	warmUp, measure := b.scaled(latencyWarmUp), b.scaled(latencyMeasure)
	p := newPacer(topic, rate)
	atSource, err := startReader(ctx, b.lab.Source.Bootstrap(), topic, p)
	if err != nil {
		return err
	}
	defer atSource.stop()
	sending, err := p.start(ctx, b.lab.Source.Bootstrap())
	if err != nil {
		return err
	}
	defer sending()
	if _, err := b.waitRecords(ctx, mirror, b.lab.Target, map[string]int32{remote: latencyPartitions}, latencyPartitions, firstWithin); err != nil {
		return err
	}
	atTarget, err := startReader(ctx, b.lab.Target.Bootstrap(), remote, p)
	if err != nil {
		return err
	}
	defer atTarget.stop()
	if err := pause(ctx, mirror, warmUp); err != nil {
		return err
	}
	tree := procfs.NewTree(mirror.Pid())
	from := time.Now()
	before, err := tree.CPU()
	if err != nil {
		return err
	}
	if err := pause(ctx, mirror, measure); err != nil {
		return err
	}
	to := time.Now()
	after, err := tree.CPU()
	if err != nil {
		return err
	}
	run.Metrics[results.LoadCPU] = 100 * (after - before).Seconds() / to.Sub(from).Seconds()
	if m, err := tree.Memory(); err == nil {
		run.Metrics[results.PeakMB] = float64(m.Peak) / 1e6
	}
	// What was sent in time may still be on its way.
	if err := pause(ctx, mirror, 3*time.Second); err != nil {
		return err
	}
	sending()
	if err := p.err(); err != nil {
		return err
	}
	first, last := p.between(from, to)
	target, source := atTarget.latencies(first, last), atSource.latencies(first, last)
	want := int(last - first)
	run.Notes = append(run.Notes, fmt.Sprintf("%d records in the measured time", want))
	run.SetLatencies(target, source)
	if len(target) != want || len(source) != want {
		return fmt.Errorf("of %d records %d were read at the target and %d at the source within 3 s after the last", want, len(target), len(source))
	}
	return nil
}

// pacer sends records at times that are fixed before.
type pacer struct {
	topic    string
	interval time.Duration
	began    time.Time

	mu     sync.Mutex
	failed error
}

func newPacer(topic string, rate int) *pacer {
	return &pacer{topic: topic, interval: time.Second / time.Duration(rate)}
}

// intended is when record i is to be sent.
func (p *pacer) intended(i int64) time.Time { return p.began.Add(time.Duration(i) * p.interval) }

// between returns the records that were to be sent from a time on and before another.
func (p *pacer) between(from, to time.Time) (first, last int64) {
	return int64(from.Sub(p.began)/p.interval) + 1, int64(to.Sub(p.began)/p.interval) + 1
}

func (p *pacer) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// start begins to send, without waiting for answers. The function returned ends it and may be called twice.
func (p *pacer) start(ctx context.Context, bootstrap string) (stop func(), err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("mirrorbench-pacer"), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(1<<20), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p.began = time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(0); ctx.Err() == nil; i++ {
			if wait := time.Until(p.intended(i)); wait > 0 {
				time.Sleep(wait)
			}
			value := make([]byte, latencyRecordBytes)
			binary.BigEndian.PutUint64(value, uint64(i))
			cl.Produce(ctx, &kgo.Record{Topic: p.topic, Partition: int32(i % latencyPartitions), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					p.mu.Lock()
					p.failed = err
					p.mu.Unlock()
				}
			})
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		cl.Close()
	}), nil
}

// reader reads a topic from its beginning and notes when each record came.
type reader struct {
	pacer *pacer
	stop  func()

	mu   sync.Mutex
	came map[int64]time.Time // the first time
}

func startReader(ctx context.Context, bootstrap, topic string, p *pacer) (*reader, error) {
	from := map[int32]kgo.Offset{}
	for n := range int32(latencyPartitions) {
		from[n] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("mirrorbench-reader"), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	r := &reader{pacer: p, came: map[int64]time.Time{}}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			now := time.Now()
			r.mu.Lock()
			fetches.EachRecord(func(record *kgo.Record) {
				if len(record.Value) < 8 {
					return
				}
				i := int64(binary.BigEndian.Uint64(record.Value))
				if _, again := r.came[i]; !again {
					r.came[i] = now
				}
			})
			r.mu.Unlock()
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		cl.Close()
	})
	return r, nil
}

// latencies are those of the records from first to before last that came, in milliseconds, sorted.
func (r *reader) latencies(first, last int64) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []float64
	for i := first; i < last; i++ {
		if came, ok := r.came[i]; ok {
			out = append(out, float64(came.Sub(r.pacer.intended(i)))/float64(time.Millisecond))
		}
	}
	slices.Sort(out)
	return out
}

// pause lets time pass while the mirror lives.
func pause(ctx context.Context, mirror *lab.Mirror, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-mirror.Done():
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEnded = errors.New("the mirror's process ended")

// waitRecords waits until so many records are in topics of a broker, and returns when it saw them.
func (b *bench) waitRecords(ctx context.Context, mirror *lab.Mirror, broker *lab.Broker, topics map[string]int32, records int64, within time.Duration) (time.Time, error) {
	limit := time.NewTimer(within)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin, step := time.Now(), 5*time.Millisecond
	for {
		ends, err := dataset.Ends(ctx, broker.Client, topics)
		if err != nil {
			return time.Time{}, err
		}
		now := time.Now()
		if dataset.Sum(ends) >= records {
			return now, nil
		}
		// What takes long needs no fine steps.
		if step < 100*time.Millisecond && now.Sub(begin) > 10*time.Second {
			step = 100 * time.Millisecond
			tick.Reset(step)
		}
		select {
		case <-tick.C:
		case <-mirror.Done():
			return time.Time{}, errEnded
		case <-limit.C:
			return time.Time{}, fmt.Errorf("%d of %d records on the target after %s", dataset.Sum(ends), records, within)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

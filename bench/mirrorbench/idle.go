package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/procfs"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

const (
	idlePartitions = 10
	// Time to become calm, and the time that is measured.
	idleSettle  = 20 * time.Second
	idleMeasure = 30 * time.Second
	// MM2 takes its time to make thousands of partitions.
	idleFill = 6 * time.Minute
)

// idleCase measures what mirrors cost that have nothing to do.
func (b *bench) idleCase(ctx context.Context, r *results.Result, topics int) error {
	// Not the tuned MM2: batch buffers of 1 MB for 1,000 partitions do not fit its heap of 1 GB, and it ends.
	engines, err := b.contestants(lab.MM2, lab.Ours)
	if err != nil {
		return err
	}
	names, err := b.oneRecordEach(ctx, b.lab.Source, "idle", topics, idlePartitions)
	if err != nil {
		return err
	}
	r.Params["measured"] = b.scaled(idleMeasure).String()
	err = b.rounds(r, engines, func(engine string) (results.Run, error) { return b.idle(ctx, engine, names) })
	if err != nil {
		return err
	}
	return b.clean(ctx)
}

func (b *bench) idle(ctx context.Context, engine string, names []string) (results.Run, error) {
	run := results.Run{Engine: engine, Started: time.Now().UTC(), Metrics: map[string]float64{}}
	prepared, mirror, err := b.begin(ctx, engine, lab.Task{
		Source: b.lab.Source.Bootstrap(), Target: b.lab.Target.Bootstrap(), Topics: names, Codec: dataset.None, Partitions: idlePartitions,
	})
	if err != nil {
		return run, err
	}
	remotes := map[string]int32{}
	for _, n := range names {
		remotes[prepared.Remote(n)] = idlePartitions
	}
	failed := b.measureIdle(ctx, &run, mirror, []filled{{b.lab.Target, remotes}}, b.lab.Source, b.lab.Target)
	if failed != nil {
		run.Error = failed.Error()
		b.say("    %s: %v; end of its output:\n%s", engine, failed, mirror.LogTail(15))
	}
	if err := mirror.Stop(ctx); err != nil {
		run.Notes = append(run.Notes, err.Error())
	}
	return run, errors.Join(ctx.Err(), prepared.Close(context.WithoutCancel(ctx)), b.clean(ctx, names...))
}

// filled is a broker with the topics that get one record in each partition.
type filled struct {
	broker *lab.Broker
	topics map[string]int32
}

// measureIdle waits until all has been copied and the mirror is calm, then measures.
func (b *bench) measureIdle(ctx context.Context, run *results.Run, mirror *lab.Mirror, targets []filled, brokers ...*lab.Broker) error {
	for _, t := range targets {
		records := int64(0)
		for _, partitions := range t.topics {
			records += int64(partitions)
		}
		at, err := b.waitRecords(ctx, mirror, t.broker, t.topics, records, idleFill)
		if err != nil {
			return err
		}
		run.Metrics[results.Drain] = max(run.Metrics[results.Drain], at.Sub(mirror.Begun).Seconds())
	}
	if err := pause(ctx, mirror, b.scaled(idleSettle)); err != nil {
		return err
	}
	tree := procfs.NewTree(mirror.Pid())
	own, err := tree.CPU()
	if err != nil {
		return err
	}
	theirs, err := cpuOf(brokers)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, mirror, b.scaled(idleMeasure)); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	ownAfter, err := tree.CPU()
	if err != nil {
		return err
	}
	theirsAfter, err := cpuOf(brokers)
	if err != nil {
		return err
	}
	memory, err := tree.Memory()
	if err != nil {
		return err
	}
	connections, err := tree.Connections()
	if err != nil {
		return err
	}
	run.Metrics[results.IdleCPU] = 100 * (ownAfter - own).Seconds() / took
	run.Metrics[results.IdleBrokers] = 100 * (theirsAfter - theirs).Seconds() / took
	run.Metrics[results.RSSMB] = float64(memory.Now) / 1e6
	run.Metrics[results.PeakMB] = float64(memory.Peak) / 1e6
	run.Metrics[results.Connections], err = mostConnections(connections, brokers)
	return err
}

func cpuOf(brokers []*lab.Broker) (sum time.Duration, err error) {
	for _, broker := range brokers {
		d, err := procfs.NewTree(broker.Pid()).CPU()
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// mostConnections is the number of connections to the broker that has most.
func mostConnections(connections map[netip.AddrPort]int, brokers []*lab.Broker) (float64, error) {
	most := 0
	for _, broker := range brokers {
		n := 0
		for _, addr := range []string{broker.Bootstrap(), broker.Far} {
			at, err := netip.ParseAddrPort(addr)
			if err != nil {
				return 0, fmt.Errorf("a broker's address: %w", err)
			}
			n += connections[at]
		}
		most = max(most, n)
	}
	return float64(most), nil
}

// oneRecordEach makes topics and writes a record into each partition.
func (b *bench) oneRecordEach(ctx context.Context, broker *lab.Broker, prefix string, topics int, partitions int32) ([]string, error) {
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("%s-%04d", prefix, i))
	}
	if err := broker.CreateTopics(ctx, partitions, names...); err != nil {
		return nil, err
	}
	return names, writeOneEach(ctx, broker, names, partitions)
}

func writeOneEach(ctx context.Context, broker *lab.Broker, topics []string, partitions int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap()), kgo.ClientID("mirrorbench"), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for _, name := range topics {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: name, Partition: p, Value: []byte("the only record")})
		}
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// flowsCase measures a worker with many flows.
func (b *bench) flowsCase(ctx context.Context, r *results.Result, flows int) error {
	engines, err := b.contestants(lab.Ours)
	if err != nil {
		return err
	}
	secondSource, secondTarget, err := b.lab.SecondPair(ctx)
	if err != nil {
		return err
	}
	sides := [][2]*lab.Broker{{b.lab.Source, b.lab.Target}, {secondSource, secondTarget}}
	var names []string
	for _, side := range sides {
		if names, err = b.oneRecordEach(ctx, side[0], "flow", flows/len(sides), 1); err != nil {
			return err
		}
	}
	r.Params["measured"] = b.scaled(idleMeasure).String()
	err = b.rounds(r, engines, func(engine string) (results.Run, error) { return b.flows(ctx, engine, names, sides) })
	if err != nil {
		return err
	}
	for _, side := range sides {
		if err := errors.Join(side[0].DeleteTopics(ctx), side[1].DeleteTopics(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) flows(ctx context.Context, engine string, names []string, sides [][2]*lab.Broker) (results.Run, error) {
	run := results.Run{Engine: engine, Started: time.Now().UTC(), Metrics: map[string]float64{}}
	worker, err := b.lab.Worker(engine)
	if err != nil {
		return run, err
	}
	var targets []filled
	var brokers []*lab.Broker
	for _, side := range sides {
		pair, err := b.lab.Pair(ctx, side[0].Bootstrap(), side[1].Bootstrap())
		if err != nil {
			return run, err
		}
		remotes := map[string]int32{}
		for _, name := range names {
			if err := worker.AddFlow(ctx, pair, lab.Task{Topics: []string{name}}); err != nil {
				return run, err
			}
			remotes[pair.Remote(name)] = 1
		}
		targets, brokers = append(targets, filled{side[1], remotes}), append(brokers, side[:]...)
	}
	mirror, err := worker.Start(ctx)
	if err != nil {
		return run, err
	}
	if failed := b.measureIdle(ctx, &run, mirror, targets, brokers...); failed != nil {
		run.Error = failed.Error()
		b.say("    %s: %v; end of its output:\n%s", engine, failed, mirror.LogTail(15))
	}
	if err := mirror.Stop(ctx); err != nil {
		run.Notes = append(run.Notes, err.Error())
	}
	err = errors.Join(ctx.Err(), worker.Close(context.WithoutCancel(ctx)))
	for _, side := range sides {
		err = errors.Join(err, side[1].DeleteTopics(ctx), side[0].DeleteTopics(ctx, names...))
	}
	return run, err
}

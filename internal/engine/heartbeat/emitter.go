package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Bounds of one heartbeat and of the wait after a failed one.
const (
	emitTimeout = 8 * time.Second
	minBackoff  = time.Second
	maxBackoff  = 30 * time.Second
)

// Config describes one stream of heartbeats. All members but MayWrite and Now are required.
type Config struct {
	// Client is a client of the cluster that carries the heartbeats: the flow's target, or its source for backward
	// heartbeats. It must have been made with kgo.RecordPartitioner(kgo.ManualPartitioner()).
	Client *kgo.Client
	// SourceAlias and TargetAlias go into the records. For backward heartbeats they are swapped by the caller, so that
	// TargetAlias always names the cluster that Client writes to.
	SourceAlias, TargetAlias string
	Policy                   mm2.ReplicationPolicy
	// Interval between heartbeats (emit.heartbeats.interval.seconds). The first comes at once.
	Interval time.Duration
	// ReplicationFactor of a heartbeats topic that is made here; -1 leaves it to the cluster.
	ReplicationFactor int16
	Board             *report.Board
	Logger            *slog.Logger
	// MayWrite is asked right before something is sent; false: the heartbeat is left out. Default: always.
	MayWrite func() bool
	// Side is "source" or "target" for messages.
	Side string
	Now  func() time.Time // default time.Now
}

// Emitter writes heartbeats for one pair of aliases to one cluster.
type Emitter struct {
	cfg     Config
	topic   string
	subject report.Subject
	created bool
}

// New checks the configuration.
func New(cfg Config) (*Emitter, error) {
	switch {
	case cfg.Client == nil || cfg.Policy == nil || cfg.Board == nil || cfg.Logger == nil:
		return nil, fmt.Errorf("heartbeat: Client, Policy, Board and Logger are required")
	case cfg.SourceAlias == "" || cfg.TargetAlias == "":
		return nil, fmt.Errorf("heartbeat: SourceAlias and TargetAlias are required")
	case cfg.Interval <= 0:
		return nil, fmt.Errorf("heartbeat: Interval must be positive")
	case !kafka.PartitionsManually(cfg.Client):
		return nil, fmt.Errorf("heartbeat: Client must have the manual partitioner")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MayWrite == nil {
		cfg.MayWrite = func() bool { return true }
	}
	e := &Emitter{cfg: cfg, topic: cfg.Policy.HeartbeatsTopic(), subject: report.Flow}
	if cfg.Side == "source" {
		// Beside the forward emitter's condition, which is about the flow.
		e.subject.Topic = e.topic
	}
	return e, nil
}

// Run emits until ctx ends. Failures become the condition HEARTBEAT_FAILED and
// are tried again after a growing wait; they never end Run.
func (e *Emitter) Run(ctx context.Context) error {
	defer e.cfg.Board.Clear(report.HeartbeatFailed, e.subject)
	failures := 0
	for {
		wait := e.cfg.Interval
		switch err := e.emit(ctx); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.Canceled):
			// Another task gave up a record before ours and took it with it: the next one comes in its time.
		case err != nil:
			wait = min(maxBackoff, minBackoff<<min(failures, 10))
			failures++
			e.failed(err, failures)
		default:
			failures = 0
			e.cfg.Board.Clear(report.HeartbeatFailed, e.subject)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (e *Emitter) emit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, emitTimeout)
	defer cancel()
	if !e.cfg.MayWrite() {
		return nil
	}
	if !e.created {
		if err := kafka.EnsureCompacted(ctx, e.cfg.Client, e.topic, e.cfg.ReplicationFactor); err != nil {
			return err
		}
		e.created = true
	}
	now := e.cfg.Now()
	beat := mm2.Heartbeat{SourceAlias: e.cfg.SourceAlias, TargetAlias: e.cfg.TargetAlias, Timestamp: now.UnixMilli()}
	key, err := beat.Key()
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	record := &kgo.Record{Topic: e.topic, Partition: 0, Key: key, Value: beat.Value(), Timestamp: time.UnixMilli(beat.Timestamp)}
	if err := sidetopic.Write(ctx, e.cfg.Client, record)[0]; err != nil {
		if kafka.KindOf(err) == kafka.KindTopicMissing {
			// Deleted meanwhile, or never ours to make: the next round tries to make it.
			e.created = false
		}
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return nil
}

func (e *Emitter) failed(err error, failures int) {
	remedy := "It is tried again by itself. The user of the service needs CREATE and WRITE on the topic " + e.topic + "."
	if p := kafka.Classify(err); p != nil {
		remedy = p.Remedy
	} else if kafka.KindOf(err) == kafka.KindConfig {
		remedy = "Set replicationFactor to what the cluster allows, or create the topic " + e.topic + " (one partition, compacted) by hand."
	}
	e.cfg.Board.Set(report.Condition{
		Code: report.HeartbeatFailed, Severity: report.Warning, Subject: e.subject,
		Message:  fmt.Sprintf("No heartbeat could be written to the topic %s on the %s cluster, %d times in a row.", e.topic, e.cfg.Side, failures),
		Evidence: map[string]any{"failures": failures, "error": kafka.Brief(err)},
		Remedy:   remedy,
	})
	e.cfg.Logger.Debug("heartbeat failed", slog.String("topic", e.topic), slog.String("side", e.cfg.Side), slog.Int("failures", failures), slog.Any("error", err))
}

package engine

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/groups"
	"github.com/mirrorflow/mirrorflow/internal/engine/heartbeat"
	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/syncs"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// runner is a room with a loop of its own that works beside the copying. Its trouble is a condition, never an error.
type runner interface {
	Run(ctx context.Context) error
}

// finisher is a runner with something left to do at a clean stop, after its Run ended.
type finisher interface {
	Finish(ctx context.Context) error
}

// grouper is a runner that knows the groups.
type grouper interface {
	Groups() []report.Group
}

// offsetSyncs is the offset-syncs topic, as this package uses it; *syncs.Writer is one.
type offsetSyncs interface {
	// Run writes until ctx ends, and gives up its client then.
	Run(ctx context.Context) error
	// Observe notes acknowledged spans.
	Observe(topic string, partition int32, spans []mirror.Span)
	// Forget says that a partition begins anew, perhaps elsewhere.
	Forget(topic string, partition int32)
	// Flush writes what is due.
	Flush(ctx context.Context) error
}

// rooms makes what a task is built of; tests put others in.
type rooms struct {
	path   func(t *Task) (mirror.Path, error)
	store  func(t *Task) (store, error)
	syncs  func(t *Task) (offsetSyncs, error)
	beside func(t *Task) ([]runner, error)
}

// clientID names the task to brokers: pair, flow and task, and a role behind that (mm2: <source>-><target>|...).
func (t *Task) clientID(role string) string {
	return fmt.Sprintf("%s->%s|%s-%d|%s", t.cfg.SourceAlias, t.cfg.TargetAlias, t.cfg.Identity.FlowID, t.cfg.Identity.Task, role)
}

// makeClients makes the admin clients; nothing is dialled.
func (t *Task) makeClients() error {
	source, err := kafka.NewClient(t.cfg.Source, t.clientID("source-admin"), t.log, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return fmt.Errorf("engine: Config.Source: %w", err)
	}
	target, err := kafka.NewClient(t.cfg.Target, t.clientID("target-admin"), t.log, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		source.Close()
		return fmt.Errorf("engine: Config.Target: %w", err)
	}
	t.onClose(source.Close)
	t.onClose(target.Close)
	t.source = newSide(sideSource, t.cfg.Source, source, t.board, t.log)
	t.target = newSide(sideTarget, t.cfg.Target, target, t.board, t.log)
	return nil
}

// makeTopics compiles the lists and makes the topics room and the metrics.
func (t *Task) makeTopics() error {
	include, err := topics.Compile("Topics", t.cfg.Topics)
	if err != nil {
		return fmt.Errorf("engine: Config.%w", err)
	}
	exclude, err := topics.Compile("TopicExcludeList", t.cfg.TopicExcludeList)
	if err != nil {
		return fmt.Errorf("engine: Config.%w", err)
	}
	configs, err := topics.Compile("ConfigPropertiesExclude", t.cfg.ConfigPropertiesExclude)
	if err != nil {
		return fmt.Errorf("engine: Config.%w", err)
	}
	t.topicFilter = mm2.NewTopicFilter(include, exclude)
	rule := mm2.TopicSelector{
		Filter: t.topicFilter, Policy: t.policy, SourceAlias: t.cfg.SourceAlias, TargetAlias: t.cfg.TargetAlias,
		KnownAliases: t.cfg.KnownAliases, Heartbeats: mm2.HeartbeatsAlways,
	}
	if !t.cfg.EmitHeartbeats {
		rule.Heartbeats = mm2.HeartbeatsNever // off means none written and none mirrored
	}
	mode := mm2.ConfigSyncIncremental
	if t.cfg.MirrorTopicConfigs {
		mode = mm2.ConfigSyncMirror
	}
	t.ledger = &ledger{notes: func() notes { return t.store }}
	t.topics = topics.New(topics.Config{
		Source: t.source.client, Target: t.target.client, Selector: rule, Exclude: configs, SyncConfigs: t.cfg.SyncTopicConfigs,
		Mode: mode, ReplicationFactor: t.cfg.ReplicationFactor, KnownConfigsFrom: mm2.StateTopic(t.cfg.SourceAlias),
		Ledger: t.ledger, Board: t.board, Logger: t.log,
	})
	if t.m, err = newMetrics(t.cfg); err != nil {
		return err
	}
	t.onClose(t.m.unregister)
	return nil
}

// makeRooms makes what needs no more than settings, once both clusters are known to be the right ones.
func (t *Task) makeRooms() (err error) {
	if t.store, err = t.rooms.store(t); err != nil {
		return fmt.Errorf("engine: state: %w", err)
	}
	t.onClose(t.store.Close)
	return nil
}

// makePath makes the path and what runs beside it. What was made must be run, which is what closes it in the end.
func (t *Task) makePath() error {
	beside, err := t.rooms.beside(t)
	if err != nil {
		return err
	}
	t.statusMu.Lock()
	t.beside = beside
	t.statusMu.Unlock()
	if t.syncs, err = t.rooms.syncs(t); err != nil {
		return fmt.Errorf("engine: offset syncs: %w", err)
	}
	if t.path, err = t.rooms.path(t); err != nil {
		return fmt.Errorf("engine: data path: %w", err)
	}
	t.rate.limits(t.path)
	return nil
}

func (t *Task) besideNow() []runner {
	t.statusMu.Lock()
	defer t.statusMu.Unlock()
	return t.beside
}

func defaultRooms() rooms {
	return rooms{
		path: func(t *Task) (mirror.Path, error) {
			return mirror.New(mirror.Config{
				PassThrough: t.cfg.PassThrough,
				Source:      t.cfg.Source, Target: t.cfg.Target, ReadUncommitted: t.cfg.ReadUncommitted, Flow: t.cfg.Identity.FlowID, Task: t.cfg.Identity.Task,
				ClientID: fmt.Sprintf("%s->%s|%s-%d", t.cfg.SourceAlias, t.cfg.TargetAlias, t.cfg.Identity.FlowID, t.cfg.Identity.Task),
				Logger:   t.log, Registry: t.cfg.Registry, Observer: observer{t},
				MayWrite: t.cfg.MayWrite,
			})
		},
		store:  openStore,
		syncs:  openSyncs,
		beside: makeBeside,
	}
}

func openStore(t *Task) (store, error) {
	return state.Open(state.Config{
		Target: t.cfg.Target, ClientID: t.clientID("state"), SourceAlias: t.cfg.SourceAlias,
		Flow: t.cfg.Identity.FlowID, LeaseEpoch: t.cfg.Identity.LeaseEpoch,
		ReplicationFactor: t.cfg.ReplicationFactor, MM2Positions: true, MayWrite: t.cfg.MayWrite, Logger: t.log,
		RemoteTopic: func(source string) string { return t.policy.FormatRemoteTopic(t.cfg.SourceAlias, source) },
	})
}

func openSyncs(t *Task) (offsetSyncs, error) {
	on, alias := t.target, t.cfg.SourceAlias // the topic carries the alias of the other cluster
	if t.cfg.OffsetSyncsOnSource {
		on, alias = t.source, t.cfg.TargetAlias
	}
	topic := t.policy.OffsetSyncsTopic(alias)
	return syncs.New(syncs.Config{
		Cluster: on.cluster, ClientID: t.clientID("offset-syncs-" + on.name + "-producer"), Topic: topic,
		ReplicationFactor: t.cfg.ReplicationFactor, LagMax: t.cfg.OffsetLagMax, Logger: t.log,
		OnError: func(err error) { t.syncsFailed(on, topic, err) },
	})
}

// syncsFailed keeps OFFSET_SYNCS_FAILED in step. Copying, and our own group sync, do not need the topic; MM2's readers do.
func (t *Task) syncsFailed(on *side, topic string, err error) {
	if err == nil {
		t.board.Clear(report.OffsetSyncsFailed, report.Flow)
		return
	}
	t.board.Set(report.Condition{
		Code: report.OffsetSyncsFailed, Severity: report.Warning, Subject: report.Flow,
		Message:  fmt.Sprintf("offset syncs cannot be written to %s on the %s: %s", topic, on.name, kafka.Brief(err)),
		Evidence: map[string]any{"topic": topic, "side": on.name},
		Remedy:   "grant CREATE and WRITE on the topic; with offsetSyncsTopicLocation target nothing is written to the source",
	})
}

// makeBeside makes what task 0 does for the flow: heartbeats and groups.
func makeBeside(t *Task) ([]runner, error) {
	if !t.leads() {
		return nil, nil
	}
	var out []runner
	if t.cfg.EmitHeartbeats {
		e, err := t.heartbeats(t.target, t.cfg.SourceAlias, t.cfg.TargetAlias)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if t.cfg.EmitBackwardHeartbeats {
		e, err := t.heartbeats(t.source, t.cfg.TargetAlias, t.cfg.SourceAlias)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	g, err := t.groups()
	if err != nil {
		return nil, err
	}
	return append(out, groupRunner{g}), nil
}

func (t *Task) heartbeats(on *side, source, target string) (runner, error) {
	e, err := heartbeat.New(heartbeat.Config{
		Client: on.client, SourceAlias: source, TargetAlias: target, Policy: t.policy, Interval: t.cfg.EmitHeartbeatsInterval,
		ReplicationFactor: t.cfg.ReplicationFactor, Board: t.board, Logger: t.log, Side: on.name,
	})
	if err != nil {
		return nil, fmt.Errorf("engine: heartbeats: %w", err)
	}
	id := t.targetID
	if on == t.source {
		id = t.sourceID
	}
	return inTurn{runner: e, turns: &emitting, pair: pair{id, source, target}}, nil
}

// groupRunner adds the last sync to the room.
type groupRunner struct{ *groups.Room }

// Finish implements finisher.
func (g groupRunner) Finish(ctx context.Context) error { return g.SyncOnce(ctx) }

func (t *Task) groups() (*groups.Room, error) {
	include, err := topics.Compile("Groups", t.cfg.Groups)
	if err != nil {
		return nil, fmt.Errorf("engine: Config.%w", err)
	}
	exclude, err := topics.Compile("GroupExcludeList", t.cfg.GroupExcludeList)
	if err != nil {
		return nil, fmt.Errorf("engine: Config.%w", err)
	}
	g, err := groups.New(groups.Config{
		Source: t.source.client, Target: t.target.client,
		Policy: t.policy, SourceAlias: t.cfg.SourceAlias, TargetAlias: t.cfg.TargetAlias,
		GroupFilter: mm2.NewGroupFilter(include, exclude),
		TopicFilter: func(topic string) bool {
			v, err := t.topicFilter.Match(topic)
			return err == nil && v.Passes
		},
		Translator: translator{t}, MayWrite: t.cfg.MayWrite, SyncGroupOffsets: t.cfg.SyncGroupOffsets, SyncInterval: t.cfg.SyncInterval,
		CheckpointInterval: t.cfg.EmitCheckpointsInterval, RefreshInterval: t.cfg.RefreshGroupsInterval,
		ReplicationFactor: t.cfg.ReplicationFactor, Board: t.board, Logger: t.log,
	})
	if err != nil {
		return nil, fmt.Errorf("engine: groups: %w", err)
	}
	return g, nil
}

// translator is the Task as the groups see it.
type translator struct{ t *Task }

// Translate implements groups.Translator.
func (tr translator) Translate(topic string, partition int32, offset int64) (to groups.Translation, ok bool, reason string) {
	got, id, ok := tr.t.translateTo(topic, partition, offset)
	switch {
	case !ok:
		return groups.Translation{}, false, "the partition is not mirrored yet"
	case !got.OK:
		return groups.Translation{}, false, string(got.Reason)
	}
	return groups.Translation{Target: got.Offset, Exact: got.Exact, Bound: got.Bound, TopicID: id}, true, ""
}

package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/groups"
	"github.com/mirrorflow/mirrorflow/internal/engine/heartbeat"
	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
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
	// Run writes until ctx ends.
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

// clientName names the task to brokers: pair, flow and task, and a side or role behind that (mm2: <source>-><target>|...).
// Connections that it shares with other tasks carry the hub's name instead.
func (t *Task) clientName() string {
	return fmt.Sprintf("%s->%s|%s-%d", t.cfg.SourceAlias, t.cfg.TargetAlias, t.cfg.Identity.FlowID, t.cfg.Identity.Task)
}

// joinClusters makes the task one of those that work with its clusters; nothing is dialled.
func (t *Task) joinClusters() error {
	h := t.cfg.Hub
	if h == nil {
		h = hub.New(hub.Config{ClientID: t.clientName(), Linger: -1, MayWrite: t.cfg.MayWrite, Logger: t.log})
		t.onClose(h.Close)
		// The task's rooms share their connections.
		t.cfg.Source.Key, t.cfg.Target.Key = t.clientName()+"|"+sideSource, t.clientName()+"|"+sideTarget
	}
	t.cfg.Hub = h
	t.cfg.Source.Side, t.cfg.Target.Side = cmp.Or(t.cfg.Source.Side, sideSource), cmp.Or(t.cfg.Target.Side, sideTarget)
	join := func(name string, cluster kafka.Cluster) (*side, error) {
		// Whether this task may write says nothing about the others on the same connections: the hub asks for all of them,
		// and what belongs to the task asks before it sends.
		cluster.MayWrite = nil
		part, err := h.Join(cluster)
		if err != nil {
			return nil, err
		}
		t.onClose(part.Leave)
		return newSide(name, cluster, part.Client(), t.board, t.log), nil
	}
	var err error
	if t.source, err = join(sideSource, t.cfg.Source); err != nil {
		return fmt.Errorf("engine: Config.Source: %w", err)
	}
	if t.target, err = join(sideTarget, t.cfg.Target); err != nil {
		return fmt.Errorf("engine: Config.Target: %w", err)
	}
	return nil
}

// gated asks whether the task may write before each request.
type gated struct {
	to       topics.Requester
	mayWrite func() bool
}

// Request implements topics.Requester.
func (g gated) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if !g.mayWrite() {
		return nil, kafka.ErrMayNotWrite
	}
	return g.to.Request(ctx, req)
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
	list, leave := shared.join(t.source.client)
	t.onClose(leave)
	t.ledger = &ledger{notes: func() notes { return t.store }}
	t.topics = topics.New(topics.Config{
		Source: gated{list, t.cfg.MayWrite}, Target: gated{t.target.client, t.cfg.MayWrite}, Selector: rule, Exclude: configs, SyncConfigs: t.cfg.SyncTopicConfigs,
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
				Hub: t.cfg.Hub, PassThrough: t.cfg.PassThrough,
				Source: t.cfg.Source, Target: t.cfg.Target, ReadUncommitted: t.cfg.ReadUncommitted, Flow: t.cfg.Identity.FlowID, Task: t.cfg.Identity.Task,
				ClientID: t.clientName(),
				Logger:   t.log, Registry: t.cfg.Registry, Observer: observer{t},
				MayWrite: t.cfg.MayWrite, Anchor: t.anchor,
			})
		},
		store:  openStore,
		syncs:  openSyncs,
		beside: makeBeside,
	}
}

func openStore(t *Task) (store, error) {
	cfg := t.stateConfig()
	cfg.Client = t.target.client
	return state.Open(cfg)
}

func (t *Task) stateConfig() state.Config {
	return state.Config{
		SourceAlias: t.cfg.SourceAlias,
		Flow:        t.cfg.Identity.FlowID, LeaseEpoch: t.cfg.Identity.LeaseEpoch,
		ReplicationFactor: t.cfg.ReplicationFactor, MM2Positions: true, MayWrite: t.cfg.MayWrite, Logger: t.log,
		RemoteTopic: func(source string) string { return t.policy.FormatRemoteTopic(t.cfg.SourceAlias, source) },
	}
}

func openSyncs(t *Task) (offsetSyncs, error) {
	on, alias := t.target, t.cfg.SourceAlias // the topic carries the alias of the other cluster
	if t.cfg.OffsetSyncsOnSource {
		on, alias = t.source, t.cfg.TargetAlias
	}
	topic := t.policy.OffsetSyncsTopic(alias)
	return syncs.New(syncs.Config{
		Client: on.client, MayWrite: t.cfg.MayWrite, Topic: topic,
		ReplicationFactor: t.cfg.ReplicationFactor, LagMax: t.cfg.OffsetLagMax, Logger: t.log,
		OnError: func(err error) { t.syncsFailed(on, topic, err) },
	})
}

// syncsFailed keeps OFFSET_SYNCS_FAILED in step. Copying, and our own group sync, do not need the topic; MM2's readers do.
// That the cluster is away is the side's to tell, which hears it from others.
func (t *Task) syncsFailed(on *side, topic string, err error) {
	if p := on.cluster.Classify(err); p != nil && p.Code != kafka.Forbidden {
		return
	}
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
		ReplicationFactor: t.cfg.ReplicationFactor, Board: t.board, Logger: t.log, Side: on.name, MayWrite: t.cfg.MayWrite,
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

package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// createChunk bounds one CreateTopics request.
const createChunk = 100

// leaderWait is how long Ensure waits for the leaders of topics it made. Producing earlier works too, but the client
// would sit out its metadata interval.
const leaderWait = 2 * time.Second

// Ensure makes the remote topics exist with at least the source's partitions, starting from what have says, and
// returns what the target has then. Each failure becomes a condition of its topic
// (TOPIC_CREATE_FAILED, TARGET_PARTITIONS_MISSING); the error is about the connection only.
func (r *Room) Ensure(ctx context.Context, wanted []Selected, have Target) (Target, error) {
	var missing, short []Selected
	for _, w := range wanted {
		err := have.Errors[w.Remote]
		t, ok := have.Topics[w.Remote]
		switch {
		case err != nil:
			r.createFailed(w, err)
		case !ok:
			missing = append(missing, w)
		case t.Partitions < w.Topic.Partitions:
			short = append(short, w)
		default:
			r.createDone(w)
		}
	}
	if len(missing) == 0 && len(short) == 0 {
		return have, nil
	}
	exist, err := r.create(ctx, missing)
	if err != nil {
		return have, err
	}
	if err := r.grow(ctx, short, have); err != nil {
		return have, err
	}
	return r.awaitLeaders(ctx, wanted, exist)
}

// awaitLeaders describes the remote topics until those that must exist are there with their leaders, for a while: the
// broker that answers may not have heard of them yet.
func (r *Room) awaitLeaders(ctx context.Context, wanted []Selected, exist []string) (Target, error) {
	names := make([]string, len(wanted))
	for i, w := range wanted {
		names[i] = w.Remote
	}
	deadline := time.Now().Add(leaderWait)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		now, err := r.DescribeTarget(ctx, names)
		if err != nil {
			return now, err
		}
		ready := true
		for _, name := range exist {
			ready = ready && now.Topics[name].Leaders && now.Topics[name].Partitions > 0
		}
		if ready || time.Now().After(deadline) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// create makes missing topics and answers which exist now, be it that they did before.
func (r *Room) create(ctx context.Context, missing []Selected) (exist []string, err error) {
	if len(missing) == 0 {
		return nil, nil
	}
	r.learnKnown(ctx)
	names := make([]string, len(missing))
	for i, w := range missing {
		names[i] = w.Topic.Name
	}
	configs, err := describeConfigs(ctx, r.cfg.Source, names)
	if err != nil {
		return nil, fmt.Errorf("describe configs of source topics: %w", err)
	}
	for len(missing) > 0 {
		n := min(len(missing), createChunk)
		there, err := r.createChunk(ctx, missing[:n], configs)
		if err != nil {
			return nil, err
		}
		exist = append(exist, there...)
		missing = missing[n:]
	}
	return exist, nil
}

func (r *Room) createChunk(ctx context.Context, chunk []Selected, configs map[string]described) (exist []string, err error) {
	req := r.createRequest()
	byRemote := map[string]Selected{}
	ops := map[string][]mm2.ConfigOp{}
	for _, w := range chunk {
		plan, err := r.planCreation(w, configs[w.Topic.Name])
		if err != nil {
			r.createFailed(w, err)
			continue
		}
		// Remembered first: what is remembered and was not set does no harm, the other way round we would never take
		// back what we set.
		if err := r.cfg.Ledger.SetOwned(ctx, w.Remote, plan.Owned); err != nil {
			return nil, fmt.Errorf("remember configs of %s: %w", w.Remote, err)
		}
		byRemote[w.Remote], ops[w.Remote] = w, plan.Ops
		req.Topics = append(req.Topics, r.createTopic(w, plan.Ops))
	}
	if len(req.Topics) == 0 {
		return nil, nil
	}
	resp, err := r.cfg.Target.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("create remote topics: %w", err)
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		w, ok := byRemote[t.Topic]
		if !ok {
			continue
		}
		err := brokerError(t.ErrorCode, t.ErrorMessage)
		if errors.Is(err, kerr.InvalidConfig) {
			err = r.createWithout(ctx, w, ops[t.Topic], err)
		}
		switch {
		case err == nil:
			exist = append(exist, w.Remote)
			r.createDone(w)
			r.cfg.Logger.Info("remote topic created", slog.String("topic", w.Topic.Name), slog.String("remote_topic", w.Remote), slog.Int("partitions", int(w.Topic.Partitions)))
		case errors.Is(err, kerr.TopicAlreadyExists):
			exist = append(exist, w.Remote)
			r.createDone(w)
		default:
			r.createFailed(w, err)
		}
	}
	return exist, nil
}

func (r *Room) createRequest() *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	return req
}

func (r *Room) createTopic(w Selected, ops []mm2.ConfigOp) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = w.Remote, w.Topic.Partitions, r.cfg.ReplicationFactor
	for _, op := range ops {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = op.Name, kmsg.StringPtr(op.Value)
		t.Configs = append(t.Configs, c)
	}
	return t
}

// planCreation decides the configs of a create request and tells which are left out.
func (r *Room) planCreation(w Selected, d described) (mm2.ConfigPlan, error) {
	if d.err != nil {
		// The records matter more than their topic's settings.
		r.configTrouble(w, "the source does not let us read the topic's configs ("+d.err.Error()+"); it is created with the target's defaults",
			nil, "grant DESCRIBE_CONFIGS on the topic on the source", d.err)
		return mm2.ConfigPlan{Owned: map[string]string{}}, nil //nolint:nilerr // shown, and no reason not to create
	}
	plan, err := r.filter.AtCreation(d.entries, r.known)
	if err != nil {
		return plan, wrapTopic(w.Topic.Name, err)
	}
	r.reportSkipped(w, plan.Skipped, nil)
	return plan, nil
}

// createWithout creates a topic whose configs the target refuses, leaving out those that it refuses one by one.
func (r *Room) createWithout(ctx context.Context, w Selected, ops []mm2.ConfigOp, first error) error {
	var good []mm2.ConfigOp
	bad := map[string]string{}
	why := map[string]string{}
	for _, op := range ops {
		req := r.createRequest()
		req.ValidateOnly = true
		req.Topics = append(req.Topics, r.createTopic(w, []mm2.ConfigOp{op}))
		err := r.createOne(ctx, req)
		switch {
		case err == nil:
			good = append(good, op)
		case errors.Is(err, kerr.InvalidConfig):
			bad[op.Name], why[op.Name] = op.Value, err.Error()
		default:
			return err
		}
	}
	if len(bad) == 0 {
		return first // each is fine, together they are not: a person must decide
	}
	if err := r.cfg.Ledger.SetOwned(ctx, w.Remote, ownedKeys(nil, good)); err != nil {
		return fmt.Errorf("remember configs of %s: %w", w.Remote, err)
	}
	req := r.createRequest()
	req.Topics = append(req.Topics, r.createTopic(w, good))
	if err := r.createOne(ctx, req); err != nil {
		return err
	}
	r.refused[w.Remote] = bad
	r.reportSkipped(w, nil, why)
	return nil
}

func (r *Room) createOne(ctx context.Context, req *kmsg.CreateTopicsRequest) error {
	resp, err := r.cfg.Target.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		return brokerError(t.ErrorCode, t.ErrorMessage)
	}
	return errors.New("the target answered a create request without naming the topic")
}

// grow adds partitions to remote topics that have fewer than their source.
func (r *Room) grow(ctx context.Context, short []Selected, have Target) error {
	if len(short) == 0 {
		return nil
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10_000
	byRemote := map[string]Selected{}
	for _, w := range short {
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = w.Remote, w.Topic.Partitions
		req.Topics = append(req.Topics, t)
		byRemote[w.Remote] = w
	}
	resp, err := r.cfg.Target.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("add partitions to remote topics: %w", err)
	}
	for _, t := range resp.(*kmsg.CreatePartitionsResponse).Topics {
		w, ok := byRemote[t.Topic]
		if !ok {
			continue
		}
		was := have.Topics[w.Remote].Partitions
		if err := brokerError(t.ErrorCode, t.ErrorMessage); err != nil {
			r.cfg.Board.Set(report.Condition{
				Code: report.TargetPartitions, Severity: report.Error, Subject: subject(w.Topic.Name),
				Message: fmt.Sprintf("%s has %d partitions, its source %s has %d, and the target refuses to add them: %s",
					w.Remote, was, w.Topic.Name, w.Topic.Partitions, err),
				Evidence: map[string]any{
					"remote_topic": w.Remote, "target_partitions": was, "source_partitions": w.Topic.Partitions,
				},
				Remedy: "grant ALTER on the remote topic, or add the partitions by hand; tried again at each refresh",
			})
			continue
		}
		r.createDone(w)
		r.cfg.Logger.Info("partitions added to remote topic", slog.String("topic", w.Topic.Name), slog.String("remote_topic", w.Remote), slog.Int("from", int(was)), slog.Int("to", int(w.Topic.Partitions)))
	}
	return nil
}

func subject(topic string) report.Subject { return report.Subject{Topic: topic, Partition: -1} }

func (r *Room) createDone(w Selected) {
	r.cfg.Board.Clear(report.TopicCreateFailed, subject(w.Topic.Name))
	r.cfg.Board.Clear(report.TargetPartitions, subject(w.Topic.Name))
}

// createFailed sets TOPIC_CREATE_FAILED with the broker's reason and what to do about it.
func (r *Room) createFailed(w Selected, err error) {
	remedy := "the reason is the target's; tried again at each refresh"
	switch {
	case denied(err):
		remedy = "grant CREATE on the remote topic (or on the target cluster), or create the topic by hand"
	case errors.Is(err, kerr.InvalidReplicationFactor):
		remedy = "lower replicationFactor (-1 takes the target's default), or add brokers to the target"
	case errors.Is(err, kerr.InvalidConfig):
		remedy = "exclude the property that the message names by configPropertiesExclude"
	case errors.Is(err, kerr.PolicyViolation):
		remedy = "the target's create policy refuses the topic; change the policy or create the topic by hand"
	}
	r.cfg.Board.Set(report.Condition{
		Code: report.TopicCreateFailed, Severity: report.Error, Subject: subject(w.Topic.Name),
		Message: fmt.Sprintf("cannot create %s (partitions %d, replication factor %d): %s", w.Remote, w.Topic.Partitions, r.cfg.ReplicationFactor, err),
		Evidence: map[string]any{
			"remote_topic": w.Remote, "partitions": w.Topic.Partitions, "replication_factor": r.cfg.ReplicationFactor,
		},
		Remedy: remedy,
	})
}

// configTrouble sets TOPIC_CONFIG_SYNC_FAILED.
func (r *Room) configTrouble(w Selected, what string, names []string, remedy string, err error) {
	ev := map[string]any{"remote_topic": w.Remote}
	if len(names) > 0 {
		ev["properties"] = names
	}
	s := subject(w.Topic.Name)
	if !r.cfg.Board.Has(report.TopicConfigSyncFailed, s) {
		r.cfg.Logger.Warn("topic configs not fully copied", slog.String("topic", w.Topic.Name), slog.String("remote_topic", w.Remote), slog.Any("properties", names), slog.Any("error", err))
	}
	r.cfg.Board.Set(report.Condition{
		Code: report.TopicConfigSyncFailed, Severity: report.Warning, Subject: s,
		Message: "configs of " + w.Topic.Name + ": " + what, Evidence: ev, Remedy: remedy,
	})
}

// reportSkipped sets or clears the condition for properties that are not copied because the target cannot take them.
// What the exclude list names was asked for and is no trouble.
func (r *Room) reportSkipped(w Selected, skipped []mm2.ConfigSkip, refused map[string]string) {
	var names, parts []string
	for _, s := range skipped {
		if s.Reason == mm2.ConfigSkipUnknownTarget {
			names = append(names, s.Name)
			parts = append(parts, s.Name+" is unknown on the target")
		}
	}
	for _, name := range sortedKeys(refused) {
		names = append(names, name)
		parts = append(parts, name+" is refused by the target ("+refused[name]+")")
	}
	if len(names) == 0 {
		r.cfg.Board.Clear(report.TopicConfigSyncFailed, subject(w.Topic.Name))
		return
	}
	r.configTrouble(w, strings.Join(parts, "; ")+"; everything else is applied", names,
		"exclude the named properties by configPropertiesExclude", nil)
}

package flows

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
)

// GetFlow implements API.
func (m *Manager) GetFlow(ctx context.Context, project, id uuid.UUID) (Flow, error) {
	return m.store.GetFlow(ctx, project, id)
}

// ListFlows implements API.
func (m *Manager) ListFlows(ctx context.Context, project uuid.UUID, f FlowFilter, p Page) (List[Flow], error) {
	return pageOf(p, func(f Flow) uuid.UUID { return f.ID }, func(after uuid.UUID, limit int) ([]Flow, error) {
		return m.store.ListFlows(ctx, project, f, after, limit)
	})
}

// CreateFlow implements API.
func (m *Manager) CreateFlow(ctx context.Context, project uuid.UUID, in FlowInput) (Flow, error) {
	if in.ReplicationPolicyClass == "" {
		in.ReplicationPolicyClass = DefaultPolicyClass
	}
	if in.ReplicationPolicySeparator == "" {
		in.ReplicationPolicySeparator = defaultSeparator
	}
	in.Options = normaliseOptions(in.Options)
	var invalid fieldErrors
	validatePolicy(&invalid, in.ReplicationPolicyClass, in.ReplicationPolicySeparator)
	validateOptions(&invalid, in.Options)
	id, err := newID()
	if err != nil {
		return Flow{}, err
	}
	var out Flow
	err = m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		f := slices.Clip(slices.Clone(invalid)) // this may run more than once
		ends, err := resolveEnds(ctx, tx, &f, in)
		if err != nil {
			return err
		}
		if err := f.err(); err != nil {
			return err
		}
		flow := Flow{
			ID: id, ProjectID: project, MirrorMakerID: ends.mirrorMaker,
			SourceIntegration: in.SourceIntegration, TargetIntegration: in.TargetIntegration,
			ReplicationPolicyClass: in.ReplicationPolicyClass, ReplicationPolicySeparator: in.ReplicationPolicySeparator,
			Options: in.Options,
		}
		if err := checkFlowRoutes(ctx, tx, flow, ends.source, ends.target); err != nil {
			return err
		}
		out, err = tx.InsertFlow(ctx, flow)
		return err
	})
	return out, err
}

type flowEnds struct {
	source, target Service
	mirrorMaker    uuid.UUID
}

// resolveEnds reads both integrations and their services; what is wrong with them goes to f.
func resolveEnds(ctx context.Context, tx Tx, f *fieldErrors, in FlowInput) (flowEnds, error) {
	const src, dst = "/sourceIntegration", "/targetIntegration"
	source, okSource, err := resolveIntegration(ctx, tx, f, src, in.SourceIntegration)
	if err != nil {
		return flowEnds{}, err
	}
	target, okTarget, err := resolveIntegration(ctx, tx, f, dst, in.TargetIntegration)
	if err != nil || !okSource || !okTarget {
		return flowEnds{}, err
	}
	if source.SourceServiceID == target.SourceServiceID {
		f.addf(dst, "leads to the same Kafka service %s as sourceIntegration; source and target must differ", target.SourceServiceID)
		return flowEnds{}, nil
	}
	if source.DestinationServiceID != target.DestinationServiceID {
		f.addf(dst, "belongs to kafkaMirrorMaker service %s, sourceIntegration to %s; both must belong to one",
			target.DestinationServiceID, source.DestinationServiceID)
		return flowEnds{}, nil
	}
	e := flowEnds{mirrorMaker: source.DestinationServiceID}
	if e.source, err = tx.GetService(ctx, source.SourceServiceID); err != nil {
		return flowEnds{}, err
	}
	if e.target, err = tx.GetService(ctx, target.SourceServiceID); err != nil {
		return flowEnds{}, err
	}
	if e.source.KafkaClusterID != "" && e.source.KafkaClusterID == e.target.KafkaClusterID {
		f.addf(dst, "leads to Kafka cluster %s, and so does sourceIntegration; a flow onto its own source never ends", e.target.KafkaClusterID)
	}
	return e, nil
}

func resolveIntegration(ctx context.Context, tx Tx, f *fieldErrors, pointer string, id uuid.UUID) (Integration, bool, error) {
	if id == uuid.Nil {
		f.addf(pointer, "is required")
		return Integration{}, false, nil
	}
	i, err := tx.GetIntegration(ctx, id)
	if err == nil {
		return i, true, nil
	}
	if CodeOf(err) != CodeNotFound {
		return Integration{}, false, err
	}
	// The commonest mistake deserves its own sentence.
	if _, err := tx.GetService(ctx, id); err == nil {
		f.addf(pointer, "%s is a service; this needs the id of an integration, which POST /integrations makes", id)
	} else if CodeOf(err) == CodeNotFound {
		f.addf(pointer, "there is no integration %s", id)
	} else {
		return Integration{}, false, err
	}
	return Integration{}, false, nil
}

func checkFlowRoutes(ctx context.Context, tx Tx, flow Flow, source, target Service) error {
	identity := flow.ReplicationPolicyClass == IdentityPolicyClass
	others, err := tx.FlowRoutes(ctx, target, identity)
	if err != nil {
		return err
	}
	return checkRoutes(ctx, compareTime, FlowRoute{
		FlowID: flow.ID, SourceService: source.ID, TargetService: target.ID,
		SourceCluster: source.KafkaClusterID, TargetCluster: target.KafkaClusterID, SourceAlias: source.Alias,
		PolicyClass: flow.ReplicationPolicyClass, Separator: flow.ReplicationPolicySeparator,
		Topics: flow.Topics, Excludes: flow.TopicExcludeList,
	}, others)
}

// UpdateFlow implements API.
func (m *Manager) UpdateFlow(ctx context.Context, project, id uuid.UUID, o Options, ifRevision int64) (Flow, error) {
	o = normaliseOptions(o)
	var f fieldErrors
	validateOptions(&f, o)
	invalid := f.err()
	var out Flow
	err := m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		flow, err := tx.GetFlow(ctx, id)
		if err != nil {
			return err
		}
		if invalid != nil {
			return invalid
		}
		if err := checkRevision(flow.Revision, ifRevision); err != nil {
			return err
		}
		if sameOptions(flow.Options, o) {
			out = flow // nothing to do, and nothing to start again for
			return nil
		}
		sameLists := slices.Equal(flow.Topics, o.Topics) && slices.Equal(flow.TopicExcludeList, o.TopicExcludeList)
		flow.Options = o
		if !sameLists {
			spec, err := tx.FlowSpec(ctx, id)
			if err != nil {
				return err
			}
			if err := checkFlowRoutes(ctx, tx, flow, spec.Source, spec.Target); err != nil {
				return err
			}
		}
		out, err = tx.UpdateFlow(ctx, flow)
		return err
	})
	return out, err
}

// sameOptions compares options as the store keeps them.
func sameOptions(a, b Options) bool {
	a, b = normaliseOptions(a), normaliseOptions(b)
	if a.StartTimestamp != nil && b.StartTimestamp != nil &&
		a.StartTimestamp.Truncate(time.Microsecond).Equal(b.StartTimestamp.Truncate(time.Microsecond)) {
		a.StartTimestamp = b.StartTimestamp
	}
	return reflect.DeepEqual(a, b)
}

// DeleteFlow implements API.
func (m *Manager) DeleteFlow(ctx context.Context, project, id uuid.UUID, forget bool, ifRevision int64) error {
	forgotten := AnyRevision // the revision of which no task runs and no position is left
	if forget {
		var err error
		if forgotten, err = m.forgetPositions(ctx, project, id, ifRevision); err != nil {
			return err
		}
	}
	return m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		flow, err := tx.GetFlow(ctx, id)
		switch {
		case err != nil:
			return err
		case !forget:
			if err := checkRevision(flow.Revision, ifRevision); err != nil {
				return err
			}
		case flow.Revision != forgotten:
			return changedMeanwhile() // it may have run again and have positions anew
		}
		return tx.DeleteFlow(ctx, id)
	})
}

func changedMeanwhile() error {
	return &Error{
		Code:    CodeConflict,
		Message: "somebody changed the flow while its positions were to be removed; it is not deleted: read it again and decide anew",
	}
}

// forgetPositions stops the flow, waits until no worker runs it and has its positions removed; it answers the
// revision that it leaves. When that does not work out in time the flow stays, disabled, so that nothing is
// lost that was not meant to be.
func (m *Manager) forgetPositions(ctx context.Context, project, id uuid.UUID, ifRevision int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, m.checkTimeout)
	defer cancel()
	late := func(what string) error {
		return &Error{
			Code: CodeUnavailable, RetryAfter: 5 * time.Second,
			Message: what + " in time; the flow is disabled and not deleted: try again, or delete it without forget",
		}
	}
	var spec FlowSpec
	err := m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		flow, err := tx.GetFlow(ctx, id)
		if err != nil {
			return err
		}
		if err := checkRevision(flow.Revision, ifRevision); err != nil {
			return err
		}
		if flow.Enabled {
			flow.Enabled = false
			if _, err := tx.UpdateFlow(ctx, flow); err != nil {
				return err
			}
		}
		spec, err = tx.FlowSpec(ctx, id)
		return err
	})
	if err != nil {
		return 0, err
	}
	for {
		t, err := m.store.GetFlowTasks(ctx, project, id)
		if ctx.Err() != nil {
			return 0, late("no worker gave the flow up")
		}
		if err != nil {
			return 0, err
		}
		if t.Flow.Revision != spec.Flow.Revision {
			return 0, changedMeanwhile()
		}
		if !slices.ContainsFunc(t.Tasks, func(t TaskState) bool { return t.Held }) {
			break
		}
		select {
		case <-ctx.Done():
			return 0, late("no worker gave the flow up")
		case <-time.After(100 * time.Millisecond):
		}
	}
	payload, err := json.Marshal(ForgetPayload{Spec: spec})
	if err != nil {
		return 0, internal("encode a job", err)
	}
	job, err := m.store.AddJob(ctx, JobForgetPositions, payload, m.checkTimeout)
	if err != nil {
		return 0, err
	}
	defer m.dropJob(ctx, job)
	deadline, _ := ctx.Deadline()
	raw, err := m.store.WaitJob(ctx, job, time.Until(deadline))
	if raw == nil && (err == nil || ctx.Err() != nil) {
		return 0, late("no worker removed the positions")
	}
	if err != nil {
		return 0, err
	}
	var r ForgetResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, internal("decode the result of a job", err)
	}
	if r.Message != "" {
		return 0, &Error{Code: CodeCheckFailed, Message: fmt.Sprintf(
			"the positions could not be removed: %s; the flow is disabled and not deleted", r.Message)}
	}
	return spec.Flow.Revision, nil
}

// FlowStatus implements API.
func (m *Manager) FlowStatus(ctx context.Context, project, id uuid.UUID) (FlowStatus, error) {
	t, err := m.store.GetFlowTasks(ctx, project, id)
	if err != nil {
		return FlowStatus{}, err
	}
	return MergeStatus(t), nil
}

// ListFlowEvents implements API.
func (m *Manager) ListFlowEvents(ctx context.Context, project, id uuid.UUID, p Page) (List[Event], error) {
	limit, err := pageLimit(p)
	if err != nil {
		return List[Event]{}, err
	}
	before := int64(math.MaxInt64)
	if p.Cursor != "" {
		if before, err = decodeEventCursor(p.Cursor); err != nil {
			return List[Event]{}, err
		}
	}
	if _, err := m.store.GetFlow(ctx, project, id); err != nil {
		return List[Event]{}, err
	}
	items, err := m.store.ListFlowEvents(ctx, id, before, limit+1)
	if err != nil {
		return List[Event]{}, err
	}
	l := List[Event]{Items: items}
	if len(items) > limit {
		l.Items = items[:limit]
		l.Next = encodeEventCursor(l.Items[limit-1].ID)
	}
	return l, nil
}

func sortedStringKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

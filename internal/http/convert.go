package httpapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// FromAPIPage converts the parameters of a list.
func FromAPIPage(limit *apigen.Limit, cursor *apigen.Cursor) flows.Page {
	return flows.Page{Limit: int(value(limit)), Cursor: value(cursor)}
}

// FromAPIServiceCreate converts the body of a new service.
func FromAPIServiceCreate(b apigen.ServiceCreate) flows.ServiceInput {
	in := flows.ServiceInput{
		Engine: flows.Engine(b.Engine), Description: value(b.Description), Alias: b.Alias,
		BootstrapServers: value(b.BootstrapServers), Plan: value(b.Plan), Version: nullValue(b.Version),
		NodesPattern: fromAPINodesPattern(b.NodesPattern),
	}
	in.Security, in.Secrets = fromAPISecurity(b.Security, nil)
	return in
}

// FromAPIServiceUpdate converts a whole service as PUT has it: omitted members
// take their defaults, the engine is the stored one, and a kafka service's
// version, which is read-only, is left out.
func FromAPIServiceUpdate(stored flows.Service, b apigen.ServiceUpdate) flows.ServiceInput {
	in := flows.ServiceInput{
		Engine: stored.Engine, Description: value(b.Description), Alias: b.Alias,
		BootstrapServers: value(b.BootstrapServers), Plan: value(b.Plan), NodesPattern: fromAPINodesPattern(b.NodesPattern),
	}
	if stored.Engine == flows.EngineKafkaMirrorMaker {
		in.Version = nullValue(b.Version)
	}
	in.Security, in.Secrets = fromAPISecurity(b.Security, stored.Sealed)
	return in
}

// fromAPISecurity splits the public parts from the secrets. A stored secret is
// kept when its object is there without it, and cleared with its object.
func fromAPISecurity(b *apigen.SecurityInput, stored map[flows.SecretField]flows.SealedSecret) (flows.Security, flows.SecretChange) {
	change := flows.SecretChange{}
	clearStored := func(fields ...flows.SecretField) {
		for _, f := range fields {
			if _, ok := stored[f]; ok {
				change[f] = nil
			}
		}
	}
	set := func(f flows.SecretField, v nullable.Nullable[string]) {
		switch {
		case v.IsNull():
			change[f] = nil
		case v.IsSpecified():
			s := v.MustGet()
			change[f] = &s
		}
	}
	var out flows.Security
	if b == nil {
		b = &apigen.SecurityInput{}
	}
	out.Protocol = string(b.Protocol)
	if t, err := b.Tls.Get(); err == nil {
		out.TLS = &flows.TLSSpec{CA: value(t.Ca), Cert: value(t.Cert), ServerName: value(t.ServerName)}
		set(flows.SecretTLSKey, t.Key)
	} else {
		clearStored(flows.SecretTLSKey)
	}
	if t, err := b.Sasl.Get(); err == nil {
		out.SASL = &flows.SASLSpec{
			Mechanism: string(t.Mechanism), Username: value(t.Username), TokenEndpoint: value(t.TokenEndpoint),
			ClientID: value(t.ClientId), Scope: value(t.Scope),
		}
		set(flows.SecretSASLPassword, t.Password)
		set(flows.SecretClientSecret, t.ClientSecret)
	} else {
		clearStored(flows.SecretSASLPassword, flows.SecretClientSecret)
	}
	return out, change
}

func fromAPINodesPattern(n nullable.Nullable[apigen.NodesPattern]) json.RawMessage {
	p, err := n.Get()
	if err != nil {
		return nil
	}
	return nodesPatternJSON(p)
}

func nodesPatternJSON(p apigen.NodesPattern) json.RawMessage {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of two strings and a number
	}
	return text
}

// toAPINodesPattern reads what nodesPatternJSON wrote; nil stays nil.
func toAPINodesPattern(text json.RawMessage) (*apigen.NodesPattern, error) {
	if len(text) == 0 {
		return nil, nil // absent is a value here
	}
	var p apigen.NodesPattern
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, &flows.Error{Code: flows.CodeInternal, Op: "read stored nodesPattern", Err: err}
	}
	return &p, nil
}

// ToAPIService converts a service for the flat routes. Secrets are not in it.
func ToAPIService(s flows.Service) (apigen.Service, error) {
	out := apigen.Service{
		Id: s.ID, Engine: apigen.Engine(s.Engine), Description: s.Description,
		Status: apigen.ResourceStatus(s.Status), StatusDetail: s.StatusDetail,
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	if s.Engine == flows.EngineKafkaMirrorMaker {
		out.Plan = &s.Plan
		out.Version.Set(s.Version)
		p, err := toAPINodesPattern(s.NodesPattern)
		if err != nil {
			return out, err
		}
		if p != nil {
			out.NodesPattern.Set(*p)
		} else {
			out.NodesPattern.SetNull()
		}
		return out, nil
	}
	out.Alias = &s.Alias
	servers := list(s.BootstrapServers)
	out.BootstrapServers = &servers
	out.Security = toAPISecurity(s.Security)
	out.Version = nullIfEmpty(s.KafkaVersion)
	out.KafkaClusterId = nullIfEmpty(s.KafkaClusterID)
	secrets := []apigen.ServiceStoredSecrets{}
	for f := range s.Sealed {
		secrets = append(secrets, apigen.ServiceStoredSecrets(f))
	}
	slices.Sort(secrets)
	out.StoredSecrets = &secrets
	return out, nil
}

func toAPISecurity(s flows.Security) *apigen.Security {
	out := &apigen.Security{Protocol: apigen.SecurityProtocol(s.Protocol)}
	if t := s.TLS; t != nil {
		out.Tls = &apigen.Tls{Ca: nonEmpty(t.CA), Cert: nonEmpty(t.Cert), ServerName: nonEmpty(t.ServerName)}
	}
	if t := s.SASL; t != nil {
		out.Sasl = &apigen.Sasl{
			Mechanism: apigen.SaslMechanism(t.Mechanism), Username: nonEmpty(t.Username), TokenEndpoint: nonEmpty(t.TokenEndpoint),
			ClientId: nonEmpty(t.ClientID), Scope: nonEmpty(t.Scope),
		}
	}
	return out
}

// FromAPIIntegrationCreate converts the body of a new integration.
func FromAPIIntegrationCreate(b apigen.IntegrationCreate) flows.IntegrationInput {
	return flows.IntegrationInput{
		Type: string(value(b.Type)), SourceServiceID: b.SourceServiceId, DestinationServiceID: b.DestinationServiceId,
		Parameters: fromAPIParameters(b.Parameters),
	}
}

func fromAPIParameters(n nullable.Nullable[apigen.Parameters]) map[string]string {
	p, err := n.Get()
	if err != nil {
		return nil
	}
	return p
}

func toAPIParameters(p map[string]string) nullable.Nullable[apigen.Parameters] {
	if p == nil {
		return nullable.NewNullNullable[apigen.Parameters]()
	}
	return nullable.NewNullableWithValue[apigen.Parameters](p)
}

// ToAPIIntegration converts an integration for the flat routes.
func ToAPIIntegration(i flows.Integration) apigen.Integration {
	return apigen.Integration{
		Id: i.ID, Type: apigen.IntegrationType(i.Type), SourceServiceId: i.SourceServiceID, DestinationServiceId: i.DestinationServiceID,
		Parameters: toAPIParameters(i.Parameters), Status: apigen.IntegrationStatus(i.Status), CreatedAt: i.CreatedAt.UTC(),
	}
}

// FromAPIReplicationCreate converts the body of a new flow; what it omits takes its default.
func FromAPIReplicationCreate(b apigen.ReplicationCreate) flows.FlowInput {
	return flows.FlowInput{
		SourceIntegration: b.SourceIntegration, TargetIntegration: b.TargetIntegration,
		ReplicationPolicyClass: string(value(b.ReplicationPolicyClass)), ReplicationPolicySeparator: value(b.ReplicationPolicySeparator),
		Options: FromAPIReplicationUpdate(apigen.ReplicationUpdate{
			Topics: b.Topics, TopicExcludeList: b.TopicExcludeList, SyncGroupOffsets: b.SyncGroupOffsets, SyncInterval: b.SyncInterval,
			EmitHeartbeats: b.EmitHeartbeats, Enabled: b.Enabled, Groups: b.Groups, GroupExcludeList: b.GroupExcludeList,
			TasksMax: b.TasksMax, ReplicationFactor: b.ReplicationFactor, OffsetSyncsTopicLocation: b.OffsetSyncsTopicLocation,
			OffsetLagMax: b.OffsetLagMax, IsolationLevel: b.IsolationLevel, StartPosition: b.StartPosition, StartTimestamp: b.StartTimestamp,
			SyncTopicConfigs: b.SyncTopicConfigs, TopicConfigSyncMode: b.TopicConfigSyncMode, ConfigPropertiesExclude: b.ConfigPropertiesExclude,
			SyncTopicAcls: b.SyncTopicAcls, EmitHeartbeatsInterval: b.EmitHeartbeatsInterval, EmitBackwardHeartbeats: b.EmitBackwardHeartbeats,
			EmitCheckpointsInterval: b.EmitCheckpointsInterval, RefreshTopicsInterval: b.RefreshTopicsInterval,
			RefreshGroupsInterval: b.RefreshGroupsInterval, MaxBytesPerSecond: b.MaxBytesPerSecond,
		}),
	}
}

// FromAPIReplicationUpdate converts a flow's settings as PUT has them: what is omitted takes its default.
func FromAPIReplicationUpdate(b apigen.ReplicationUpdate) flows.Options {
	o := flows.DefaultOptions()
	overlay(&o.Topics, b.Topics)
	overlay(&o.TopicExcludeList, b.TopicExcludeList)
	overlay(&o.SyncGroupOffsets, b.SyncGroupOffsets)
	overlaySeconds(&o.SyncInterval, b.SyncInterval)
	overlay(&o.EmitHeartbeats, b.EmitHeartbeats)
	o.Enabled = b.Enabled
	overlay(&o.Groups, b.Groups)
	overlay(&o.GroupExcludeList, b.GroupExcludeList)
	if b.TasksMax != nil {
		o.TasksMax = int(*b.TasksMax)
	}
	if b.ReplicationFactor != nil {
		o.ReplicationFactor = int(*b.ReplicationFactor)
	}
	if b.OffsetSyncsTopicLocation != nil {
		o.OffsetSyncsTopicLocation = string(*b.OffsetSyncsTopicLocation)
	}
	overlay(&o.OffsetLagMax, b.OffsetLagMax)
	if b.IsolationLevel != nil {
		o.IsolationLevel = string(*b.IsolationLevel)
	}
	if b.StartPosition != nil {
		o.StartPosition = flows.StartPosition(*b.StartPosition)
	}
	if t, err := b.StartTimestamp.Get(); err == nil {
		t = t.UTC()
		o.StartTimestamp = &t
	}
	overlay(&o.SyncTopicConfigs, b.SyncTopicConfigs)
	if b.TopicConfigSyncMode != nil {
		o.TopicConfigSyncMode = string(*b.TopicConfigSyncMode)
	}
	overlay(&o.ConfigPropertiesExclude, b.ConfigPropertiesExclude)
	overlay(&o.SyncTopicACLs, b.SyncTopicAcls)
	overlaySeconds(&o.EmitHeartbeatsInterval, b.EmitHeartbeatsInterval)
	overlay(&o.EmitBackwardHeartbeats, b.EmitBackwardHeartbeats)
	overlaySeconds(&o.EmitCheckpointsInterval, b.EmitCheckpointsInterval)
	overlaySeconds(&o.RefreshTopicsInterval, b.RefreshTopicsInterval)
	overlaySeconds(&o.RefreshGroupsInterval, b.RefreshGroupsInterval)
	if n, err := b.MaxBytesPerSecond.Get(); err == nil {
		o.MaxBytesPerSecond = &n
	}
	return o
}

// ToAPIReplication converts a flow for the flat routes.
func ToAPIReplication(f flows.Flow) apigen.Replication {
	out := apigen.Replication{
		Id: f.ID, SourceIntegration: f.SourceIntegration, TargetIntegration: f.TargetIntegration,
		ReplicationPolicyClass: apigen.ReplicationPolicyClass(f.ReplicationPolicyClass), ReplicationPolicySeparator: f.ReplicationPolicySeparator,
		Topics: list(f.Topics), TopicExcludeList: list(f.TopicExcludeList), SyncGroupOffsets: f.SyncGroupOffsets,
		SyncInterval: seconds(f.SyncInterval), EmitHeartbeats: f.EmitHeartbeats, Enabled: f.Enabled,
		Groups: list(f.Groups), GroupExcludeList: list(f.GroupExcludeList), TasksMax: int32(f.TasksMax),
		ReplicationFactor:        int32(f.ReplicationFactor),
		OffsetSyncsTopicLocation: apigen.OffsetSyncsTopicLocation(f.OffsetSyncsTopicLocation), OffsetLagMax: f.OffsetLagMax,
		IsolationLevel: apigen.IsolationLevel(f.IsolationLevel), StartPosition: apigen.StartPosition(f.StartPosition),
		SyncTopicConfigs: f.SyncTopicConfigs, TopicConfigSyncMode: apigen.TopicConfigSyncMode(f.TopicConfigSyncMode),
		ConfigPropertiesExclude: list(f.ConfigPropertiesExclude), SyncTopicAcls: f.SyncTopicACLs,
		EmitHeartbeatsInterval: seconds(f.EmitHeartbeatsInterval), EmitBackwardHeartbeats: f.EmitBackwardHeartbeats,
		EmitCheckpointsInterval: seconds(f.EmitCheckpointsInterval), RefreshTopicsInterval: seconds(f.RefreshTopicsInterval),
		RefreshGroupsInterval: seconds(f.RefreshGroupsInterval), CreatedAt: f.CreatedAt.UTC(), UpdatedAt: f.UpdatedAt.UTC(),
	}
	if f.StartTimestamp != nil {
		out.StartTimestamp.Set(f.StartTimestamp.UTC())
	} else {
		out.StartTimestamp.SetNull()
	}
	out.MaxBytesPerSecond = nullPointer(f.MaxBytesPerSecond)
	return out
}

// ToAPIReplicationStatus converts a flow's status.
func ToAPIReplicationStatus(s flows.FlowStatus) apigen.ReplicationStatus {
	return apigen.ReplicationStatus{
		State: apigen.FlowState(s.State), Since: s.Since.UTC(), ObservedAt: s.ObservedAt.UTC(), RecordLag: nullPointer(s.RecordLag),
		Conditions: each(s.Conditions, func(c flows.Condition) apigen.Condition {
			return apigen.Condition{
				Code: c.Code, Severity: apigen.ConditionSeverity(c.Severity), Since: c.Since.UTC(), Subject: toAPISubject(c.Subject),
				Message: c.Message, Evidence: toAPIEvidence(c.Evidence), Remedy: c.Remedy,
			}
		}),
		Topics: each(s.Topics, func(t flows.TopicStatus) apigen.TopicStatus {
			return apigen.TopicStatus{
				Name: t.Name, RemoteName: t.RemoteName,
				Partitions: each(t.Partitions, toAPIPartition),
			}
		}),
		ExcludedTopics: each(s.ExcludedTopics, func(t flows.ExcludedTopic) apigen.ExcludedTopic { return apigen.ExcludedTopic(t) }),
		Groups: each(s.Groups, func(g flows.GroupStatus) apigen.GroupStatus {
			return apigen.GroupStatus{Group: g.Group, State: g.State, Topics: each(g.Topics, toAPIGroupTopic)}
		}),
		Tasks: each(s.Tasks, func(t flows.TaskAssignment) apigen.TaskAssignment {
			return apigen.TaskAssignment{Task: int32(t.Task), Worker: t.Worker, Epoch: t.Epoch}
		}),
	}
}

func toAPIPartition(p flows.PartitionStatus) apigen.PartitionStatus {
	return apigen.PartitionStatus{
		Partition: p.Partition, LogStartOffset: p.LogStartOffset, LogEndOffset: p.LogEndOffset, Position: p.Position,
		TargetLogEndOffset: p.TargetLogEndOffset, RecordLag: p.RecordLag, State: p.State,
	}
}

func toAPIGroupTopic(t flows.GroupTopicStatus) apigen.GroupTopicStatus {
	return apigen.GroupTopicStatus{
		Topic: t.Topic, Partition: t.Partition, SourceOffset: t.SourceOffset, TargetOffset: nullPointer(t.TargetOffset),
		Exact: t.Exact, Bound: t.Bound, Reason: t.Reason,
	}
}

func toAPISubject(s flows.Subject) apigen.Subject {
	return apigen.Subject{Topic: nullIfEmpty(s.Topic), Partition: nullPointer(s.Partition), Group: nullIfEmpty(s.Group)}
}

func toAPIEvidence(e map[string]any) apigen.Evidence {
	if e == nil {
		return apigen.Evidence{}
	}
	return e
}

// ToAPIEvent converts an event.
func ToAPIEvent(e flows.Event) (apigen.Event, error) {
	evidence := map[string]any{}
	if len(e.Evidence) > 0 && !bytes.Equal(e.Evidence, []byte("null")) {
		// Numbers stay as they are written: offsets exceed what a float64 holds.
		dec := json.NewDecoder(bytes.NewReader(e.Evidence))
		dec.UseNumber()
		if err := dec.Decode(&evidence); err != nil {
			return apigen.Event{}, &flows.Error{Code: flows.CodeInternal, Op: "read stored evidence", Err: err}
		}
	}
	return apigen.Event{
		Id: e.ID, At: e.At.UTC(), Code: e.Code, Subject: toAPISubject(e.Subject), Message: e.Message,
		Evidence: evidence, Worker: e.Worker, TaskEpoch: e.TaskEpoch,
	}, nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func nullValue[T any](n nullable.Nullable[T]) T {
	v, err := n.Get()
	if err != nil {
		var zero T
		return zero
	}
	return v
}

func nullPointer[T any](p *T) nullable.Nullable[T] {
	if p == nil {
		return nullable.NewNullNullable[T]()
	}
	return nullable.NewNullableWithValue(*p)
}

func nullIfEmpty(s string) nullable.Nullable[string] {
	if s == "" {
		return nullable.NewNullNullable[string]()
	}
	return nullable.NewNullableWithValue(s)
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// list makes sure that no list is answered as null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func each[T, U any](in []T, convert func(T) U) []U {
	out := make([]U, 0, len(in))
	for _, v := range in {
		out = append(out, convert(v))
	}
	return out
}

func overlay[T any](target, source *T) {
	if source != nil {
		*target = *source
	}
}

func overlaySeconds(target *time.Duration, source *int64) {
	if source != nil {
		*target = time.Duration(*source) * time.Second
	}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

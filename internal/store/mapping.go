package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

func fromDBProject(r dbsqlc.Project) (flows.Project, error) {
	return flows.Project{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt.UTC()}, nil
}

func fromDBToken(r dbsqlc.Token) (flows.Token, error) {
	t := flows.Token{ID: r.ID, ProjectID: r.ProjectID, Name: r.Name, CreatedAt: r.CreatedAt.UTC()}
	if copy(t.Hash[:], r.Hash) != len(t.Hash) {
		return flows.Token{}, fmt.Errorf("token %s has a hash of %d bytes", r.ID, len(r.Hash))
	}
	return t, nil
}

func fromDBService(r dbsqlc.Service) (flows.Service, error) {
	s := flows.Service{
		ID: r.ID, ProjectID: r.ProjectID, Engine: flows.Engine(r.Engine), Description: r.Description,
		BootstrapServers: r.BootstrapServers, KafkaClusterID: r.KafkaClusterID, KafkaVersion: r.KafkaVersion,
		Plan: r.Plan, Version: r.Version, NodesPattern: r.NodesPattern,
		Status: flows.ResourceStatus(r.Status), StatusDetail: r.StatusDetail,
		Revision: r.Revision, CredentialsRevision: r.CredentialsRevision,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.Alias != nil {
		s.Alias = *r.Alias
	}
	if err := json.Unmarshal(r.Security, &s.Security); err != nil {
		return flows.Service{}, fmt.Errorf("read the security settings of service %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Sealed, &s.Sealed); err != nil {
		return flows.Service{}, fmt.Errorf("read the sealed secrets of service %s: %w", r.ID, err)
	}
	return s, nil
}

// serviceColumns are the parts of a service that need encoding.
type serviceColumns struct {
	alias            *string
	security, sealed []byte
}

func toDBService(s flows.Service) (serviceColumns, error) {
	var c serviceColumns
	if s.Engine == flows.EngineKafka {
		c.alias = &s.Alias
	}
	var err error
	if c.security, err = json.Marshal(s.Security); err != nil {
		return c, fmt.Errorf("write security settings: %w", err)
	}
	if s.Sealed == nil {
		s.Sealed = map[flows.SecretField]flows.SealedSecret{}
	}
	if c.sealed, err = json.Marshal(s.Sealed); err != nil {
		return c, fmt.Errorf("write sealed secrets: %w", err)
	}
	return c, nil
}

func fromDBIntegration(r dbsqlc.Integration) (flows.Integration, error) {
	i := flows.Integration{
		ID: r.ID, ProjectID: r.ProjectID, Type: r.Type, SourceServiceID: r.SourceServiceID,
		DestinationServiceID: r.DestinationServiceID, Status: flows.ResourceStatus(r.Status), CreatedAt: r.CreatedAt.UTC(),
	}
	if r.Parameters != nil {
		if err := json.Unmarshal(r.Parameters, &i.Parameters); err != nil {
			return flows.Integration{}, fmt.Errorf("read the parameters of integration %s: %w", r.ID, err)
		}
	}
	return i, nil
}

func fromDBFlow(r dbsqlc.Flow) (flows.Flow, error) {
	ms := func(v int64) time.Duration { return time.Duration(v) * time.Millisecond }
	f := flows.Flow{
		ID: r.ID, ProjectID: r.ProjectID, MirrorMakerID: r.MirrorMakerID,
		SourceIntegration: r.SourceIntegrationID, TargetIntegration: r.TargetIntegrationID,
		ReplicationPolicyClass: r.ReplicationPolicyClass, ReplicationPolicySeparator: r.ReplicationPolicySeparator,
		Options: flows.Options{
			Enabled: r.Enabled, Topics: r.Topics, TopicExcludeList: r.TopicExcludeList,
			SyncGroupOffsets: r.SyncGroupOffsets, SyncInterval: ms(r.SyncIntervalMs), EmitHeartbeats: r.EmitHeartbeats,
			Groups: r.Groups, GroupExcludeList: r.GroupExcludeList, TasksMax: int(r.TasksMax),
			ReplicationFactor: int(r.ReplicationFactor), OffsetSyncsTopicLocation: r.OffsetSyncsTopicLocation,
			OffsetLagMax: r.OffsetLagMax, IsolationLevel: r.IsolationLevel, StartPosition: flows.StartPosition(r.StartPosition),
			SyncTopicConfigs: r.SyncTopicConfigs, TopicConfigSyncMode: r.TopicConfigSyncMode,
			ConfigPropertiesExclude: r.ConfigPropertiesExclude,
			EmitHeartbeatsInterval:  ms(r.EmitHeartbeatsIntervalMs), EmitBackwardHeartbeats: r.EmitBackwardHeartbeats,
			EmitCheckpointsInterval: ms(r.EmitCheckpointsIntervalMs), RefreshTopicsInterval: ms(r.RefreshTopicsIntervalMs),
			RefreshGroupsInterval: ms(r.RefreshGroupsIntervalMs), MaxBytesPerSecond: r.MaxBytesPerSecond,
		},
		Revision: r.Revision, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.StartAt != nil {
		at := r.StartAt.UTC()
		f.StartTimestamp = &at
	}
	return f, nil
}

func toDBFlow(f flows.Flow) dbsqlc.InsertFlowParams {
	return dbsqlc.InsertFlowParams{
		ID: f.ID, ProjectID: f.ProjectID, SourceIntegrationID: f.SourceIntegration, TargetIntegrationID: f.TargetIntegration,
		ReplicationPolicyClass: f.ReplicationPolicyClass, ReplicationPolicySeparator: f.ReplicationPolicySeparator,
		Enabled: f.Enabled, Topics: f.Topics, TopicExcludeList: f.TopicExcludeList, SyncGroupOffsets: f.SyncGroupOffsets,
		SyncIntervalMs: f.SyncInterval.Milliseconds(), EmitHeartbeats: f.EmitHeartbeats, Groups: f.Groups,
		GroupExcludeList: f.GroupExcludeList, TasksMax: int32(f.TasksMax), ReplicationFactor: int32(f.ReplicationFactor),
		OffsetSyncsTopicLocation: f.OffsetSyncsTopicLocation, OffsetLagMax: f.OffsetLagMax, IsolationLevel: f.IsolationLevel,
		StartPosition: string(f.StartPosition), StartAt: f.StartTimestamp, SyncTopicConfigs: f.SyncTopicConfigs,
		TopicConfigSyncMode: f.TopicConfigSyncMode, ConfigPropertiesExclude: f.ConfigPropertiesExclude,
		EmitHeartbeatsIntervalMs: f.EmitHeartbeatsInterval.Milliseconds(), EmitBackwardHeartbeats: f.EmitBackwardHeartbeats,
		EmitCheckpointsIntervalMs: f.EmitCheckpointsInterval.Milliseconds(),
		RefreshTopicsIntervalMs:   f.RefreshTopicsInterval.Milliseconds(), RefreshGroupsIntervalMs: f.RefreshGroupsInterval.Milliseconds(),
		MaxBytesPerSecond: f.MaxBytesPerSecond,
	}
}

func toDBFlowUpdate(f flows.Flow) dbsqlc.UpdateFlowParams {
	p := toDBFlow(f)
	return dbsqlc.UpdateFlowParams{
		ProjectID: p.ProjectID, ID: p.ID, Enabled: p.Enabled, Topics: p.Topics, TopicExcludeList: p.TopicExcludeList,
		SyncGroupOffsets: p.SyncGroupOffsets, SyncIntervalMs: p.SyncIntervalMs, EmitHeartbeats: p.EmitHeartbeats,
		Groups: p.Groups, GroupExcludeList: p.GroupExcludeList, TasksMax: p.TasksMax, ReplicationFactor: p.ReplicationFactor,
		OffsetSyncsTopicLocation: p.OffsetSyncsTopicLocation, OffsetLagMax: p.OffsetLagMax, IsolationLevel: p.IsolationLevel,
		StartPosition: p.StartPosition, StartAt: p.StartAt, SyncTopicConfigs: p.SyncTopicConfigs,
		TopicConfigSyncMode: p.TopicConfigSyncMode, ConfigPropertiesExclude: p.ConfigPropertiesExclude,
		EmitHeartbeatsIntervalMs: p.EmitHeartbeatsIntervalMs, EmitBackwardHeartbeats: p.EmitBackwardHeartbeats,
		EmitCheckpointsIntervalMs: p.EmitCheckpointsIntervalMs, RefreshTopicsIntervalMs: p.RefreshTopicsIntervalMs,
		RefreshGroupsIntervalMs: p.RefreshGroupsIntervalMs, MaxBytesPerSecond: p.MaxBytesPerSecond,
	}
}

func fromDBFlowRoute(r dbsqlc.FlowRoutesRow) (flows.FlowRoute, error) {
	return flows.FlowRoute{
		FlowID: r.ID, SourceService: r.SourceServiceID, TargetService: r.TargetServiceID,
		SourceCluster: r.SourceCluster, TargetCluster: r.TargetCluster, SourceAlias: r.SourceAlias,
		PolicyClass: r.ReplicationPolicyClass, Separator: r.ReplicationPolicySeparator,
		Topics: r.Topics, Excludes: r.TopicExcludeList,
	}, nil
}

func fromDBFlowEnds(r dbsqlc.FlowEndsRow) (flows.FlowRoute, error) {
	return flows.FlowRoute{
		FlowID: r.ID, SourceService: r.SourceServiceID, TargetService: r.TargetServiceID,
		SourceCluster: r.SourceCluster, TargetCluster: r.TargetCluster,
	}, nil
}

func fromDBEvent(r dbsqlc.Event) (flows.Event, error) {
	e := flows.Event{
		ID: r.ID, FlowID: r.FlowID, At: r.At.UTC(), Code: r.Code, Message: r.Message, Evidence: r.Evidence,
		Worker: r.Worker, TaskEpoch: r.TaskEpoch,
	}
	if err := json.Unmarshal(r.Subject, &e.Subject); err != nil {
		return flows.Event{}, fmt.Errorf("read event %d of flow %s: %w", r.ID, r.FlowID, err)
	}
	return e, nil
}

func fromDBTask(r dbsqlc.FlowTasksRow) (flows.TaskState, error) {
	t := flows.TaskState{
		Task: int(r.Task), Owner: workerOf(r.Owner), Epoch: r.Epoch, Held: r.Held, Since: r.Since.UTC(), ReportEpoch: r.StatusEpoch,
	}
	if r.Status != nil {
		t.Report = &flows.TaskStatus{}
		if err := json.Unmarshal(r.Status, t.Report); err != nil {
			return flows.TaskState{}, fmt.Errorf("read the status of task %d: %w", r.Task, err)
		}
		if r.LastObservedAt != nil {
			t.Report.ObservedAt = r.LastObservedAt.UTC()
		}
	}
	return t, nil
}

// storable replaces what JSON can say and Postgres cannot store: the escape of U+0000. Names of groups
// and texts of brokers are not ours, and one of them must not keep the rest of a batch from being stored.
func storable(doc []byte) []byte {
	const nul = `\u0000`
	var out []byte // nil: nothing replaced so far
	for i := 0; i < len(doc); i++ {
		if doc[i] != '\\' {
			continue
		}
		if string(doc[i:min(i+len(nul), len(doc))]) != nul {
			i++ // the escaped character is no beginning of another escape
			continue
		}
		if out == nil {
			out = slices.Clone(doc)
		}
		copy(out[i:], `\ufffd`)
		i += len(nul) - 1
	}
	if out == nil {
		return doc
	}
	return out
}

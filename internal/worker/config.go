package worker

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Opener reads sealed secrets; secrets.Opener is one.
type Opener interface {
	// OpenAll opens every secret of a service; its error names key and field, no secret.
	OpenAll(sealed map[flows.SecretField]flows.SealedSecret) (map[flows.SecretField]string, error)
}

// toKafkaSecurity joins the public and the secret parts of a service's security.
func toKafkaSecurity(o Opener, s flows.Security, sealed map[flows.SecretField]flows.SealedSecret) (kafka.Security, error) {
	plain, err := o.OpenAll(sealed)
	if err != nil {
		return kafka.Security{}, err
	}
	out := kafka.Security{Protocol: s.Protocol}
	if t := s.TLS; t != nil {
		out.TLS = kafka.TLS{CA: t.CA, Cert: t.Cert, ServerName: t.ServerName}
	}
	out.TLS.Key = plain[flows.SecretTLSKey]
	if a := s.SASL; a != nil {
		out.SASL = kafka.SASL{
			Mechanism: a.Mechanism, Username: a.Username,
			TokenEndpoint: a.TokenEndpoint, ClientID: a.ClientID, Scope: a.Scope,
		}
	}
	out.SASL.Password = plain[flows.SecretSASLPassword]
	out.SASL.ClientSecret = plain[flows.SecretClientSecret]
	return out, nil
}

// securities are both sides' credentials, opened.
type securities struct{ source, target kafka.Security }

// String redacts.
func (securities) String() string { return "worker.securities(redacted)" }

// LogValue redacts.
func (securities) LogValue() slog.Value { return slog.StringValue("redacted") }

func openBoth(o Opener, spec flows.FlowSpec) (s securities, err error) {
	if s.source, err = toKafkaSecurity(o, spec.Source.Security, spec.Source.Sealed); err != nil {
		return securities{}, fmt.Errorf("source %s: %w", spec.Source.Alias, err)
	}
	if s.target, err = toKafkaSecurity(o, spec.Target.Security, spec.Target.Sealed); err != nil {
		return securities{}, fmt.Errorf("target %s: %w", spec.Target.Alias, err)
	}
	return s, nil
}

// toEngineConfig translates a flow for the engine. Identity, sinks, logger and
// registry are the caller's to fill in.
func toEngineConfig(spec flows.FlowSpec, s securities) engine.Config {
	f := spec.Flow
	c := engine.Config{
		Source: kafka.Cluster{
			Side: "source", BootstrapServers: slices.Clone(spec.Source.BootstrapServers), Credentials: kafka.NewCredentials(s.source),
		},
		Target: kafka.Cluster{
			Side: "target", BootstrapServers: slices.Clone(spec.Target.BootstrapServers), Credentials: kafka.NewCredentials(s.target),
		},
		SourceAlias:     spec.Source.Alias,
		TargetAlias:     spec.Target.Alias,
		KnownAliases:    slices.Clone(spec.KnownAliases),
		SourceClusterID: spec.Source.KafkaClusterID,
		TargetClusterID: spec.Target.KafkaClusterID,

		IdentityPolicy: f.ReplicationPolicyClass == flows.IdentityPolicyClass,
		Separator:      f.ReplicationPolicySeparator,

		Topics:                  slices.Clone(f.Topics),
		TopicExcludeList:        slices.Clone(f.TopicExcludeList),
		Groups:                  slices.Clone(f.Groups),
		GroupExcludeList:        slices.Clone(f.GroupExcludeList),
		SyncGroupOffsets:        f.SyncGroupOffsets,
		SyncInterval:            f.SyncInterval,
		EmitHeartbeats:          f.EmitHeartbeats,
		EmitBackwardHeartbeats:  f.EmitBackwardHeartbeats,
		EmitHeartbeatsInterval:  f.EmitHeartbeatsInterval,
		EmitCheckpointsInterval: f.EmitCheckpointsInterval,
		RefreshTopicsInterval:   f.RefreshTopicsInterval,
		RefreshGroupsInterval:   f.RefreshGroupsInterval,
		ReplicationFactor:       int16(f.ReplicationFactor), //nolint:gosec // flows bounds it to -1..32767
		OffsetSyncsOnSource:     f.OffsetSyncsTopicLocation == "source",
		OffsetLagMax:            f.OffsetLagMax,
		ReadUncommitted:         f.IsolationLevel == "read_uncommitted",
		StartPosition:           string(f.StartPosition),
		SyncTopicConfigs:        f.SyncTopicConfigs,
		MirrorTopicConfigs:      f.TopicConfigSyncMode == "mirror",
		ConfigPropertiesExclude: slices.Clone(f.ConfigPropertiesExclude),
	}
	if f.StartTimestamp != nil {
		c.StartTimestamp = *f.StartTimestamp
	}
	return c
}

// canFollow tells whether an engine that works by old can go on with next as it is, given next's credentials
// and rate: nothing else that it works by differs. A revision that moved for another reason (TouchFlows, InsertFlow)
// shows in what the engine knows of the clusters and their aliases.
func canFollow(old, next flows.FlowSpec) bool {
	same := func(a, b flows.Service) bool {
		return a.ID == b.ID && a.Alias == b.Alias && slices.Equal(a.BootstrapServers, b.BootstrapServers)
	}
	sameCluster := func(a, b flows.Service) bool {
		// The cluster's id becomes known without a revision: an engine that did not know it goes on.
		return (a.KafkaClusterID == "" || a.KafkaClusterID == b.KafkaClusterID) && reflect.DeepEqual(a.Security, b.Security)
	}
	if !same(old.Source, next.Source) || !same(old.Target, next.Target) {
		return false
	}
	return old.Flow.Revision == next.Flow.Revision ||
		flows.SameButRate(old.Flow, next.Flow) && slices.Equal(old.KnownAliases, next.KnownAliases) &&
			sameCluster(old.Source, next.Source) && sameCluster(old.Target, next.Target)
}

// news tells whether next holds a change against old that a task must follow.
func news(old, next flows.FlowSpec) bool {
	return next.Flow.Revision != old.Flow.Revision ||
		next.Source.CredentialsRevision != old.Source.CredentialsRevision ||
		next.Target.CredentialsRevision != old.Target.CredentialsRevision
}

// stale tells whether next was read before old.
func stale(old, next flows.FlowSpec) bool {
	return next.Flow.Revision < old.Flow.Revision ||
		next.Source.CredentialsRevision < old.Source.CredentialsRevision ||
		next.Target.CredentialsRevision < old.Target.CredentialsRevision
}

package mm2

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultSeparator is MM2's replication.policy.separator.
const DefaultSeparator = "."

// Class names that MM2 and OVHcloud's API use for the two built-in policies.
const (
	DefaultReplicationPolicyClass  = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
	IdentityReplicationPolicyClass = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
)

const (
	heartbeatsName  = "heartbeats"
	checkpointsName = "checkpoints"
	offsetSyncsName = "mm2-offset-syncs"
	internalName    = "internal"
)

// ErrEmptySeparator refuses the empty separator, which Java accepts and turns into nonsense names.
var ErrEmptySeparator = errors.New("mm2: replication policy separator is empty")

// ReplicationPolicy knows how topics are named on the other side. All methods are pure and safe for concurrent use.
//
// TopicSource, UpstreamTopic, OriginalTopic and IsHeartbeatsTopic are Java's rules to the letter: they split at the
// first separator, so that they misread aliases that contain it and take "orders.v1" for a copy from a cluster
// "orders". The engine uses IsRemoteOf, OriginalTopicOf, IsHeartbeatsTopicOf and IsCycle, which match the full aliases
// that we know.
type ReplicationPolicy interface {
	// Class is the Java class name that stands for the policy in MM2's configuration.
	Class() string
	// FormatRemoteTopic is the name on the target of a topic that comes from the cluster alias.
	FormatRemoteTopic(alias, topic string) string

	// IsRemoteOf tells whether topic is what FormatRemoteTopic(alias, …) yields, and of which upstream topic.
	IsRemoteOf(alias, topic string) (upstream string, ok bool)
	// OriginalTopicOf strips known alias prefixes until none is left; the longest alias that fits is stripped first.
	OriginalTopicOf(topic string, knownAliases []string) string
	// IsHeartbeatsTopicOf tells whether topic is the heartbeats topic or a copy of one over known aliases.
	IsHeartbeatsTopicOf(topic string, knownAliases []string) bool
	// IsCycle tells whether mirroring topic from sourceAlias to targetAlias would bring records back to a cluster that
	// they have been on: some alias prefix of the name is the target's or the source's (MM2 4.4's rule; Identity has
	// prefixes on heartbeats only, and there only the target's counts). knownAliases are further aliases that may
	// stand in between; source and target need not be among them.
	IsCycle(topic, sourceAlias, targetAlias string, knownAliases []string) bool

	// TopicSource is Java's topicSource; ok is false where Java returns null.
	TopicSource(topic string) (alias string, ok bool)
	// UpstreamTopic is Java's upstreamTopic; ok is false where Java returns null.
	UpstreamTopic(topic string) (upstream string, ok bool)
	// OriginalTopic is Java's originalTopic.
	OriginalTopic(topic string) string
	// IsHeartbeatsTopic is Java's isHeartbeatsTopic.
	IsHeartbeatsTopic(topic string) bool

	// HeartbeatsTopic is "heartbeats", whatever the separator.
	HeartbeatsTopic() string
	// OffsetSyncsTopic is the offset-syncs topic that carries the alias of the *other* cluster: the target's alias when
	// the topic lives on the source, the source's alias when it lives on the target.
	OffsetSyncsTopic(alias string) string
	// CheckpointsTopic is the checkpoints topic for groups of the cluster alias.
	CheckpointsTopic(alias string) string
	// IsCheckpointsTopic tells whether the name has the form that CheckpointsTopic yields.
	IsCheckpointsTopic(topic string) bool
	// IsMM2InternalTopic is the 4.x rule for topics that MM2 itself writes.
	IsMM2InternalTopic(topic string) bool
	// IsInternalTopic is the 4.x rule for topics that are never mirrored.
	IsInternalTopic(topic string) bool
	// IsInternalTopic39 is the rule of 3.9 and older, under which also *.internal and *-internal are never mirrored.
	IsInternalTopic39(topic string) bool
}

// base is what the two policies share.
type base struct {
	sep  string // between alias and topic
	isep string // within internal topic names
}

func newBase(separator string, internalSeparatorEnabled bool) (base, error) {
	if separator == "" {
		return base{}, ErrEmptySeparator
	}
	b := base{sep: separator, isep: DefaultSeparator}
	if internalSeparatorEnabled {
		b.isep = separator
	}
	return b, nil
}

func (b base) HeartbeatsTopic() string { return heartbeatsName }

func (b base) OffsetSyncsTopic(alias string) string {
	return offsetSyncsName + b.isep + alias + b.isep + internalName
}

func (b base) CheckpointsTopic(alias string) string {
	return alias + b.isep + checkpointsName + b.isep + internalName
}

func (b base) IsCheckpointsTopic(topic string) bool {
	return strings.HasSuffix(topic, b.isep+checkpointsName+b.isep+internalName)
}

func (b base) IsMM2InternalTopic(topic string) bool {
	return strings.HasPrefix(topic, "mm2") && strings.HasSuffix(topic, b.isep+internalName) || b.IsCheckpointsTopic(topic)
}

func (b base) IsInternalTopic(topic string) bool {
	return b.IsMM2InternalTopic(topic) || strings.HasPrefix(topic, "__") || strings.HasPrefix(topic, ".")
}

func (b base) IsInternalTopic39(topic string) bool {
	return strings.HasSuffix(topic, b.isep+internalName) || b.IsInternalTopic(topic) ||
		strings.HasSuffix(topic, "-internal") || strings.HasSuffix(topic, ".internal")
}

// prefixed is Java's name for a copy under the default rule.
func (b base) prefixed(alias, topic string) string { return alias + b.sep + topic }

// stripPrefix undoes prefixed for a known alias.
func (b base) stripPrefix(alias, topic string) (string, bool) {
	rest, ok := strings.CutPrefix(topic, alias+b.sep)
	if !ok || rest == "" || alias == "" {
		return "", false
	}
	return rest, true
}

// javaSource is DefaultReplicationPolicy.topicSource. Java's String.split drops trailing empty pieces, so "t." and "."
// have fewer than two pieces and no source, while ".t" has the source "".
func (b base) javaSource(topic string) (string, bool) {
	trimmed := topic
	for strings.HasSuffix(trimmed, b.sep) {
		trimmed = strings.TrimSuffix(trimmed, b.sep)
	}
	source, _, found := strings.Cut(trimmed, b.sep)
	if !found {
		return "", false
	}
	return source, true
}

func (b base) javaUpstream(topic string) (string, bool) {
	source, ok := b.javaSource(topic)
	if !ok {
		return "", false
	}
	return topic[len(source)+len(b.sep):], true
}

// DefaultReplicationPolicy names copies <alias><separator><topic>.
type DefaultReplicationPolicy struct{ base }

// NewDefaultReplicationPolicy builds MM2's default policy. separator is replication.policy.separator (MM2's default is
// DefaultSeparator); internalSeparatorEnabled is replication.policy.internal.topic.separator.enabled (default true) and
// tells whether internal topic names follow the separator or always use ".". The error is ErrEmptySeparator.
func NewDefaultReplicationPolicy(separator string, internalSeparatorEnabled bool) (*DefaultReplicationPolicy, error) {
	b, err := newBase(separator, internalSeparatorEnabled)
	if err != nil {
		return nil, err
	}
	return &DefaultReplicationPolicy{b}, nil
}

// Class implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) Class() string { return DefaultReplicationPolicyClass }

// FormatRemoteTopic implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) FormatRemoteTopic(alias, topic string) string {
	return p.prefixed(alias, topic)
}

// IsRemoteOf implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) IsRemoteOf(alias, topic string) (string, bool) {
	return p.stripPrefix(alias, topic)
}

// OriginalTopicOf implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) OriginalTopicOf(topic string, knownAliases []string) string {
	return p.stripKnown(topic, knownAliases)
}

// IsHeartbeatsTopicOf implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) IsHeartbeatsTopicOf(topic string, knownAliases []string) bool {
	return p.reaches(topic, knownAliases, heartbeatsName)
}

// IsCycle implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) IsCycle(topic, sourceAlias, targetAlias string, knownAliases []string) bool {
	return p.passes(topic, []string{targetAlias, sourceAlias}, knownAliases)
}

// TopicSource implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) TopicSource(topic string) (string, bool) {
	return p.javaSource(topic)
}

// UpstreamTopic implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) UpstreamTopic(topic string) (string, bool) {
	return p.javaUpstream(topic)
}

// OriginalTopic implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) OriginalTopic(topic string) string { return originalTopic(p, topic) }

// IsHeartbeatsTopic implements ReplicationPolicy.
func (p *DefaultReplicationPolicy) IsHeartbeatsTopic(topic string) bool {
	return p.OriginalTopic(topic) == heartbeatsName
}

// IdentityReplicationPolicy keeps topic names, except those that end with "heartbeats", which are prefixed as under the
// default policy so that heartbeats of several clusters stay apart.
type IdentityReplicationPolicy struct {
	base
	source string
}

// NewIdentityReplicationPolicy builds MM2's identity policy. sourceAlias is source.cluster.alias and may be empty, in
// which case no topic counts as a copy; the other two are as for NewDefaultReplicationPolicy.
func NewIdentityReplicationPolicy(sourceAlias, separator string, internalSeparatorEnabled bool) (*IdentityReplicationPolicy, error) {
	b, err := newBase(separator, internalSeparatorEnabled)
	if err != nil {
		return nil, err
	}
	return &IdentityReplicationPolicy{base: b, source: sourceAlias}, nil
}

func looksLikeHeartbeat(topic string) bool { return strings.HasSuffix(topic, heartbeatsName) }

// Class implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) Class() string { return IdentityReplicationPolicyClass }

// FormatRemoteTopic implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) FormatRemoteTopic(alias, topic string) string {
	if looksLikeHeartbeat(topic) {
		return p.prefixed(alias, topic)
	}
	return topic
}

// IsRemoteOf implements ReplicationPolicy. Every topic that is not heartbeat-like is what the policy would name a topic
// from its own source cluster, so that names alone cannot tell copies from local topics.
func (p *IdentityReplicationPolicy) IsRemoteOf(alias, topic string) (string, bool) {
	if looksLikeHeartbeat(topic) {
		return p.stripPrefix(alias, topic)
	}
	if alias == "" || alias != p.source {
		return "", false
	}
	return topic, true
}

// OriginalTopicOf implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) OriginalTopicOf(topic string, knownAliases []string) string {
	if looksLikeHeartbeat(topic) {
		return p.stripKnown(topic, knownAliases)
	}
	return topic
}

// IsHeartbeatsTopicOf implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) IsHeartbeatsTopicOf(topic string, knownAliases []string) bool {
	return p.reaches(topic, knownAliases, heartbeatsName)
}

// IsCycle implements ReplicationPolicy. Names carry no origin under this policy, except heartbeats: two identity flows
// in opposite directions over the same topics do loop, and only the caller, who knows the flows, can refuse that.
func (p *IdentityReplicationPolicy) IsCycle(topic, _, targetAlias string, knownAliases []string) bool {
	if !looksLikeHeartbeat(topic) {
		return false
	}
	return p.passes(topic, []string{targetAlias}, knownAliases)
}

// TopicSource implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) TopicSource(topic string) (string, bool) {
	if looksLikeHeartbeat(topic) {
		return p.javaSource(topic)
	}
	return p.source, p.source != ""
}

// UpstreamTopic implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) UpstreamTopic(topic string) (string, bool) {
	if looksLikeHeartbeat(topic) {
		return p.javaUpstream(topic)
	}
	return topic, true
}

// OriginalTopic implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) OriginalTopic(topic string) string {
	return originalTopic(p, topic)
}

// IsHeartbeatsTopic implements ReplicationPolicy.
func (p *IdentityReplicationPolicy) IsHeartbeatsTopic(topic string) bool {
	return p.OriginalTopic(topic) == heartbeatsName
}

// NewReplicationPolicy builds the policy for a Java class name. sourceAlias matters to the identity policy only.
func NewReplicationPolicy(class, sourceAlias, separator string, internalSeparatorEnabled bool) (ReplicationPolicy, error) {
	switch class {
	case DefaultReplicationPolicyClass:
		return NewDefaultReplicationPolicy(separator, internalSeparatorEnabled)
	case IdentityReplicationPolicyClass:
		return NewIdentityReplicationPolicy(sourceAlias, separator, internalSeparatorEnabled)
	}
	return nil, fmt.Errorf("mm2: unknown replication policy class %q", class)
}

// originalTopic repeats Java's upstreamTopic until it says null or the same name.
func originalTopic(p ReplicationPolicy, topic string) string {
	for {
		up, ok := p.UpstreamTopic(topic)
		if !ok || up == topic {
			return topic
		}
		topic = up
	}
}

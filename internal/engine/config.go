package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Identity names the task to brokers, logs and metrics. All members are fixed for the life of Run.
type Identity struct {
	FlowID     string
	Task       int // 0..Tasks-1
	Tasks      int
	Worker     string
	LeaseEpoch int64
}

// Config is everything Run needs. Run validates it and answers an error that names the member.
type Config struct {
	Identity Identity

	// Hub is what the tasks of a process share, connections above all; nil: the task has one of its own. It must be open
	// until Run has returned.
	Hub                      *hub.Hub
	Source, Target           kafka.Cluster
	SourceAlias, TargetAlias string
	KnownAliases             []string // all aliases of the project, for cycle detection
	// Expected cluster ids as registered; "" when not known. A different id at run time is
	// SOURCE_/TARGET_CLUSTER_CHANGED and nothing is copied.
	SourceClusterID, TargetClusterID string

	IdentityPolicy bool   // IdentityReplicationPolicy instead of DefaultReplicationPolicy
	Separator      string // replication.policy.separator

	Topics, TopicExcludeList                     []string // Java patterns
	Groups, GroupExcludeList                     []string
	SyncGroupOffsets                             bool
	SyncInterval                                 time.Duration
	EmitHeartbeats, EmitBackwardHeartbeats       bool
	EmitHeartbeatsInterval                       time.Duration
	EmitCheckpointsInterval                      time.Duration
	RefreshTopicsInterval, RefreshGroupsInterval time.Duration
	ReplicationFactor                            int16
	OffsetSyncsOnSource                          bool
	OffsetLagMax                                 int64
	ReadUncommitted                              bool
	// MaxBytesPerSecond limits what the task reads, in bytes of record batches as they travel, compressed or not; 0: no
	// limit. It is the task's share of its flow's limit. Task.SetMaxBytesPerSecond changes it while the task runs.
	MaxBytesPerSecond int64
	// PassThrough moves whole batches as bytes where that is allowed, instead of taking every one apart.
	PassThrough             bool
	StartPosition           string // earliest, latest, timestamp
	StartTimestamp          time.Time
	SyncTopicConfigs        bool
	MirrorTopicConfigs      bool // topicConfigSyncMode: mirror
	ConfigPropertiesExclude []string

	// MayWrite is asked right before anything is written to either cluster; false: the task may be somebody else's by now,
	// though nobody has said so yet (a process that stood still). It is called often and must not block; nil: always true.
	MayWrite func() bool

	Logger   *slog.Logger
	Registry prometheus.Registerer // metrics of this task; labels bounded
	Sink     Sink
	// Owners arbitrates remote topics between flows; nil: every claim is granted (tests).
	Owners Owners
}

// Sink receives what the task observes. Calls do not block for long and are safe for concurrent use.
type Sink interface {
	// Status replaces the task's last status. Called at least each second and at each change of state. Statuses share what
	// has not changed between them: what they hold may be kept, and must not be changed.
	Status(report.Status)
	// Event records something that happened; it must not be lost: an error makes the caller try again.
	Event(ctx context.Context, e report.Event) error
}

// OwnerElsewhere stands for the id of a flow that must not be named, since it is another project's.
const OwnerElsewhere = "a flow of another project"

// Owners decides which flow writes a remote topic on a Kafka cluster.
type Owners interface {
	// Claim answers, for each topic another flow owns, that flow's id or OwnerElsewhere.
	Claim(ctx context.Context, kafkaClusterID string, remoteTopics []string) (denied map[string]string, err error)
	Release(ctx context.Context, kafkaClusterID string, remoteTopics []string) error
}

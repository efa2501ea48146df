package flows

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Project is a tenant. Every object and every token belongs to exactly one.
type Project struct {
	ID        uuid.UUID
	Name      string // the {serviceName} of OVHcloud-shaped routes; "default" under MIRRORFLOW_AUTH=none
	CreatedAt time.Time
}

// DefaultProject is the project that MIRRORFLOW_AUTH=none acts in.
const DefaultProject = "default"

// Engine tells what a service is.
type Engine string

// The engines.
const (
	EngineKafka            Engine = "kafka"
	EngineKafkaMirrorMaker Engine = "kafkaMirrorMaker"
)

// ResourceStatus is OVHcloud's status word for services and integrations.
type ResourceStatus string

// The words in use here.
const (
	StatusPending ResourceStatus = "PENDING" // no worker has checked the cluster yet
	StatusReady   ResourceStatus = "READY"
	StatusError   ResourceStatus = "ERROR" // the last check failed; registered by force
)

// Security says how to reach a cluster. It holds nothing secret: private keys,
// passwords and client secrets are in Service.Sealed (stored) or Secrets (input).
type Security struct {
	Protocol string    `json:"protocol"` // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	TLS      *TLSSpec  `json:"tls,omitempty"`
	SASL     *SASLSpec `json:"sasl,omitempty"`
}

// TLSSpec holds the public parts of the TLS settings, PEM.
type TLSSpec struct {
	CA         string `json:"ca,omitempty"`         // roots; empty: the system's
	Cert       string `json:"cert,omitempty"`       // client certificate (mTLS)
	ServerName string `json:"serverName,omitempty"` // name to verify; empty: the address's host
}

// SASLSpec holds the public parts of the SASL settings.
type SASLSpec struct {
	Mechanism     string `json:"mechanism"` // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
	Username      string `json:"username,omitempty"`
	TokenEndpoint string `json:"tokenEndpoint,omitempty"`
	ClientID      string `json:"clientId,omitempty"`
	Scope         string `json:"scope,omitempty"`
}

// SecretField names one secret of a service; the value is its place below "security".
type SecretField string

// The secrets.
const (
	SecretTLSKey       SecretField = "tls.key"
	SecretSASLPassword SecretField = "sasl.password"
	SecretClientSecret SecretField = "sasl.clientSecret"
)

// SecretChange is what a request says about a secret. Absent from the map:
// keep what is stored (nothing on create), which an update refuses when it changes where or how
// the secret travels. Nil: clear it. Else: set it.
type SecretChange map[SecretField]*string

// SealedSecret is a value only workers can open (anonymous NaCl box to the public key KeyID).
type SealedSecret struct {
	KeyID string `json:"keyId"`
	Box   []byte `json:"box"`
}

// Service is a Kafka cluster (EngineKafka) or a MirrorMaker service (EngineKafkaMirrorMaker).
type Service struct {
	ID          uuid.UUID
	ProjectID   uuid.UUID
	Engine      Engine
	Description string

	// Kafka only.
	Alias            string
	BootstrapServers []string
	Security         Security
	Sealed           map[SecretField]SealedSecret
	KafkaClusterID   string // "" until a worker has checked the cluster
	KafkaVersion     string // "3.9"; "" until checked

	// OVHcloud's members of a kafkaMirrorMaker service, kept and echoed.
	Plan         string
	Version      string
	NodesPattern json.RawMessage // {flavor, number, region} as sent; nil when not

	Status       ResourceStatus
	StatusDetail string // why Status is ERROR or PENDING, for a person
	Revision     int64  // grows with every change; the ETag
	// CredentialsRevision grows when only credentials changed as well as with any other change of
	// the connection; workers swap credentials in place when it moves and addresses did not.
	CredentialsRevision int64
	CreatedAt           time.Time
	UpdatedAt           time.Time
}

// Integration binds a kafka service to a kafkaMirrorMaker service. It never changes.
type Integration struct {
	ID                   uuid.UUID
	ProjectID            uuid.UUID
	Type                 string            // "kafkaMirrorMaker"
	SourceServiceID      uuid.UUID         // the kafka service
	DestinationServiceID uuid.UUID         // the kafkaMirrorMaker service
	Parameters           map[string]string // echoed exactly as sent; nil when not sent
	Status               ResourceStatus    // READY
	CreatedAt            time.Time
}

// StartPosition says where a partition that existed when the flow was made begins.
// Topics and partitions that appear later always start at their beginning.
type StartPosition string

// The start positions.
const (
	StartEarliest  StartPosition = "earliest"
	StartLatest    StartPosition = "latest"
	StartTimestamp StartPosition = "timestamp"
)

// Policy classes, OVHcloud's and MM2's names.
const (
	DefaultPolicyClass  = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
	IdentityPolicyClass = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
)

// Options are the settings of a flow that a caller may change later; see
// DefaultOptions for the defaults. MM2's property names stand beside each.
type Options struct {
	Enabled          bool
	Topics           []string      // topics; Java patterns, whole name
	TopicExcludeList []string      // topics.exclude
	SyncGroupOffsets bool          // sync.group.offsets.enabled
	SyncInterval     time.Duration // sync.group.offsets.interval.seconds
	EmitHeartbeats   bool          // emit.heartbeats.enabled

	Groups           []string // groups
	GroupExcludeList []string // groups.exclude
	TasksMax         int      // tasks.max
	// ReplicationFactor of topics created on the target, internal ones included; -1: the target's
	// default. replication.factor and the internal topics' factors.
	ReplicationFactor        int
	OffsetSyncsTopicLocation string // offset-syncs.topic.location: "source" or "target"
	OffsetLagMax             int64  // offset.lag.max, records
	IsolationLevel           string // isolation.level: "read_committed" or "read_uncommitted"
	StartPosition            StartPosition
	StartTimestamp           *time.Time // required with, and only with, StartTimestamp
	SyncTopicConfigs         bool       // sync.topic.configs.enabled
	TopicConfigSyncMode      string     // "incremental" or "mirror"
	ConfigPropertiesExclude  []string   // config.properties.exclude
	SyncTopicACLs            bool       // sync.topic.acls.enabled; true is refused until it is built
	EmitHeartbeatsInterval   time.Duration
	EmitBackwardHeartbeats   bool
	EmitCheckpointsInterval  time.Duration
	RefreshTopicsInterval    time.Duration
	RefreshGroupsInterval    time.Duration
	// MaxBytesPerSecond limits what the flow reads from its source, over all its tasks, in bytes of record batches as they
	// travel (compressed or not) a second; nil: no limit. A running flow follows it without a stop. See RateOfTask.
	MaxBytesPerSecond *int64
}

// Flow is a replication: source integration to target integration.
type Flow struct {
	ID                         uuid.UUID
	ProjectID                  uuid.UUID
	MirrorMakerID              uuid.UUID // the kafkaMirrorMaker service of both integrations
	SourceIntegration          uuid.UUID
	TargetIntegration          uuid.UUID
	ReplicationPolicyClass     string
	ReplicationPolicySeparator string // default "."
	Options
	Revision  int64 // grows with every change; the ETag
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Token is an API token as stored: only its hash.
type Token struct {
	ID        uuid.UUID
	ProjectID uuid.UUID
	Name      string
	Hash      [32]byte // SHA-256 of the token's text
	CreatedAt time.Time
}

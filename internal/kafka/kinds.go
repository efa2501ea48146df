package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Kind says what a broker's error code asks of us. Each code has exactly one.
type Kind int

// The kinds.
const (
	// KindNone: no broker code is in the error.
	KindNone Kind = iota
	// KindRetriable: the same request may succeed a little later (leader moves, coordinator loads, time-outs, quotas).
	KindRetriable
	// KindAuthentication: the login was refused.
	KindAuthentication
	// KindAuthorization: a right is missing.
	KindAuthorization
	// KindTopicMissing: topic, partition or topic id unknown. Also briefly true of topics just made.
	KindTopicMissing
	// KindTooLarge: a record or batch exceeds a limit.
	KindTooLarge
	// KindRecordRefused: the broker refuses the content of a record for good (timestamp, null key, format).
	KindRecordRefused
	// KindOutOfRange: the offset is not in the log.
	KindOutOfRange
	// KindGroupBusy: the group has members, or a member's state forbids what was asked.
	KindGroupBusy
	// KindGroupMissing: the group does not exist.
	KindGroupMissing
	// KindFenced: someone newer has taken over, or a producer's sequence or transaction is not what the broker knows.
	KindFenced
	// KindExists: what was to be made is there already.
	KindExists
	// KindConfig: name, partition count, replication factor, config or policy is not acceptable.
	KindConfig
	// KindUnsupported: the cluster is too old or has the feature off.
	KindUnsupported
	// KindWrongCluster: the request was meant for another cluster.
	KindWrongCluster
	// KindServer: the broker failed inside, or speaks of things no client asks for.
	KindServer
	// KindInvalid: the request is wrong, which is our fault.
	KindInvalid
)

// KindOf finds the broker code in err, however deep, and returns its kind.
func KindOf(err error) Kind {
	code, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return KindNone
	}
	return kindOfCode(code.Code)
}

func kindOfCode(code int16) Kind {
	if k, ok := kinds[code]; ok {
		return k
	}
	// A code newer than this table.
	return KindServer
}

// kinds is complete for the codes of the client library; a test sees to it.
var kinds = func() map[int16]Kind {
	m := map[int16]Kind{}
	for kind, codes := range kindCodes {
		for _, e := range codes {
			m[e.Code] = kind
		}
	}
	return m
}()

var kindCodes = map[Kind][]*kerr.Error{
	KindRetriable: {
		kerr.CorruptMessage, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.BrokerNotAvailable,
		kerr.ReplicaNotAvailable, kerr.NetworkException, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
		kerr.NotCoordinator, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotController,
		kerr.ConcurrentTransactions, kerr.KafkaStorageError, kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch,
		kerr.ListenerNotFound, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable,
		kerr.PreferredLeaderNotAvailable, kerr.EligibleLeadersNotAvailable, kerr.UnstableOffsetCommit,
		kerr.ThrottlingQuotaExceeded, kerr.InconsistentTopicID, kerr.FetchSessionTopicIDError, kerr.ReassignmentInProgress,
		kerr.ShareSessionLimitReached, kerr.StaleControllerEpoch, kerr.UnknownControllerID, kerr.OperationNotAttempted,
	},
	KindAuthentication: {kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.DelegationTokenExpired, kerr.DelegationTokenNotFound},
	KindAuthorization: {
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.DelegationTokenAuthorizationFailed, kerr.DelegationTokenRequestNotAllowed,
		kerr.DelegationTokenOwnerMismatch,
	},
	KindTopicMissing:  {kerr.UnknownTopicOrPartition, kerr.UnknownTopicID},
	KindTooLarge:      {kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.OffsetMetadataTooLarge, kerr.InvalidCommitOffsetSize, kerr.TelemetryTooLarge},
	KindRecordRefused: {kerr.InvalidTimestamp, kerr.InvalidRecord, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType},
	KindOutOfRange:    {kerr.OffsetOutOfRange, kerr.OffsetMovedToTieredStorage, kerr.PositionOutOfRange},
	KindGroupBusy: {
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NonEmptyGroup, kerr.GroupSubscribedToTopic,
		kerr.FencedInstanceID, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch, kerr.UnreleasedInstanceID, kerr.MemberIDRequired,
		kerr.GroupMaxSizeReached, kerr.InconsistentGroupProtocol, kerr.GroupDeletionFailed,
	},
	KindGroupMissing: {kerr.GroupIDNotFound, kerr.ResourceNotFound, kerr.TransactionalIDNotFound},
	KindFenced: {
		kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState,
		kerr.InvalidProducerIDMapping, kerr.TransactionCoordinatorFenced, kerr.UnknownProducerID, kerr.ProducerFenced,
		kerr.TransactionAbortable, kerr.FencedStateEpoch,
	},
	KindExists: {kerr.TopicAlreadyExists, kerr.DuplicateResource, kerr.ElectionNotNeeded, kerr.NoReassignmentInProgress},
	KindConfig: {
		kerr.InvalidTopicException, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidReplicaAssignment,
		kerr.InvalidConfig, kerr.PolicyViolation, kerr.UnacceptableCredential, kerr.InvalidTransactionTimeout,
		kerr.InvalidSessionTimeout, kerr.TopicDeletionDisabled, kerr.InvalidPrincipalType, kerr.FeatureUpdateFailed,
		kerr.InvalidUpdateVersion, kerr.InvalidRegularExpression,
	},
	KindUnsupported: {
		kerr.UnsupportedVersion, kerr.SecurityDisabled, kerr.DelegationTokenAuthDisabled, kerr.UnsupportedAssignor,
		kerr.UnsupportedEndpointType, kerr.MismatchedEndpointType,
	},
	KindWrongCluster: {kerr.InconsistentClusterID, kerr.RebootstrapRequired},
	KindServer: {
		kerr.UnknownServerError, kerr.LogDirNotFound, kerr.StaleBrokerEpoch, kerr.InconsistentVoterSet,
		kerr.PrincipalDeserializationFailure, kerr.SnapshotNotFound, kerr.DuplicateBrokerRegistration, kerr.BrokerIDNotRegistered,
		kerr.IneligibleReplica, kerr.NewLeaderElected, kerr.InvalidRegistration, kerr.InvalidVoterKey, kerr.DuplicateVoter,
		kerr.VoterNotFound, kerr.ControllerIDNotRegistered, kerr.UnknownSubscriptionID, kerr.StreamsTopologyDescriptionUpdateFailed,
	},
	KindInvalid: {
		kerr.InvalidFetchSize, kerr.InvalidRequiredAcks, kerr.InvalidGroupID, kerr.InvalidRequest, kerr.InvalidRecordState,
		kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch, kerr.StreamsInvalidTopology, kerr.StreamsInvalidTopologyEpoch,
		kerr.StreamsTopologyFenced,
	},
}

// kindNames are metric label values.
var kindNames = map[Kind]string{
	KindNone: "connection", KindRetriable: "retriable", KindAuthentication: "authentication", KindAuthorization: "authorization",
	KindTopicMissing: "topic_missing", KindTooLarge: "too_large", KindRecordRefused: "record_refused", KindOutOfRange: "out_of_range",
	KindGroupBusy: "group_busy", KindGroupMissing: "group_missing", KindFenced: "fenced", KindExists: "exists", KindConfig: "config",
	KindUnsupported: "unsupported", KindWrongCluster: "wrong_cluster", KindServer: "server", KindInvalid: "invalid",
}

// String is the kind's name in metrics and logs.
func (k Kind) String() string { return kindNames[k] }

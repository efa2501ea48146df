package state

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

func topicsOf(t *testing.T, cluster *kfake.Cluster) []string {
	t.Helper()
	all, err := kadm.NewClient(client(t, cluster)).ListTopics(within(t))
	require.NoError(t, err)
	return all.Names()
}

func TestAFreshTargetIsReadWithoutMakingTopicsWhichTheFirstSaveDoes(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	got, err := s.Load(within(t))
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, topicsOf(t, cluster))
	require.NoError(t, s.Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: 7, TargetNext: 7}}))
	require.ElementsMatch(t, []string{mm2.StateTopic(alias), mm2.ConnectOffsetsTopic(alias)}, topicsOf(t, cluster))
	got, err = open(t, cluster, 2).Load(within(t))
	require.NoError(t, err)
	require.EqualValues(t, 7, got[key(0)].Position)
}

func TestATopicMadeByAnotherSinceTheFirstLookIsReadByTheNext(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s, other := open(t, cluster, 1), open(t, cluster, 1)
	_, err := s.Load(within(t))
	require.NoError(t, err)
	require.NoError(t, other.Save(within(t), map[Key]Entry{key(1): {SourceTopic: "orders", Position: 7, TargetNext: 7}}))
	got, err := s.Load(within(t))
	require.NoError(t, err)
	require.Contains(t, got, key(1))
}

func TestPositionsAreNotTakenForNoneWhereTheMetadataLag(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	require.NoError(t, open(t, cluster, 1).Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: 7, TargetNext: 7}}))
	lagging := 3
	cluster.ControlKey(kmsg.Metadata.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.MetadataRequest)
		if lagging == 0 || len(req.Topics) == 0 {
			cluster.KeepControl()
			return nil, nil, false
		}
		lagging--
		if lagging > 0 {
			cluster.KeepControl()
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID, topic.ErrorCode = asked.Topic, asked.TopicID, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	got, err := open(t, cluster, 2).Load(within(t))
	require.NoError(t, err)
	require.EqualValues(t, 7, got[key(0)].Position)
	require.Zero(t, lagging, "the metadata lagged")
}

func TestATargetThatLetsUsMakeNoTopicsIsReadAllTheSame(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	require.NoError(t, open(t, cluster, 1).Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: 7, TargetNext: 7}}))
	refuse(cluster, kerr.TopicAuthorizationFailed.Code)
	got, err := open(t, cluster, 2).Load(within(t))
	require.NoError(t, err)
	require.EqualValues(t, 7, got[key(0)].Position)
}

func TestATargetOnWhichPositionsCouldNotBeStoredIsTold(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	refuse(cluster, kerr.InvalidReplicationFactor.Code)
	_, err := open(t, cluster, 1).Load(within(t))
	require.ErrorIs(t, err, kerr.InvalidReplicationFactor)
}

// refuse has the cluster refuse to make topics.
func refuse(cluster *kfake.Cluster, code int16) {
	cluster.ControlKey(kmsg.CreateTopics.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.CreateTopicsRequest)
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, asked := range req.Topics {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, code
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

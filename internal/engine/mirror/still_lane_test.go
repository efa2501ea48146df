package mirror

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
)

// The log alone tells where producers are not spoken of, and it shows only what is replicated: what is behind that is not
// known to be absent.
func TestWhereProducersAreNotToldTheReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	target.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse) //nolint:forcetypeassert // by its key
		sp := kmsg.NewDescribeProducersResponseTopicPartition()
		sp.ErrorCode = kerr.TopicAuthorizationFailed.Code
		resp.Topics = []kmsg.DescribeProducersResponseTopic{{Topic: remote(topic), Partitions: []kmsg.DescribeProducersResponseTopicPartition{sp}}}
		return resp, nil, true
	})
	var ahead atomic.Int64 // of the leader's log
	target.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest) //nolint:forcetypeassert // by its key
		if r.ReplicaID != -2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse) //nolint:forcetypeassert // by its key
		sp := kmsg.NewListOffsetsResponseTopicPartition()
		sp.Offset = ahead.Load()
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: remote(topic), Partitions: []kmsg.ListOffsetsResponseTopicPartition{sp}}}
		return resp, nil, true
	})
	s := newStill(t, func(c *Config) { c.Target = plain("target", target.ListenAddrs()...) })
	s.target.cluster.SetBroker(0, target.ListenAddrs()[0])
	tp, v := TP{remote(topic), 0}, view{epoch: -1}
	all := []sought{{of: &sending{}, id: identity{1, 0, 0}, count: 4, expect: 0}}
	ahead.Store(4)
	_, err = s.find(t.Context(), 0, tp, v, all)
	require.ErrorIs(t, err, errUnsettled)
	ahead.Store(0)
	f, err := s.find(t.Context(), 0, tp, v, all)
	require.NoError(t, err)
	require.Empty(t, f.bases)
	require.Zero(t, f.tail.LogEnd)
}

// Others may write faster than the log is read.
func TestALookAtTheLogEndsWhereItEndedWhenItBegan(t *testing.T) {
	t.Parallel()
	target, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(target.Close)
	var asked atomic.Int64
	target.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		target.KeepControl()
		r := req.(*kmsg.FetchRequest) //nolint:forcetypeassert // by its key
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.FetchResponse) //nolint:forcetypeassert // by its key
		sp := kmsg.NewFetchResponseTopicPartition()
		from := r.Topics[0].Partitions[0].FetchOffset
		sp.HighWatermark = from + 8 // always two more batches
		sp.RecordBatches = at(encoded(t, samples(0), identity{-1, -1, -1}), from)
		resp.Topics = []kmsg.FetchResponseTopic{{Topic: remote(topic), TopicID: r.Topics[0].TopicID, Partitions: []kmsg.FetchResponseTopicPartition{sp}}}
		return resp, nil, true
	})
	s := newStill(t, func(c *Config) { c.Target = plain("target", target.ListenAddrs()...) })
	_, err = s.target.client.Broker(0).Request(t.Context(), kmsg.NewPtrMetadataRequest())
	require.NoError(t, err)
	var seen []int64
	id := target.TopicInfo(remote(topic)).TopicID
	require.NoError(t, s.headers(t.Context(), 0, TP{remote(topic), 0}, id, 0, func(b batch.Batch) bool {
		seen = append(seen, b.BaseOffset())
		return len(seen) < 100
	}))
	require.Equal(t, []int64{0, 4}, seen)
	require.EqualValues(t, 2, asked.Load())
}

func TestAPathInDebtIsLookedAtAgainWhenItIsOver(t *testing.T) {
	t.Parallel()
	s := newStill(t, func(c *Config) { c.Hub = hub.New(hub.Config{Linger: -1}); t.Cleanup(c.Hub.Close) })
	began := time.Now()
	s.locked(func() {
		s.rate.set(1000, began)
		s.rate.charge(20, began)
		s.admit(began)
		s.rate.charge(20, began) // what had been asked for before
	})
	require.True(t, s.indebted)
	<-s.wakeFetch // since that has changed
	bound := time.After(10 * time.Second)
	for over := false; !over; {
		select {
		case <-s.wakeFetch:
			s.locked(func() {
				s.admit(time.Now())
				over = !s.indebted
			})
		case <-bound:
			require.Fail(t, "nobody looks again")
		}
	}
	require.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)
}

func TestHowManyPartitionsShareRequestsIsForgottenInIdleTimes(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil)
	parts := make([]part, 5)
	j := &produceJob{}
	for i := range parts {
		j.sends = append(j.sends, produceSend{part: &parts[i]})
	}
	one, other := &lane{}, &lane{}
	now := time.Now()
	s.locked(func() { s.count(one, j, now) })
	require.Equal(t, 5, one.sharing(now))
	s.locked(func() { s.count(other, j, now) }) // they moved
	require.Equal(t, 5, other.sharing(now), "a lane's turns are its own")
	later := now.Add(turnover)
	alone := &produceJob{sends: j.sends[:1]}
	s.locked(func() { s.count(one, alone, later) })
	require.Equal(t, 5, one.sharing(later))
	later = later.Add(time.Hour)
	require.Zero(t, one.sharing(later))
	s.locked(func() { s.count(one, alone, later) })
	require.Equal(t, 1, one.sharing(later))
}

package engine

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// sharing are settings of a flow that shares connections with others of the world.
func (w *world) sharing(h *hub.Hub, flow, topic string) Config {
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.Identity.FlowID += flow
	cfg.Hub, cfg.Source.Key, cfg.Target.Key = h, w.src, w.tgt
	cfg.EmitHeartbeats = true
	return cfg
}

func TestATaskThatEndsTakesNothingFromThoseItSharesWith(t *testing.T) {
	t.Parallel()
	w := fakes(t, "sharing")
	h := hub.New(hub.Config{})
	defer h.Close()
	topics := []string{w.topic("a"), w.topic("b"), w.topic("c")}
	for _, topic := range topics {
		w.create(w.srcAdm, topic, 1, nil)
		w.produce(w.srcCl, topic, 0, 0, 10)
	}
	lost := atomic.Bool{}
	first := w.sharing(h, "a", topics[0])
	first.MayWrite = func() bool { return !lost.Load() }
	a, b := run(t, first), run(t, w.sharing(h, "b", topics[1]))
	a.untilPosition(topics[0], 10)
	b.untilPosition(topics[1], 10)

	// The first to join may not write any more, then is gone: neither says anything about the other.
	lost.Store(true)
	w.produce(w.srcCl, topics[1], 0, 10, 5)
	b.untilPosition(topics[1], 15)
	a.kill()
	w.produce(w.srcCl, topics[1], 0, 15, 5)
	b.untilPosition(topics[1], 20)
	b.drain()
	c := run(t, w.sharing(h, "c", topics[2]))
	c.untilPosition(topics[2], 10)
	c.drain()

	// What b stored as its last is there.
	again := w.sharing(h, "b", topics[1])
	again.Identity.LeaseEpoch = 2
	b = run(t, again)
	w.produce(w.srcCl, topics[1], 0, 20, 1)
	b.untilPosition(topics[1], 21)
	b.drain()
	require.Equal(t, want(0, 0, 21), w.read(w.tgtAdm, w.tgt, w.remote(topics[1]), 0))
}

func TestATaskThatMayNotWriteMakesNoTopicsAndCommitsNothing(t *testing.T) {
	t.Parallel()
	w := fakes(t, "gated")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	var wrote atomic.Int64
	for _, key := range []kmsg.Key{kmsg.CreateTopics, kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs, kmsg.Produce, kmsg.OffsetCommit} {
		w.targetCluster.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.targetCluster.KeepControl()
			if c, ok := r.(*kmsg.CreateTopicsRequest); !ok || !c.ValidateOnly {
				wrote.Add(1)
			}
			return nil, nil, false
		})
	}
	h := hub.New(hub.Config{})
	defer h.Close()
	cfg := w.sharing(h, "", topic)
	cfg.MayWrite = func() bool { return false }
	f := run(t, cfg)
	seen := 0
	f.until("some statuses", func(report.Status) bool { seen++; return seen > 4 })
	f.kill()
	require.Zero(t, wrote.Load())
}

func TestAnAcknowledgementThatNeverComesHoldsUpNoEnd(t *testing.T) {
	t.Parallel()
	w := fakes(t, "noack")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	h := hub.New(hub.Config{})
	defer h.Close()
	cfg := w.sharing(h, "", topic)
	f := run(t, cfg)
	f.untilPosition(topic, 10)
	// The side topics are not written any more, for a reason that the client tries again for ever.
	w.targetCluster.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.targetCluster.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range req.Topics {
			one := kmsg.NewProduceResponseTopic()
			one.Topic, one.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				answer := kmsg.NewProduceResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
				one.Partitions = append(one.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	w.produce(w.srcCl, topic, 0, 10, 5)
	f.untilCondition(report.HeartbeatFailed)
	f.kill()
}

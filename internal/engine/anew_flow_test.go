package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func TestI4_ARemoteTopicMadeAnewUnderARunningFlowMovesNoGroupPastItsRecords(t *testing.T) {
	t.Parallel()
	w := real(t, "i4anew")
	s, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	topic, group := w.topic("t"), w.name+"-g"
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 100)
	kafkatest.Commit(t, s, group, topic, map[int32]int64{0: 10})
	cfg := settings(w.name, w.src, w.tgt, topic)
	cfg.Groups, cfg.GroupExcludeList, cfg.SyncGroupOffsets = []string{group}, nil, true
	cfg.RefreshTopicsInterval = time.Minute // the engine learns late that the topic is another
	f := run(t, cfg)
	f.untilPosition(topic, 100)
	onTarget := func() int64 {
		offsets, err := w.tgtAdm.FetchOffsets(w.ctx(), group)
		o, ok := offsets.Lookup(w.remote(topic), 0)
		if err != nil || !ok {
			return -1
		}
		return o.At
	}
	eventually(t, "the group on the target", func() bool { return onTarget() == 10 })

	kafkatest.Commit(t, s, group, topic, map[int32]int64{0: 120})
	w.recreate(w.tgtAdm, w.remote(topic), 1)
	w.produce(w.srcCl, topic, 0, 100, 50)
	f.untilCondition(report.TargetDataLost)
	f.untilPosition(topic, 150)
	require.Equal(t, want(0, 100, 50), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
	eventually(t, "the group in the new topic", func() bool {
		at := onTarget()
		require.LessOrEqual(t, at, int64(20), "record 120 is the 20th of the new topic")
		return at == 20
	})
	there, err := w.tgtAdm.ListTopics(w.ctx(), w.remote(topic))
	require.NoError(t, errors.Join(err, there.Error()))
	_, id, ok := f.task.translateTo(topic, 0, 120)
	require.True(t, ok)
	require.Equal(t, [16]byte(there[w.remote(topic)].ID), id)
	// The checkpoint has gone back with it.
	eventually(t, "the checkpoint of the new topic", func() bool {
		all := kafkatest.ReadAll(t, target, f.task.policy.CheckpointsTopic(cfg.SourceAlias), kafkatest.ReadCommitted)[0]
		c, err := mm2.DecodeCheckpoint(all[len(all)-1].Key, all[len(all)-1].Value)
		require.NoError(t, err)
		return c.Upstream == 120 && c.Downstream == 20
	})
	f.drain()
}

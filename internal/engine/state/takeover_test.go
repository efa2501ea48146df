package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func save(t *testing.T, s *TopicStore, position int64, m *mm2.OffsetMap) {
	t.Helper()
	require.NoError(t, s.Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: position, TargetNext: position, Map: m}}))
}

func load(t *testing.T, s *TopicStore) Entry {
	t.Helper()
	got, err := s.Load(within(t))
	require.NoError(t, err)
	require.Contains(t, got, key(0))
	return got[key(0)]
}

// moved is holed with other lengths, so that its blocks are others.
func moved(t *testing.T, n int) *mm2.OffsetMap {
	t.Helper()
	m := mm2.NewOffsetMap(0)
	require.NoError(t, m.Begin(0, 0))
	source, target := int64(0), int64(0)
	for i := range n {
		length := int64(2 + i%211*9)
		require.NoError(t, m.AddRun(source, target, length))
		source, target = source+length+2+int64(i%7), target+length
	}
	return m
}

func TestAFlowMadeAgainGoesOnFromItsOwnPositionsWhateverTheEpochsOfTheOldOne(t *testing.T) {
	t.Parallel()
	for name, flows := range map[string][2]string{
		"another flow": {"old", "new"},
		"the same flow with new rows of its tasks": {"flow", "flow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t)
			save(t, openFor(t, cluster, flows[0], 7), 100, nil)
			again := openFor(t, cluster, flows[1], 1)
			require.EqualValues(t, 100, load(t, again).Position)
			save(t, again, 5000, nil)
			save(t, again, 6000, nil)
			next := openFor(t, cluster, flows[1], 2)
			require.EqualValues(t, 6000, load(t, next).Position)
			save(t, next, 7000, nil)
			require.EqualValues(t, 7000, load(t, openFor(t, cluster, flows[1], 3)).Position)
		})
	}
}

func TestWhatALateWriterSavesDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		zombie, heir int64
		// began: the zombie had saved before the heir took over.
		began bool
	}{
		"of a lower epoch":                                    {4, 5, true},
		"of a higher epoch, after a flow made again":          {9, 1, true},
		"that took over at the same time, with a lower epoch": {4, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t)
			save(t, open(t, cluster, 1), 40, nil)
			zombie, heir := open(t, cluster, c.zombie), open(t, cluster, c.heir)
			load(t, zombie)
			if c.began {
				save(t, zombie, 50, nil)
			}
			load(t, heir)
			save(t, heir, 100, nil)
			if c.began {
				load(t, zombie) // it looks again, as at a refresh
			}
			save(t, zombie, 60, nil)
			require.EqualValues(t, 100, load(t, open(t, cluster, 6)).Position)
			save(t, heir, 110, nil)
			require.EqualValues(t, 110, load(t, open(t, cluster, 7)).Position)
		})
	}
}

func TestATaskThatGetsAPartitionBackFromAnotherFlowTakesItOverAnew(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	first, second := openFor(t, cluster, "first", 9), openFor(t, cluster, "second", 1)
	save(t, first, 100, nil)
	load(t, second)
	save(t, second, 200, nil)
	require.EqualValues(t, 200, load(t, first).Position)
	save(t, first, 300, nil)
	require.EqualValues(t, 300, load(t, openFor(t, cluster, "first", 10)).Position)
}

func TestALateWriterTakesNoBlockFromItsSuccessorsMap(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	zombie := open(t, cluster, 4)
	m := holed(t, 8000)
	save(t, zombie, 1000, m)
	heir := open(t, cluster, 5)
	require.NotNil(t, load(t, heir).Map)
	save(t, heir, 2000, m)
	save(t, zombie, 1500, moved(t, 8000)) // none of the old blocks is in it: all are removed
	got := load(t, open(t, cluster, 6))
	require.EqualValues(t, 2000, got.Position)
	require.NotNil(t, got.Map, "blocks of the map are missing")
	require.Equal(t, m.Runs(), got.Map.Runs())
}

func TestATakeOverLeavesNoBlocksOfEarlierGenerationsBehind(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	save(t, open(t, cluster, 1), 1000, holed(t, 8000))
	heir := open(t, cluster, 2)
	save(t, heir, 2000, holed(t, 8000))
	save(t, heir, 3000, moved(t, 8000))
	_, parts, err := encodeEntry(Entry{SourceTopic: "orders", Position: 1, Map: moved(t, 8000)}, writer)
	require.NoError(t, err)
	left := map[blockID]bool{}
	require.NoError(t, sidetopic.Read(within(t), client(t, cluster), mm2.StateTopic(alias), func(r *kgo.Record) {
		if kind, _, id, err := parseKey(r.Key); err == nil && kind == kindBlock {
			left[id] = true
			if r.Value == nil {
				delete(left, id)
			}
		}
	}))
	require.Len(t, left, len(parts))
	for id := range left {
		require.Contains(t, parts, id.hash)
		require.Equal(t, term{2, 2}, id.term)
	}
}

func TestStateOfOlderVersionsIsReadAndReplaced(t *testing.T) {
	t.Parallel()
	for version := range byte(headVersion) {
		if version > 0 {
			t.Run(fmt.Sprint(version), func(t *testing.T) {
				t.Parallel()
				stateOfVersion(t, version)
			})
		}
	}
}

func stateOfVersion(t *testing.T, version byte) {
	t.Helper()
	cluster := fake(t, kfake.SeedTopics(1, mm2.StateTopic(alias)))
	m := holed(t, 8000)
	now, parts, err := encodeEntry(Entry{SourceTopic: "orders", Position: 70, TargetNext: 60, Map: m}, stamp{term{1, 8}, ""})
	require.NoError(t, err)
	// As it was: before version 3 no producer, in version 1 no generation and no flow.
	producer := 1 + 8 + 8 + 2 + 2 + len("orders") + 16 + 16 + 8 + 8
	require.Zero(t, now[producer])
	now = slices.Delete(now, producer, producer+1)
	old := append([]byte{version}, now[1:]...)
	by := term{1, 8}
	if version == 1 {
		old = append([]byte{1}, now[9:17]...)
		require.Zero(t, binary.BigEndian.Uint16(now[17:]))
		old = append(old, now[19:]...)
		by = term{}
	}
	records := []*kgo.Record{{Topic: mm2.StateTopic(alias), Key: headKey(key(0)), Value: old}}
	for hash, b := range parts {
		records = append(records, &kgo.Record{Topic: mm2.StateTopic(alias), Key: blockKey(key(0), blockID{by, hash}), Value: b})
	}
	require.NoError(t, client(t, cluster).ProduceSync(within(t), records...).FirstErr())

	s := open(t, cluster, 1)
	got := load(t, s)
	require.EqualValues(t, 70, got.Position)
	require.EqualValues(t, 8, got.LeaseEpoch)
	require.Nil(t, got.Producer)
	require.Equal(t, m.Runs(), got.Map.Runs())
	save(t, s, 90, m)
	got = load(t, open(t, cluster, 1))
	require.EqualValues(t, 90, got.Position)
	require.Equal(t, m.Runs(), got.Map.Runs())
}

func TestASaveThatNothingWasReadBeforeReadsFirst(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	save(t, openFor(t, cluster, "old", 9), 100, nil)
	save(t, openFor(t, cluster, "new", 1), 200, nil)
	require.EqualValues(t, 200, load(t, open(t, cluster, 1)).Position)
}

func TestNotesSavesAndLoadsMayBeAtOnce(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	done := make(chan error, 3)
	go func() {
		var err error
		for i := range 50 {
			if e := s.SaveNote(within(t), "n", []byte{byte(i)}); e != nil {
				err = e
			}
		}
		done <- err
	}()
	go func() {
		var err error
		for i := range 50 {
			if e := s.Save(within(t), map[Key]Entry{key(0): {SourceTopic: "orders", Position: int64(i), TargetNext: -1}}); e != nil {
				err = e
			}
		}
		done <- err
	}()
	go func() {
		var err error
		for range 20 {
			if _, e := s.Load(within(t)); e != nil {
				err = e
			}
		}
		done <- err
	}()
	for range 3 {
		require.NoError(t, <-done)
	}
	value, ok := s.Note("n")
	require.True(t, ok)
	require.Equal(t, []byte{49}, value, "a reading that began before put an older value back")
	require.EqualValues(t, 49, load(t, open(t, cluster, 2)).Position)
}

func TestStateWhoseTopicIsDeletedIsSavedWholeInANewOne(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := open(t, cluster, 1)
	m := holed(t, 8000)
	save(t, s, 1000, m)
	_, err := kadm.NewClient(client(t, cluster)).DeleteTopic(within(t), mm2.StateTopic(alias))
	require.NoError(t, err)
	entries := map[Key]Entry{key(0): {SourceTopic: "orders", Position: 2000, TargetNext: 2000, Map: m}}
	wait.For(t, 20*time.Second, "a save that succeeds", func() error { return s.Save(within(t), entries) })
	got := load(t, open(t, cluster, 2))
	require.EqualValues(t, 2000, got.Position)
	require.NotNil(t, got.Map)
	require.Equal(t, m.Runs(), got.Map.Runs())
}

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

func TestAPartitionWhosePositionCannotBeStoredWhenItGoesStartsAgainWhenItComesBack(t *testing.T) {
	t.Parallel()
	task, path, m := idle(t)
	p := hold(t, task, "a", 0, partRunning, 5)
	m.bend(func(context.Context) error { return errors.New("no") })
	gone, _ := found()
	require.False(t, task.dropGone(t.Context(), gone, nil), "the round says that it did not come through")
	require.Equal(t, []mirror.TP{p.tp}, path.unassigned)
	as, redecide := stateOfPartition(p)
	require.Equal(t, partWaiting, as)
	require.True(t, redecide)

	back, have := found("a")
	pending, _, _ := task.place(t.Context(), back.Topics, have)
	var starts []*partition
	for _, s := range pending {
		starts = append(starts, s.p)
	}
	require.Contains(t, starts, p)

	m.bend(nil)
	require.True(t, task.dropGone(t.Context(), gone, nil))
	require.Empty(t, task.parts.all())
	require.EqualValues(t, 5, m.position("idle.src.a", 0))
}

func TestAPartitionTakenBackForANewStartWaitsUntilItHasOne(t *testing.T) {
	t.Parallel()
	for _, was := range []string{partRunning, partFailed} {
		t.Run(was, func(t *testing.T) {
			t.Parallel()
			task, path, _ := idle(t)
			p := hold(t, task, "a", 0, was, 5)
			p.sourceTopicID = [16]byte{9} // another topic of that name now
			d, have := found("a")
			pending, _, _ := task.place(t.Context(), d.Topics, have)
			require.Len(t, pending, 3)
			require.Equal(t, []mirror.TP{p.tp}, path.unassigned)
			// Whatever fails before the start, nothing claims that it runs, and the next round tries again.
			as, redecide := stateOfPartition(p)
			require.Equal(t, partWaiting, as)
			require.True(t, redecide)
			pending, _, _ = task.place(t.Context(), d.Topics, have)
			require.Len(t, pending, 3)
			require.Len(t, path.unassigned, 1, "what the path does not have is not taken back again")
		})
	}
}

func TestWithTheWrongClustersThePathKeepsNothing(t *testing.T) {
	t.Parallel()
	task, path, _ := idle(t)
	var all []mirror.TP
	for n, as := range []string{partRunning, partFailed} {
		all = append(all, hold(t, task, "a", int32(n), as, 5).tp)
	}
	hold(t, task, "a", 2, partWaiting, 5)
	task.halt(t.Context())
	require.Equal(t, all, path.unassigned, "a stopped partition tries again by itself")
	for _, p := range task.parts.all() {
		as, redecide := stateOfPartition(p)
		require.Equal(t, partWaiting, as)
		require.True(t, redecide)
	}
}

func TestNewsOfAnAssignmentThatIsOverChangeNothing(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	o := observer{task}
	p := hold(t, task, "a", 0, partRunning, 5)
	task.takeBack(t.Context(), []*partition{p})
	// What was under way counts until a new start is decided.
	o.Mirrored(p.tp, []mirror.Span{{Source: 5, Target: 5, Count: 2}}, mirror.Point{Source: 7, Target: 7, ProducerID: -1})
	o.Passed(p.tp, 7)
	o.Resumed(p.tp)
	o.Stopped(p.tp, mirror.Stop{Reason: mirror.StopTooLarge, Retry: true, Offset: 7})
	as, _ := stateOfPartition(p)
	require.Equal(t, partWaiting, as)
	require.Empty(t, task.board.List())
	e, ok, err := task.entryNow(p)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 7, e.Position)
	require.EqualValues(t, 7, e.TargetNext)

	o.Mirrored(p.tp, []mirror.Span{{Source: 7, Target: 7, Count: 2}}, mirror.Point{Source: 9, Target: 9, ProducerID: -1})
	o.Passed(p.tp, 9)
	require.EqualValues(t, 7, p.position)
	require.EqualValues(t, 7, p.targetNext)
}

func TestTheFirstRoundGivesBackOnlyClaimsThatTheListsGaveUp(t *testing.T) {
	t.Parallel()
	book := &owners{m: map[string]string{}}
	task, _, _ := idle(t, func(c *Config) { c.Owners = ownersOf{book, c.Identity.FlowID} })
	for _, name := range []string{"selected", "unclear", "undecided", "left"} {
		task.entries[state.Key{RemoteTopic: "idle.src." + name}] = state.Entry{SourceTopic: name}
		book.m["idle.src."+name] = task.cfg.Identity.FlowID
	}
	d, _ := found("selected")
	d.Unclear["unclear"] = true
	d.Undecided["undecided"] = errors.New("a slow pattern")
	// The claim failed, so nothing is wanted; it is selected all the same.
	require.True(t, task.dropGone(t.Context(), d, nil))
	require.NotContains(t, book.m, "idle.src.left")
	for _, name := range []string{"selected", "unclear", "undecided"} {
		require.Contains(t, book.m, "idle.src."+name)
	}
}

// brokenOwners cannot be asked.
type brokenOwners struct{}

func (brokenOwners) Claim(context.Context, string, []string) (map[string]string, error) {
	return nil, errors.New("no database")
}
func (brokenOwners) Release(context.Context, string, []string) error { return nil }

func TestATopicOfAnotherFlowIsShownWhileItIsSelectedAndOwned(t *testing.T) {
	t.Parallel()
	book := &owners{m: map[string]string{"idle.src.a": "other", "idle.src.b": "other"}}
	task, _, _ := idle(t)
	mine := ownersOf{book, task.cfg.Identity.FlowID}
	shown := func() (names []string) {
		for _, c := range conditionsOf(task, report.TopicOwnedByOther) {
			names = append(names, c.Subject.Topic)
		}
		return names
	}
	task.cfg.Owners = mine
	d, _ := found("a", "b")
	task.claim(t.Context(), d)
	require.ElementsMatch(t, []string{"a", "b"}, shown())

	task.cfg.Owners = brokenOwners{}
	task.claim(t.Context(), d)
	require.ElementsMatch(t, []string{"a", "b"}, shown(), "who cannot be asked has not given up")

	task.cfg.Owners = mine
	d, _ = found("a")
	d.Unclear["b"] = true
	task.claim(t.Context(), d)
	require.ElementsMatch(t, []string{"a", "b"}, shown())

	d, _ = found("a")
	task.claim(t.Context(), d)
	require.Equal(t, []string{"a"}, shown(), "b is not asked for any more")

	delete(book.m, "idle.src.a")
	wanted, _ := task.claim(t.Context(), d)
	require.Len(t, wanted, 1)
	require.Empty(t, shown())
}

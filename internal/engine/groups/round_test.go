package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// apart returns names of two groups that different brokers of the target coordinate.
func apart(t *testing.T, w *fakeWorld) (a, b string) {
	t.Helper()
	at := map[int32]string{}
	for i := range 100 {
		name := fmt.Sprintf("g%d", i)
		found := w.to.FindGroupCoordinators(t.Context(), name)[name]
		require.NoError(t, found.Err)
		at[found.NodeID] = name
		if len(at) == 2 {
			for _, other := range at {
				if other != name {
					return other, name
				}
			}
		}
	}
	require.Fail(t, "one broker coordinates everything")
	return "", ""
}

func TestACoordinatorThatIsAwayTakesNoTimeFromTheOthersGroups(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	dark, fine := apart(t, w)
	w.commit(t, dark, fakeTopic, 1)
	w.commit(t, fine, fakeTopic, 1)
	// Its broker keeps silent until the next step has begun, which asks for the offsets of the other group.
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	w.target.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.target.KeepControl()
		release()
		return nil, nil, false
	})
	silent := func(names func(kmsg.Request) []string) func(kmsg.Request) (kmsg.Response, error, bool) {
		return func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.target.KeepControl()
			if slices.Contains(names(req), dark) {
				w.target.SleepControl(func() { <-released })
				return nil, errors.New("too late"), true
			}
			return nil, nil, false
		}
	}
	w.target.ControlKey(int16(kmsg.ConsumerGroupDescribe), silent(func(r kmsg.Request) []string { return r.(*kmsg.ConsumerGroupDescribeRequest).Groups }))
	w.target.ControlKey(int16(kmsg.DescribeGroups), silent(func(r kmsg.Request) []string { return r.(*kmsg.DescribeGroupsRequest).Groups }))
	r, err := New(w.cfg)
	require.NoError(t, err)
	r.step = 500 * time.Millisecond
	require.Error(t, r.SyncOnce(t.Context()))
	require.EqualValues(t, 1, w.committed(t, fine))
	require.Len(t, w.board.List(), 1)
	require.Equal(t, report.Flow, w.board.List()[0].Subject)
}

func TestRoundsBeginWithOtherGroupsEachTime(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	plan := map[string]wants{}
	for i := range describeBatch + 100 {
		plan[fmt.Sprintf("g%04d", i)] = wants{mm2.TopicPartition{Topic: w.cfg.Policy.FormatRemoteTopic(sourceAlias, fakeTopic)}: want{source: partition{fakeTopic, 0}, offset: 0}}
	}
	r, err := New(w.cfg)
	require.NoError(t, err)
	require.NoError(t, r.apply(t.Context(), plan))
	require.Equal(t, commitParallel, r.start, "after a whole round others come first, whom a slow target might not let come to their turn")
	w.target.Close()
	r.step = 300 * time.Millisecond
	require.Error(t, r.apply(t.Context(), plan))
	require.Equal(t, commitParallel+describeBatch, r.start, "a round that ended early goes on where it ended")
	require.Len(t, w.board.List(), 1)
}

// bursting panics when it is asked.
type bursting struct{}

func (bursting) Translate(string, int32, int64) (Translation, bool, string) { panic("oh") }

func TestAPanicEndsTheRoomAndNotTheProcess(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	w.commit(t, "g", fakeTopic, 1)
	w.cfg.Translator = bursting{}
	r, err := New(w.cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var p *report.PanicError
	require.ErrorAs(t, r.Run(ctx), &p)
	require.ErrorAs(t, report.Contained("x", func() error {
		inParallel(5, 2, func(i int) {
			if i == 3 {
				panic("oh")
			}
		})
		return nil
	}), &p)
}

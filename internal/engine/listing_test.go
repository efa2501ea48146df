package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answering answers with a new response each time and counts.
type answering struct {
	asked int
	err   error
}

func (a *answering) Request(context.Context, kmsg.Request) (kmsg.Response, error) {
	a.asked++
	return kmsg.NewPtrMetadataResponse(), a.err
}

func TestTasksOfOneClusterShareAListOfItsTopicsAndNoneSeesOneTwice(t *testing.T) {
	t.Parallel()
	l := listings{m: map[*kgo.Client]*listing{}}
	client, other := &kgo.Client{}, &kgo.Client{}
	to := &answering{}
	join := func(c *kgo.Client) (*lister, func()) {
		r, leave := l.join(c)
		r.(*lister).to = to
		return r.(*lister), leave
	}
	list := func(r *lister) kmsg.Response {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = nil
		resp, err := r.Request(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	a, leaveA := join(client)
	first := list(a)
	require.NotSame(t, first, list(a))
	require.Equal(t, 2, to.asked, "alone")
	require.Nil(t, a.listing.answer, "kept for nobody")

	b, leaveB := join(client)
	c, leaveC := join(other)
	second := list(a)
	require.Same(t, second, list(b))
	third := list(a)
	require.NotSame(t, second, third, "its second look is another")
	require.Same(t, third, list(b))
	require.NotSame(t, third, list(b))
	list(c)
	require.Equal(t, 6, to.asked)

	some := kmsg.NewPtrMetadataRequest()
	some.Topics = []kmsg.MetadataRequestTopic{}
	_, err := b.Request(t.Context(), some)
	require.NoError(t, err)
	require.Equal(t, 7, to.asked, "only lists of all are shared")

	a.listing.asked = a.listing.asked.Add(-listingAge)
	list(a)
	require.Equal(t, 8, to.asked, "an old one is not used")
	to.err = errors.New("away")
	b.last = a.listing.number
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil
	_, err = b.Request(t.Context(), req)
	require.ErrorIs(t, err, to.err)

	b.listing.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Request(ctx, req)
	require.ErrorIs(t, err, context.Canceled)
	leaveA()
	leaveB()
	leaveC()
	require.Empty(t, l.m)
}

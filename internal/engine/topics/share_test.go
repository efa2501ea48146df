package topics_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// counting passes requests on and counts the topics whose configs are asked for.
type counting struct {
	to    topics.Requester
	asked map[string]int
}

func (c counting) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if d, ok := req.(*kmsg.DescribeConfigsRequest); ok {
		for _, r := range d.Resources {
			c.asked[r.ResourceName]++
		}
	}
	return c.to.Request(ctx, req)
}

func TestConfigsOfManyTopicsAreLookedAtInTurnAndAllWithinHalfAMinute(t *testing.T) {
	t.Parallel()
	b := setup(t, ".*")
	const n = 60
	for i := range n {
		b.create(b.srcAdm, fmt.Sprintf("t%02d", i), 1, nil)
	}
	asked := map[string]int{}
	now := time.Now()
	b.cfg.Now = func() time.Time { return now }
	r := topics.New(b.cfg)
	b.round(r)
	b.cfg.Source = counting{b.srcCl, asked}
	r = topics.New(b.cfg)
	b.round(r)
	require.Len(t, asked, n, "a task that begins looks at all")
	clear(asked)
	sum := func() (sum int) {
		for _, n := range asked {
			sum += n
		}
		return sum
	}
	b.round(r)
	require.Equal(t, 10, sum(), "however often it is called")
	for range 5 {
		now = now.Add(5 * time.Second)
		b.round(r)
	}
	require.LessOrEqual(t, sum(), 10+5*11)
	now = now.Add(5 * time.Second)
	b.round(r)
	require.Len(t, asked, n)
	clear(asked)
	now = now.Add(time.Hour)
	b.round(r)
	require.Len(t, asked, n, "with a long interval each refresh looks at all")
	require.Equal(t, n, sum())
}

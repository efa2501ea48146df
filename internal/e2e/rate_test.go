package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// TestARateLimitsAFlowAndFollowsAChangeWithoutAStop copies 60 MB: at first at 1 MB/s over two tasks, then at twice that, and
// most of it without a limit. Neither task is done before the limit goes, or its share would be missing. A busy machine
// may be slower than the limits, never faster.
func TestARateLimitsAFlowAndFollowsAChangeWithoutAStop(t *testing.T) {
	const (
		records = 60_000
		size    = 1000 // and about 40 bytes around each value
		rate    = 1_000_000
	)
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, workers := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 8, nil)
	fill := kafkatest.FillOptions{
		Records: records, Partitions: 8, ValueBytes: size, Plain: true,
		// The limit counts bytes as they travel. Small batches make what it lets pass even.
		Opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(20_000)},
	}
	next := kafkatest.Fill(t, source, topic, fill)
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}, "tasksMax": 2, "maxBytesPerSecond": rate})
	admin := kafkatest.Admin(t, target)
	copied := func() int64 { return sum(ends(t, admin, p.remote(topic))) }
	reach := func(n int64) time.Time {
		wait.For(t, 60*time.Second, fmt.Sprint(n, " records"), func() error {
			if got := copied(); got < n {
				return fmt.Errorf("%d so far", got)
			}
			return nil
		})
		return time.Now()
	}
	// measure answers records a second while records from..to arrive.
	measure := func(from, to int64) float64 {
		began := reach(from)
		first := copied()
		ended := reach(to)
		return float64(copied()-first) / ended.Sub(began).Seconds()
	}
	slow := measure(1500, 4500)
	require.LessOrEqual(t, slow, 1.3*rate/size, "records a second at 1 MB/s")
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"maxBytesPerSecond": 2 * rate})
	quick := measure(6500, 10_500)
	require.LessOrEqual(t, quick, 2*1.3*rate/size, "records a second at 2 MB/s")
	require.GreaterOrEqual(t, quick, 1.2*slow, "the change has taken effect")
	t.Logf("at 1 MB/s %.0f records a second, at 2 MB/s %.0f", slow, quick)

	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"maxBytesPerSecond": nil})
	lifted := time.Now()
	rest := int64(next) - copied()
	reach(int64(next))
	t.Logf("without a limit the other %d records took %v", rest, time.Since(lifted))
	require.Less(t, time.Since(lifted), 15*time.Second, "more than 20 s at 2 MB/s")

	st := s.status(flow)
	require.Len(t, st.Tasks, 2)
	for _, task := range st.Tasks {
		require.EqualValues(t, 1, task.Epoch)
	}
	require.Equal(t, 2, strings.Count(workers[0].Output(), `"msg":"task started"`), "no engine was started again")
	a := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.True(t, a.Exact(), a.String())
}

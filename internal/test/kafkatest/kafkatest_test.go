package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

type runFunc func() int

func (f runFunc) Run() int { return f() }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(runFunc(func() int { return Run(m) }))
}

func TestBothVersionsStartAndKeepDataAcrossRestartAndKill(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	clusters := StartAll(t, Options{Version: V39}, Options{Version: V43})
	t.Logf("both started in %s", time.Since(begin))
	for _, c := range clusters {
		t.Run(string(c.Version()), func(t *testing.T) {
			t.Parallel()
			client := Client(t, c, kgo.DefaultProduceTopic("kept"))
			admin := Admin(t, c)
			metadata, err := admin.BrokerMetadata(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.ClusterID(), metadata.Cluster)
			_, err = admin.CreateTopic(t.Context(), 1, 1, nil, "kept")
			require.NoError(t, err)
			for i, again := range []func(){
				func() {},
				func() { c.Restart(t) },
				func() { c.Kill(t); c.Restart(t) },
			} {
				begin := time.Now()
				again()
				t.Logf("step %d took %s", i, time.Since(begin))
				require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr())
				ends, err := admin.ListEndOffsets(t.Context(), "kept")
				require.NoError(t, err)
				end, ok := ends.Lookup("kept", 0)
				require.True(t, ok)
				require.EqualValues(t, i+1, end.Offset)
			}
		})
	}
}

package kafka

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNothingIsSentOverAnOpenConnectionWhenNothingMayBeWritten(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	var asked, gone atomic.Int32
	broker.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	cl, err := NewClient(Cluster{
		BootstrapServers: broker.ListenAddrs(), Credentials: NewCredentials(Security{Protocol: "PLAINTEXT"}),
		MayWrite: func() bool { return gone.Load() == 0 },
	}, "test", slog.New(slog.DiscardHandler), kgo.RequestRetries(0))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	ask := func() error {
		_, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), cl)
		return err
	}
	require.NoError(t, ask())
	before := asked.Load()
	gone.Store(1)
	require.ErrorIs(t, ask(), ErrMayNotWrite)
	require.Equal(t, before, asked.Load())
	gone.Store(0)
	require.NoError(t, ask())
}

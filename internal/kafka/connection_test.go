package kafka

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAPIVersionsInCommon(t *testing.T) {
	t.Parallel()
	v := APIVersions{1: {4, 17}}
	for _, c := range []struct {
		key, low, high, want int16
		ok                   bool
	}{
		{1, 4, 18, 17, true},
		{1, 0, 12, 12, true},
		{1, 0, 3, 0, false},
		{1, 18, 20, 0, false},
		{2, 0, 9, 0, false},
	} {
		got, ok := v.Highest(c.key, c.low, c.high)
		require.Equal(t, c.ok, ok, "%+v", c)
		require.Equal(t, c.want, got, "%+v", c)
	}
}

func TestAConnectionOfOnesOwnIsLoggedIn(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	login := Security{Protocol: SASLPlaintext, SASL: SASL{Mechanism: ScramSHA256, Username: "u", Password: "p"}}
	cluster := at(login, c.ListenAddrs()...)
	conn, err := cluster.DialAuthenticated(t.Context(), c.ListenAddrs()[0], "me")
	require.NoError(t, err)
	defer conn.Close()
	require.Contains(t, conn.Versions, int16(kmsg.Fetch))
	require.Zero(t, conn.Expires)
	// Nothing is left of the bounds of the steps.
	w := &wire{conn: conn, timeout: 5 * time.Second, versions: conn.Versions, clientID: "me"}
	_, err = w.metadata(t.Context())
	require.NoError(t, err)

	login.SASL.Password = "hunter2"
	_, err = at(login, c.ListenAddrs()...).DialAuthenticated(t.Context(), c.ListenAddrs()[0], "me")
	require.Error(t, err)
	require.Equal(t, AuthFailed, Classify(err).Code)
	require.NotContains(t, err.Error(), "hunter2")

	login.SASL.Mechanism = "GSSAPI"
	_, err = at(login, c.ListenAddrs()...).DialAuthenticated(t.Context(), c.ListenAddrs()[0], "me")
	require.Equal(t, AuthFailed, Classify(err).Code)
}

// chat is a server of another kind, which waits for the other side to go.
func chat(c net.Conn) {
	_, _ = c.Write([]byte("220 mail.example.net ESMTP ready\r\n"))
	_, _ = io.Copy(io.Discard, c)
}

func TestAConnectionThatFailsSaysWhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, address string
		code          ProblemCode
		step          Step
	}{
		{"refused", refused(t), Unreachable, StepConnect},
		{"not an address", "nowhere", Unreachable, StepResolve},
		{"another protocol", serve(t, chat), NotKafka, StepAPIVersions},
	} {
		_, err := at(Security{}, c.address).DialAuthenticated(t.Context(), c.address, "me")
		require.Error(t, err, c.name)
		p := Classify(err)
		require.NotNil(t, p, c.name)
		require.Equal(t, c.code, p.Code, c.name)
		require.Equal(t, c.step, p.Step, c.name)
	}
}

func TestAnEndedContextEndsTheDialogue(t *testing.T) {
	t.Parallel()
	address := silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := at(Security{}, address).DialAuthenticated(ctx, address, "me")
		done <- err
	}()
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, Classify(err), "an ended context is no problem of the cluster")
	require.Less(t, time.Since(began), 4*time.Second)
}

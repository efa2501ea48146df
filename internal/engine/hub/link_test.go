package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func TestWhoWaitsForAnothersDialLeavesWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	// Accepts and answers nothing: who dials waits for the API versions.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	h := newHub(t, Config{})
	cluster := join(t, h, at("target", "k", l.Addr().String()))
	cluster.SetBroker(7, l.Addr().String())
	dialling, stop := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := cluster.Lane(dialling, 7, 0)
		first <- err
	}()
	silent, err := l.Accept() // the first one dials
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := cluster.Lane(ctx, 7, 0)
		second <- err
	}()
	cancel()
	select {
	case err := <-second:
		require.ErrorIs(t, err, context.Canceled)
	case err := <-first:
		require.Fail(t, "the dial ended before", err)
	}
	require.Empty(t, first, "the first one still dials")
	stop()
	require.ErrorIs(t, <-first, context.Canceled)
}

func TestAGoodbyeThatTakesLongHoldsUpNobody(t *testing.T) {
	t.Parallel()
	pki := kafkatest.NewPKI(t)
	cert, key := pki.Issue(t, "localhost", kafkatest.ServerCert)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	c := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	cluster := at("target", "", c.ListenAddrs()...)
	cluster.Credentials = kafka.NewCredentials(kafka.Security{Protocol: kafka.SSL, TLS: kafka.TLS{CA: string(pki.CA())}})
	// The goodbye is a write, so it can be held at the gate.
	var hold atomic.Bool
	held, release := make(chan struct{}, 10), make(chan struct{})
	cluster.MayWrite = func() bool {
		if hold.CompareAndSwap(true, false) { // that one write only
			held <- struct{}{}
			<-release
		}
		return true
	}
	h := newHub(t, Config{})
	one := join(t, h, cluster)
	describe(t, one, "t")
	a, err := one.Lane(t.Context(), 0, 0)
	require.NoError(t, err)
	one.SetBroker(0, "localhost:"+port(t, c.ListenAddrs()[0])) // elsewhere, so the connection is replaced
	hold.Store(true)
	found := make(chan error, 1)
	go func() { // takes the old one out, and dials nothing yet: the next write is the goodbye
		_, conn, _, err := one.links.find(0, 0)
		if conn != nil {
			err = fmt.Errorf("%v is still taken", conn)
		}
		found <- err
	}()
	<-held
	next := make(chan error, 1)
	go func() {
		b, err := one.Lane(t.Context(), 0, 0)
		if b == a {
			err = fmt.Errorf("%v is still taken", b)
		}
		next <- err
	}()
	var waited bool
	select {
	case err = <-next:
	case <-time.After(10 * time.Second):
		waited = true
	}
	ended := false
	select {
	case <-a.Done():
		ended = true
	default:
	}
	close(release)
	<-a.Done()
	require.NoError(t, err)
	require.NoError(t, <-found)
	require.False(t, ended, "not before the end of its goodbye")
	require.False(t, waited, "a new connection waited for the old one's goodbye")
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return p
}

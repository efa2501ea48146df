package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// dialPeer dials a broker that answers nothing but the question for API versions, as a worker does: with a gate. secured:
// through TLS. The broker's end is given bare, so that what arrives is seen below TLS.
func dialPeer(t testing.TB, secured bool, may func() bool) (*Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s := kafka.Security{Protocol: kafka.Plaintext}
	var server *tls.Config
	if secured {
		pki := kafkatest.NewPKI(t)
		cert, key := pki.Issue(t, "localhost", kafkatest.ServerCert)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		server = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		s.Protocol, s.TLS.CA = kafka.SSL, string(pki.CA())
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		speak := raw
		if secured {
			speak = tls.Server(raw, server)
		}
		if greet(speak) == nil {
			accepted <- raw
		}
	}()
	cluster := at(s, l.Addr().String())
	cluster.MayWrite = may
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := Dial(ctx, Config{Cluster: cluster, Address: l.Addr().String(), ClientID: "me"})
	require.NoError(t, err)
	other := <-accepted
	require.NotNil(t, other)
	t.Cleanup(func() {
		c.Close()
		_ = other.Close()
		<-c.Done()
	})
	return c, other
}

// greet answers the question for API versions.
func greet(c net.Conn) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = int16(binary.BigEndian.Uint16(body[2:]))
	for k, v := range map[int16]int16{0: 13, 1: 18, 3: 13, 18: 4} {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k, MaxVersion: v})
	}
	out := resp.AppendTo(append(make([]byte, 4), body[4:8]...))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	_, err := c.Write(out)
	return err
}

func TestAbortResetsTheConnectionWithAGateAndThroughTLS(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name           string
		secured, gated bool
	}{{"bare", false, false}, {"gated", false, true}, {"TLS", true, false}, {"gated TLS", true, true}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			var may func() bool
			if way.gated {
				may = func() bool { return true }
			}
			c, other := dialPeer(t, way.secured, may)
			// More than the system takes while the broker reads nothing, so that there is something to hold back.
			r := &ProduceRequest{Topics: []ProduceTopic{{Partitions: []ProducePartition{{Records: make([]byte, 32<<20)}}}}}
			got, sent := make(chan error, 1), make(chan error, 1)
			go func() { sent <- c.Produce(r, func(_ *ProduceResponse, err error) { got <- err }) }()
			_, err := io.ReadFull(other, make([]byte, 64<<10)) // it is being written
			require.NoError(t, err)
			c.Abort()
			require.ErrorIs(t, <-got, ErrClosed)
			require.NoError(t, <-sent)
			require.NoError(t, other.SetReadDeadline(time.Now().Add(20*time.Second)))
			_, err = io.Copy(io.Discard, other)
			require.ErrorContains(t, err, "reset")
		})
	}
}

func TestARequestIsOneWriteWhereTheGateIsAskedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var no atomic.Bool
	c, other := dialPeer(t, false, func() bool {
		asked.Add(1)
		return !no.Load()
	})
	r := &ProduceRequest{Topics: []ProduceTopic{{Partitions: make([]ProducePartition, 3)}}}
	for i := range r.Topics[0].Partitions {
		r.Topics[0].Partitions[i] = ProducePartition{Partition: int32(i), Records: make([]byte, 40<<10)}
	}
	before := asked.Load()
	got := produceInto(t, c, r)
	var size [4]byte
	_, err := io.ReadFull(other, size[:])
	require.NoError(t, err)
	_, err = io.ReadFull(other, make([]byte, binary.BigEndian.Uint32(size[:])))
	require.NoError(t, err)
	require.EqualValues(t, 1, asked.Load()-before, "the pieces went out together")

	no.Store(true)
	var lost *LostError
	require.ErrorAs(t, <-produceInto(t, c, r), &lost)
	require.False(t, lost.Sent)
	require.ErrorIs(t, lost, kafka.ErrMayNotWrite)
	require.Error(t, <-got)
	n, err := io.Copy(io.Discard, other)
	require.NoError(t, err)
	require.Zero(t, n, "nothing of it went out")
}

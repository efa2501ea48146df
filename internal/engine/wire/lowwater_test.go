package wire

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counted counts the reads of a socket, and looks like the gate of kafka.Cluster.MayWrite.
type counted struct {
	net.Conn
	reads atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(b)
}

func (c *counted) WriteBuffers(v *net.Buffers) (int64, error) { return v.WriteTo(c.Conn) }
func (c *counted) NetConn() net.Conn                          { return c.Conn }

// trickle writes b in pieces, one at each tick.
func (p *peer) trickle(b []byte, piece int, each time.Duration) {
	p.tb.Helper()
	tick := time.NewTicker(each)
	defer tick.Stop()
	for i := 0; i < len(b); i += piece {
		<-tick.C
		p.write(b[i:min(len(b), i+piece)])
	}
}

func TestALargeAnswerIsReadInLargePieces(t *testing.T) {
	t.Parallel()
	var reads *atomic.Int64
	c, p := connectThrough(t, Config{}, func(raw net.Conn) net.Conn {
		in := &counted{Conn: raw}
		reads = &in.reads
		return in
	})
	fetch, _ := sampleRequests()
	fetch.MaxBytes = 8 << 20
	for range 2 { // the second one begins with a socket that was made to wait for much
		body := sampleFetch(18, 2, 1<<20)
		before := reads.Load()
		got := fetchInto(t, c, fetch)
		_, correlation := p.request()
		p.write(head(correlation, len(body)))
		p.trickle(body, 4<<10, 100*time.Microsecond)
		o := <-got
		require.NoError(t, o.err)
		o.fetched.Release()
		require.Less(t, reads.Load()-before, int64(64), "the answer came in 512 pieces")
	}
}

func TestSlownessIsNoSilenceInALargeAnswer(t *testing.T) {
	t.Parallel()
	pool := NewPool(0)
	c, p := connect(t, Config{Silence: 200 * time.Millisecond, Pool: pool})
	fetch, _ := sampleRequests()
	fetch.MaxWait = 0
	body := sampleFetch(18, 2, 150<<10)
	got := fetchInto(t, c, fetch)
	_, correlation := p.request()
	p.write(head(correlation, len(body)))
	p.trickle(body, 15<<10, 40*time.Millisecond) // longer than silence may last, before enough is there to wake the reader
	o := <-got
	require.NoError(t, o.err)
	require.Len(t, o.fetched.Partitions, 2)
	o.fetched.Release()

	got = fetchInto(t, c, fetch)
	_, correlation = p.request()
	p.write(head(correlation, len(body)))
	p.write(body[:100<<10])
	require.ErrorIs(t, (<-got).err, os.ErrDeadlineExceeded)
	<-c.Done()
	require.Zero(t, pool.InUse())
}

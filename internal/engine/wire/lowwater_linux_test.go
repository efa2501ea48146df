package wire

import (
	"net"
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

package wire

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

func TestASmallAnswerBehindALargeOneWakesTheReader(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{Silence: 3 * time.Second})
	fetch, _ := sampleRequests()
	fetch.MaxBytes = 8 << 20
	for _, size := range []int{600 << 10, 10, 300 << 10, 0} {
		body := sampleFetch(18, 1, size)
		got := fetchInto(t, c, fetch)
		_, correlation := p.request()
		p.answer(correlation, body)
		o := <-got
		require.NoError(t, o.err)
		o.fetched.Release()
	}
}

func TestTheEndOfAConnectionWakesAReaderThatWaitsForMuch(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c, p := connect(t, Config{Silence: time.Hour})
	fetch, _ := sampleRequests()
	body := sampleFetch(18, 1, 300<<10)
	got := fetchInto(t, c, fetch)
	_, correlation := p.request()
	p.write(head(correlation, len(body)))
	p.write(body[:100<<10])
	require.NoError(t, p.conn.Close())
	require.ErrorIs(t, (<-got).err, io.ErrUnexpectedEOF)
	require.Less(t, time.Since(began), time.Minute)
}

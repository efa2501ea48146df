package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// peer is the other end of a connection, which does what a test says.
type peer struct {
	tb   testing.TB
	conn net.Conn
}

// connect makes a connection over loopback to a peer that knows the versions in use.
func connect(tb testing.TB, cfg Config) (*Conn, *peer) {
	tb.Helper()
	return connectThrough(tb, cfg, nil)
}

// connectThrough is connect with something between the connection and its socket; nil: nothing.
func connectThrough(tb testing.TB, cfg Config, through func(net.Conn) net.Conn) (*Conn, *peer) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(tb, err)
	other := <-accepted
	require.NotNil(tb, other)
	if through != nil {
		raw = through(raw)
	}
	cfg.setDefaults()
	c := newConn(&kafka.Connection{Conn: raw, Versions: kafka.APIVersions{0: {0, 13}, 1: {4, 18}, 3: {0, 13}, 18: {0, 4}}}, cfg, cfg.meta())
	tb.Cleanup(func() {
		c.Close()
		_ = other.Close()
		<-c.Done()
	})
	return c, &peer{tb, other}
}

// request reads a request and returns its key and correlation id.
func (p *peer) request() (key int16, correlation int32) {
	p.tb.Helper()
	var size [4]byte
	_, err := io.ReadFull(p.conn, size[:])
	require.NoError(p.tb, err)
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(p.conn, body)
	require.NoError(p.tb, err)
	return int16(binary.BigEndian.Uint16(body)), int32(binary.BigEndian.Uint32(body[4:]))
}

// head is the head of an answer with a body of n bytes behind the correlation id and the header's end.
func head(correlation int32, n int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(n+5))
	return append(binary.BigEndian.AppendUint32(b, uint32(correlation)), 0)
}

func (p *peer) write(b []byte) {
	p.tb.Helper()
	_, err := p.conn.Write(b)
	require.NoError(p.tb, err)
}

func (p *peer) answer(correlation int32, body []byte) {
	p.write(append(head(correlation, len(body)), body...))
}

type outcome struct {
	fetched *FetchResponse
	err     error
}

func fetchInto(tb testing.TB, c *Conn, r *FetchRequest) <-chan outcome {
	tb.Helper()
	got := make(chan outcome, 1)
	require.NoError(tb, c.Fetch(r, func(f *FetchResponse, err error) { got <- outcome{f, err} }))
	return got
}

func produceInto(tb testing.TB, c *Conn, r *ProduceRequest) <-chan error {
	tb.Helper()
	got := make(chan error, 1)
	require.NoError(tb, c.Produce(r, func(_ *ProduceResponse, err error) { got <- err }))
	return got
}

func TestAnswersComeInOrderHoweverManyAreInFlight(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{ClientID: "me"})
	_, produce := sampleRequests()
	const n = 300
	var order []int64
	var wg sync.WaitGroup
	wg.Add(n)
	go func() {
		for i := range n {
			_ = c.Produce(produce, func(r *ProduceResponse, err error) {
				defer wg.Done()
				if err == nil {
					order = append(order, r.Partitions[0].BaseOffset+int64(i)*1000)
				}
			})
		}
	}()
	for i := range n {
		key, correlation := p.request()
		require.Zero(t, key)
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 13
		resp.Topics = []kmsg.ProduceResponseTopic{{Partitions: []kmsg.ProduceResponseTopicPartition{{BaseOffset: int64(i)}}}}
		p.answer(correlation, resp.AppendTo(nil))
	}
	wg.Wait()
	for i, o := range order {
		require.EqualValues(t, i*1001, o)
	}
	require.Len(t, order, n)
	require.Zero(t, c.InFlight())
}

func TestRecordsStayInTheBufferUntilTheLastBatchIsDone(t *testing.T) {
	t.Parallel()
	pool := NewPool(64 << 20)
	c, p := connect(t, Config{Pool: pool})
	fetch, _ := sampleRequests()
	for _, size := range []int{10, 100_000, 3 << 20} {
		got := fetchInto(t, c, fetch)
		_, correlation := p.request()
		p.answer(correlation, sampleFetch(18, 3, size))
		o := <-got
		require.NoError(t, o.err)
		require.Len(t, o.fetched.Partitions, 3)
		buffer, records := o.fetched.Buffer, o.fetched.Partitions[2].Records
		require.Len(t, records, size)
		buffer.Retain()
		o.fetched.Release()
		require.EqualValues(t, buffer.Size(), pool.InUse())
		require.Same(t, &records[0], &buffer.Bytes()[len(buffer.Bytes())-len(records)-tailOf(t, buffer.Bytes(), records)])
		buffer.Release()
		require.Zero(t, pool.InUse())
	}
}

// tailOf is how many bytes stand behind records in all.
func tailOf(t *testing.T, all, records []byte) int {
	t.Helper()
	for n := range 200 {
		if &all[len(all)-1-n] == &records[len(records)-1] {
			return n
		}
	}
	require.FailNow(t, "the records do not lie in the buffer")
	return 0
}

func TestABrokerThatFallsSilentIsNoticed(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{Silence: 100 * time.Millisecond})
	fetch, produce := sampleRequests()
	fetch.MaxWait = 50 * time.Millisecond
	began := time.Now()
	got, second := fetchInto(t, c, fetch), produceInto(t, c, produce)
	p.request()
	o := <-got
	require.ErrorIs(t, o.err, os.ErrDeadlineExceeded)
	require.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond)
	var lost *LostError
	require.ErrorAs(t, o.err, &lost)
	require.True(t, lost.Sent)
	require.ErrorAs(t, <-second, &lost)
	require.ErrorAs(t, c.Fetch(fetch, nil), &lost)
	require.False(t, lost.Sent)
	<-c.Done()
	require.ErrorIs(t, c.Err(), os.ErrDeadlineExceeded)
}

func TestSilenceInsideAnAnswerIsNoticedAndSlownessIsNot(t *testing.T) {
	t.Parallel()
	pool := NewPool(0)
	c, p := connect(t, Config{Silence: 300 * time.Millisecond, Pool: pool})
	fetch, _ := sampleRequests()
	fetch.MaxWait = 0
	body := sampleFetch(18, 2, 2000)
	got := fetchInto(t, c, fetch)
	_, correlation := p.request()
	p.write(head(correlation, len(body)))
	tick := time.NewTicker(40 * time.Millisecond) // a slow line: in all far beyond what silence allows
	defer tick.Stop()
	for i := 0; i < len(body); i += 300 {
		<-tick.C
		p.write(body[i:min(len(body), i+300)])
	}
	o := <-got
	require.NoError(t, o.err)
	o.fetched.Release()

	got = fetchInto(t, c, fetch)
	_, correlation = p.request()
	p.write(head(correlation, len(body)))
	p.write(body[:1000])
	require.ErrorIs(t, (<-got).err, os.ErrDeadlineExceeded)
	<-c.Done()
	require.Zero(t, pool.InUse())
}

func TestTimeBeginsWhenTheBrokerCanBegin(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{Silence: 250 * time.Millisecond})
	fetch, _ := sampleRequests()
	fetch.MaxWait = 0
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 18
	var all []<-chan outcome
	for range 4 {
		all = append(all, fetchInto(t, c, fetch))
	}
	tick := time.NewTicker(150 * time.Millisecond) // each in time, the last long after it was sent
	defer tick.Stop()
	for i, got := range all {
		_, correlation := p.request()
		<-tick.C
		if i == 3 {
			resp.ThrottleMillis = 400
		}
		p.answer(correlation, resp.AppendTo(nil))
		o := <-got
		require.NoError(t, o.err)
		o.fetched.Release()
	}
	// A throttled connection is silent for as long as the broker said.
	require.WithinRange(t, c.Throttled(), time.Now().Add(200*time.Millisecond), time.Now().Add(400*time.Millisecond))
	got := fetchInto(t, c, fetch)
	_, correlation := p.request()
	<-tick.C
	<-tick.C
	<-tick.C
	p.answer(correlation, resp.AppendTo(nil))
	o := <-got
	require.NoError(t, o.err)
	o.fetched.Release()
}

func TestWhatTheBrokerMayNotSendEndsTheConnection(t *testing.T) {
	t.Parallel()
	fetch, _ := sampleRequests()
	for name, send := range map[string]func(p *peer, correlation int32){
		"another number":       func(p *peer, n int32) { p.answer(n+1, sampleFetch(18, 1, 1)) },
		"a negative length":    func(p *peer, n int32) { p.write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, byte(n)}) },
		"a length of three":    func(p *peer, n int32) { p.write([]byte{0, 0, 0, 3, 0, 0, 0, byte(n)}) },
		"too much":             func(p *peer, n int32) { p.write(head(n, 1<<20)) },
		"HTTP":                 func(p *peer, _ int32) { p.write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"no body":              func(p *peer, n int32) { p.answer(n, nil) },
		"half of a body":       func(p *peer, n int32) { p.answer(n, sampleFetch(18, 1, 100)[:70]) },
		"too many partitions":  func(p *peer, n int32) { p.answer(n, sampleFetch(18, 17, 1)) },
		"tags without content": func(p *peer, n int32) { p.write([]byte{0, 0, 0, 6, 0, 0, 0, byte(n), 200, 200}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := NewPool(0)
			c, p := connect(t, Config{Pool: pool, MaxAnswer: 1 << 20})
			got := fetchInto(t, c, fetch)
			_, correlation := p.request()
			send(p, correlation)
			o := <-got
			require.ErrorIs(t, o.err, ErrAnswer)
			<-c.Done()
			require.ErrorIs(t, c.Err(), ErrAnswer)
			require.Zero(t, pool.InUse())
		})
	}
	t.Run("an answer to nothing", func(t *testing.T) {
		t.Parallel()
		c, p := connect(t, Config{})
		p.answer(1, nil)
		<-c.Done()
		require.ErrorIs(t, c.Err(), ErrAnswer)
	})
}

func TestAClaimedLengthIsNotBelieved(t *testing.T) {
	t.Parallel()
	pool := NewPool(0)
	c, p := connect(t, Config{Pool: pool})
	fetch, produce := sampleRequests()
	fetch.MaxBytes = 1 << 20
	got := fetchInto(t, c, fetch)
	_, correlation := p.request()
	p.write(head(correlation, 1<<30-100))
	wait.For(t, 10*time.Second, "a buffer", func() error {
		if pool.InUse() == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	require.LessOrEqual(t, pool.InUse(), int64(3<<20))
	require.NoError(t, p.conn.Close())
	require.ErrorIs(t, (<-got).err, io.ErrUnexpectedEOF)
	<-c.Done()
	require.Zero(t, pool.InUse())

	// An honest answer may be larger than asked for: one batch always comes whole.
	c, p = connect(t, Config{Pool: pool})
	got = fetchInto(t, c, fetch)
	_, correlation = p.request()
	p.answer(correlation, sampleFetch(18, 1, 30<<20))
	o := <-got
	require.NoError(t, o.err)
	require.Len(t, o.fetched.Partitions[0].Records, 30<<20)
	o.fetched.Release()
	// So may others'.
	small := produceInto(t, c, produce)
	_, correlation = p.request()
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 13
	resp.UnknownTags.Set(9, make([]byte, 5<<20))
	p.answer(correlation, resp.AppendTo(nil))
	require.NoError(t, <-small)
}

func TestEachRequestLearnsWhetherItWasSent(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{})
	_, small := sampleRequests()
	first := produceInto(t, c, small)
	p.request()
	// Nobody reads any more: the second cannot get away in full.
	large := &ProduceRequest{Topics: []ProduceTopic{{Name: "t", Partitions: []ProducePartition{{Records: make([]byte, 64<<20)}}}}}
	second := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		if err := c.Produce(large, func(_ *ProduceResponse, err error) { second <- err }); err != nil {
			second <- err
		}
	}()
	<-started
	wait.For(t, 10*time.Second, "two requests in flight", func() error {
		if n := c.InFlight(); n != 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.Close()
	var lost *LostError
	require.ErrorAs(t, <-first, &lost)
	require.True(t, lost.Sent)
	require.ErrorIs(t, lost, ErrClosed)
	require.Contains(t, lost.Error(), "no answer")
	require.ErrorAs(t, <-second, &lost)
	require.False(t, lost.Sent)
	require.Contains(t, lost.Error(), "not sent")
}

func TestAnAnswerBeforeTheQuestionIsNotTaken(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{Silence: 200 * time.Millisecond})
	large := &ProduceRequest{Topics: []ProduceTopic{{Name: "t", Partitions: []ProducePartition{{Records: make([]byte, 64<<20)}}}}}
	got := make(chan error, 1)
	go func() { _ = c.Produce(large, func(_ *ProduceResponse, err error) { got <- err }) }()
	var start [12]byte
	_, err := io.ReadFull(p.conn, start[:])
	require.NoError(t, err)
	p.answer(int32(binary.BigEndian.Uint32(start[8:])), sampleProduce(13, 1))
	err = <-got
	var lost *LostError
	require.ErrorAs(t, err, &lost)
	require.False(t, lost.Sent)
}

func TestOtherRequestsShareTheConnection(t *testing.T) {
	t.Parallel()
	c, p := connect(t, Config{ClientID: "me"})
	go func() {
		for range 2 {
			key, correlation := p.request()
			if key == int16(kmsg.Metadata) {
				resp := kmsg.NewPtrMetadataResponse()
				resp.Version = 13
				resp.ControllerID = 5
				p.answer(correlation, resp.AppendTo(nil))
			}
		}
	}()
	resp, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
	require.NoError(t, err)
	require.EqualValues(t, 5, resp.(*kmsg.MetadataResponse).ControllerID)
	_, err = c.Request(t.Context(), kmsg.NewPtrListOffsetsRequest())
	require.ErrorIs(t, err, ErrVersion)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Request(ctx, kmsg.NewPtrApiVersionsRequest())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, c.InFlight())
	c.Close()
	<-c.Done()
	_, err = c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
	require.ErrorIs(t, err, ErrClosed)
}

// counter counts hooks' calls.
type counter struct {
	mu                   sync.Mutex
	sent, received, ends int
	throttled            time.Duration
}

func (h *counter) OnBrokerWrite(_ kgo.BrokerMetadata, _ int16, n int, _, _ time.Duration, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent += n
}

func (h *counter) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, n int, _, _ time.Duration, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received += n
}

func (h *counter) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.throttled += d
}

func (h *counter) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends++
}

func TestHooksSeeBytesThrottlesAndTheEnd(t *testing.T) {
	t.Parallel()
	var h counter
	c, p := connect(t, Config{Hook: &h})
	_, produce := sampleRequests()
	got := produceInto(t, c, produce)
	_, correlation := p.request()
	resp := kmsg.NewPtrProduceResponse()
	resp.Version, resp.ThrottleMillis = 13, 30
	p.answer(correlation, resp.AppendTo(nil))
	require.NoError(t, <-got)
	c.Close()
	<-c.Done()
	require.Greater(t, h.sent, 16*64<<10)
	require.Equal(t, 9+len(resp.AppendTo(nil)), h.received)
	require.Equal(t, 30*time.Millisecond, h.throttled)
	require.Equal(t, 1, h.ends)
}

// echo answers every request at once, with one and the same answer.
func (p *peer) echo(body []byte) {
	in := make([]byte, 1<<20)
	out := append(head(0, len(body)), body...)
	for {
		if _, err := io.ReadFull(p.conn, in[:12]); err != nil {
			return
		}
		copy(out[4:8], in[8:12])
		for left := int(binary.BigEndian.Uint32(in)) - 8; left > 0; {
			n, err := p.conn.Read(in[:min(left, len(in))])
			if err != nil {
				return
			}
			left -= n
		}
		if _, err := p.conn.Write(out); err != nil {
			return
		}
	}
}

func TestARoundTripAllocatesNothing(t *testing.T) {
	c, p := connect(t, Config{ClientID: "me"})
	_, produce := sampleRequests()
	go p.echo(sampleProduce(13, 16))
	got := make(chan error, 1)
	done := func(_ *ProduceResponse, err error) { got <- err }
	run := func() {
		require.NoError(t, c.Produce(produce, done))
		require.NoError(t, <-got)
	}
	for range 20 {
		run()
	}
	// The peer's goroutine is counted, too; it allocates nothing either.
	require.Less(t, testing.AllocsPerRun(200, run), 0.5)
}

func TestAFetchAllocatesNothing(t *testing.T) {
	pool := NewPool(8 << 20)
	c, p := connect(t, Config{ClientID: "me", Pool: pool})
	fetch, _ := sampleRequests()
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 18
	require.NoError(t, resp.ReadFrom(sampleFetch(18, 16, 64<<10)))
	resp.Brokers = nil
	go p.echo(resp.AppendTo(nil))
	got := make(chan error, 1)
	done := func(r *FetchResponse, err error) {
		if err == nil {
			r.Release()
		}
		got <- err
	}
	run := func() {
		require.NoError(t, c.Fetch(fetch, done))
		require.NoError(t, <-got)
	}
	for range 20 {
		run()
	}
	require.Less(t, testing.AllocsPerRun(200, run), 0.5)
}

func BenchmarkFetchRoundTrip(b *testing.B) {
	fetch, _ := sampleRequests()
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, p := connect(b, Config{ClientID: "me", Pool: NewPool(8 << 20)})
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = 18
			require.NoError(b, resp.ReadFrom(sampleFetch(18, 1, size)))
			resp.Brokers = nil
			go p.echo(resp.AppendTo(nil))
			window := make(chan struct{}, 2)
			done := func(r *FetchResponse, err error) {
				if err == nil {
					r.Release()
				}
				<-window
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				window <- struct{}{}
				if err := c.Fetch(fetch, done); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

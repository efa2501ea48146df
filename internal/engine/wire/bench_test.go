package wire

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

// BenchmarkPassThrough is the whole way of a batch in this process: read, slice, judge, patch, write, acknowledge. Both
// peers run in the process, too.
func BenchmarkPassThrough(b *testing.B) {
	for _, c := range []struct{ size, batches int }{{1 << 10, 64}, {16 << 10, 16}, {256 << 10, 4}, {1 << 20, 2}} {
		b.Run(fmt.Sprintf("%dKiB", c.size>>10), func(b *testing.B) {
			w := batch.NewBuilder(nil)
			w.Reset(batch.Options{})
			require.NoError(b, w.AddRecord(0, 1, batch.AppendBody(nil, nil, make([]byte, c.size)), 0))
			_, built, err := w.Build(nil)
			require.NoError(b, err)
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = 18
			p := kmsg.NewFetchResponseTopicPartition()
			for range c.batches {
				p.RecordBatches = append(p.RecordBatches, built[0].Batch...)
			}
			resp.Topics = []kmsg.FetchResponseTopic{{TopicID: [16]byte{1}, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
			ack := kmsg.NewPtrProduceResponse()
			ack.Version = 13
			ack.Topics = []kmsg.ProduceResponseTopic{{TopicID: [16]byte{1}, Partitions: []kmsg.ProduceResponseTopicPartition{kmsg.NewProduceResponseTopicPartition()}}}
			source, sp := connect(b, Config{Pool: NewPool(32 << 20)})
			target, tp := connect(b, Config{})
			go sp.echo(resp.AppendTo(nil))
			go tp.echo(ack.AppendTo(nil))
			fetch := &FetchRequest{MaxBytes: 8 << 20, SessionEpoch: -1, Topics: []FetchTopic{{ID: [16]byte{1}, Partitions: make([]FetchPartition, 1)}}}
			produce := &ProduceRequest{Topics: []ProduceTopic{{ID: [16]byte{1}, Partitions: make([]ProducePartition, 1)}}}
			answers := make(chan *FetchResponse, 2)
			fetched := func(r *FetchResponse, err error) {
				if err != nil {
					close(answers)
					return
				}
				answers <- r
			}
			acked := make(chan error, c.batches)
			done := func(_ *ProduceResponse, err error) { acked <- err }
			sequence := int32(0)
			b.SetBytes(int64(c.size * c.batches))
			b.ReportAllocs()
			for b.Loop() {
				if err := source.Fetch(fetch, fetched); err != nil {
					b.Fatal(err)
				}
				r := <-answers
				s := batch.Slice(r.Partitions[0].Records)
				sent := 0
				for s.Next() {
					x := s.Batch()
					if v, _ := batch.Judge(x, 0, batch.Target{Codec: batch.ProducerCodec}); v != batch.Pass {
						b.Fatal(v)
					}
					batch.Patch(x, batch.Producer{ID: 1, Sequence: sequence})
					sequence = batch.NextSequence(sequence, x.Count())
					produce.Topics[0].Partitions[0].Records = x
					if err := target.Produce(produce, done); err != nil {
						b.Fatal(err)
					}
					sent++
				}
				for range sent {
					if err := <-acked; err != nil {
						b.Fatal(err)
					}
				}
				r.Release()
			}
		})
	}
}

func TestAFetchAnswerWithoutAddressesAllocatesNothing(t *testing.T) {
	var r FetchResponse
	for version := int16(minFetch); version <= maxFetch; version++ {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		require.NoError(t, resp.ReadFrom(sampleFetch(version, 16, 1000)))
		resp.Brokers = nil // they come with errors only
		body := resp.AppendTo(nil)
		decode := func() { require.NoError(t, r.Decode(version, body, 16)) }
		decode()
		require.Zero(t, testing.AllocsPerRun(100, decode), "version %d", version)
	}
}

func BenchmarkProduceRoundTrip(b *testing.B) {
	ways := []struct {
		name    string
		connect func(testing.TB) (*Conn, *peer)
	}{
		{"socket", func(b testing.TB) (*Conn, *peer) { return connect(b, Config{ClientID: "me"}) }},
		{"gated", func(b testing.TB) (*Conn, *peer) {
			c, other := dialPeer(b, false, func() bool { return true })
			return c, &peer{b, other}
		}},
		// What takes no pieces, for comparison.
		{"buffered", func(b testing.TB) (*Conn, *peer) {
			return connectThrough(b, Config{ClientID: "me"}, func(c net.Conn) net.Conn { return struct{ net.Conn }{c} })
		}},
	}
	for _, way := range ways {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", way.name, size), func(b *testing.B) {
				c, p := way.connect(b)
				go p.echo(sampleProduce(13, 4))
				// Four batches, as a lane carries them.
				r := &ProduceRequest{Topics: []ProduceTopic{{Partitions: make([]ProducePartition, 4)}}}
				for i := range r.Topics[0].Partitions {
					r.Topics[0].Partitions[i] = ProducePartition{Partition: int32(i), Records: make([]byte, size/4)}
				}
				window := make(chan struct{}, 4)
				done := func(*ProduceResponse, error) { <-window }
				began := spent(b)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					window <- struct{}{}
					if err := c.Produce(r, done); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(spent(b)-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// spent is the processor time of the process so far.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

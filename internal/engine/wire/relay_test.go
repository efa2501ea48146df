package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// relay copies a topic with what this package and batch offer, one step at a time: as little of a data path as shows that
// brokers take what comes out.
type relay struct {
	tb             testing.TB
	source, target *Conn
	from, to       topicInfo
	pool           *Pool
	committed      bool
	judge          batch.Target
	want           int64 // first offset of every partition
	maxBytes       int32
	// byName keeps both sides at versions with names.
	byName bool

	reasons map[string]int
	spans   map[int32]int64 // records written per partition
	next    map[int32]int64
	ends    map[int32]int64
}

// topicInfo is what metadata say of a topic.
type topicInfo struct {
	name       string
	id         [16]byte
	partitions int32
	// leaders are addresses, epochs the leaders', by partition.
	leaders map[int32]string
	epochs  map[int32]int32
}

// describe asks for a topic's metadata; addresses are those of the listener that the client uses.
func describe(tb testing.TB, client *kgo.Client, topic string) topicInfo {
	tb.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(context.Background(), client)
	require.NoError(tb, err)
	require.Len(tb, resp.Topics, 1)
	require.NoError(tb, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	info := topicInfo{
		name: topic, id: resp.Topics[0].TopicID, partitions: int32(len(resp.Topics[0].Partitions)),
		leaders: map[int32]string{}, epochs: map[int32]int32{},
	}
	for _, p := range resp.Topics[0].Partitions {
		info.epochs[p.Partition] = p.LeaderEpoch
		for _, b := range resp.Brokers {
			if b.NodeID == p.Leader {
				info.leaders[p.Partition] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			}
		}
	}
	return info
}

var errWrongAnswer = errors.New("another answer than expected")

// settle waits until the broker knows itself as the leader of all of a topic's partitions, which is a moment after
// metadata say so.
func settle(tb testing.TB, c *Conn, info topicInfo) {
	tb.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = info.name
	for p := range info.partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	wait.For(tb, 30*time.Second, "the leader of "+info.name, func() error {
		resp, err := c.Request(context.Background(), req)
		if err != nil {
			return err
		}
		answer, ok := resp.(*kmsg.ListOffsetsResponse)
		if !ok {
			return errWrongAnswer
		}
		for _, p := range answer.Topics[0].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
		return nil
	})
}

func dial(tb testing.TB, cfg Config) *Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := Dial(ctx, cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		c.Close()
		<-c.Done()
	})
	return c
}

// at is a cluster behind an address.
func at(s kafka.Security, addresses ...string) kafka.Cluster {
	return kafka.Cluster{BootstrapServers: addresses, Credentials: kafka.NewCredentials(s)}
}

func (r *relay) run() {
	r.tb.Helper()
	c, err := codec.New()
	require.NoError(r.tb, err)
	builder := batch.NewBuilder(c)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	var init *kmsg.InitProducerIDResponse
	// A broker that has just started has none to give yet.
	wait.For(r.tb, 30*time.Second, "a producer id", func() error {
		resp, err := r.target.Request(context.Background(), req)
		if err != nil {
			return err
		}
		var ok bool
		if init, ok = resp.(*kmsg.InitProducerIDResponse); !ok {
			return errWrongAnswer
		}
		return kerr.ErrorForCode(init.ErrorCode)
	})
	r.reasons, r.next, r.ends, r.spans = map[string]int{}, map[int32]int64{}, map[int32]int64{}, map[int32]int64{}
	if r.maxBytes == 0 {
		r.maxBytes = 1 << 20
	}
	session := &Session{}
	fr := &FetchRequest{MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 4 * r.maxBytes, Committed: r.committed, SessionEpoch: -1}
	version := r.source.FetchVersion()
	if r.byName {
		fr.MaxVersion = LastFetchByName
		version = min(version, LastFetchByName)
	}
	for p := range r.from.partitions {
		r.next[p] = r.want
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		require.True(r.tb, time.Now().Before(deadline), "at %v of %v", r.next, r.ends)
		for p, o := range r.next {
			session.Set(r.from.name, r.from.id, FetchPartition{Partition: p, LeaderEpoch: -1, Offset: o, MaxBytes: r.maxBytes})
		}
		session.Next(fr, version)
		o := <-fetchInto(r.tb, r.source, fr)
		require.NoError(r.tb, o.err)
		if !session.Answered(o.fetched) {
			o.fetched.Release()
			continue
		}
		batches := map[int32][]batch.Batch{}
		for i := range o.fetched.Partitions {
			p := &o.fetched.Partitions[i]
			name, ok := session.Topic(p)
			require.True(r.tb, ok)
			require.Equal(r.tb, r.from.name, name)
			require.NoError(r.tb, kerr.ErrorForCode(p.ErrorCode))
			r.ends[p.Partition] = p.HighWatermark
			if r.committed {
				r.ends[p.Partition] = p.LastStable
			}
			batches[p.Partition] = r.take(builder, p)
		}
		r.write(batches, batch.Producer{ID: init.ProducerID, Epoch: init.ProducerEpoch})
		o.fetched.Release()
		done := len(r.ends) == int(r.from.partitions)
		for p, end := range r.ends {
			done = done && r.next[p] >= end
		}
		if done {
			return
		}
	}
}

// take judges a partition's batches and returns those to write.
func (r *relay) take(builder *batch.Builder, p *FetchedPartition) (out []batch.Batch) {
	r.tb.Helper()
	var aborted batch.Aborted
	aborted.Reset(p.Aborted)
	s := batch.Slice(p.Records)
	for s.Next() {
		require.EqualValues(r.tb, 2, s.Magic())
		b := s.Batch()
		next := b.NextOffset()
		if r.committed && aborted.Covers(b) {
			r.reasons[batch.ReasonAborted.String()]++
			r.next[p.Partition] = next
			continue
		}
		verdict, reason := batch.Judge(b, r.next[p.Partition], r.judge)
		r.reasons[reason.String()]++
		switch verdict {
		case batch.Pass:
			out = append(out, b)
		case batch.PassAppendTime:
			batch.PatchAppendTime(b, batch.Anonymous)
			out = append(out, b)
		case batch.Skip:
		case batch.Fallback:
			builder.Reset(batch.Options{Want: r.next[p.Partition], MaxBatchBytes: r.judge.MaxBatchBytes})
			require.NoError(r.tb, builder.Add(b))
			_, built, err := builder.Build(nil)
			require.NoError(r.tb, err)
			for _, x := range built {
				out = append(out, x.Batch)
			}
		default:
			require.FailNow(r.tb, verdict.String(), reason.String())
		}
		r.next[p.Partition] = next
	}
	require.NoError(r.tb, s.Err())
	return out
}

// write sends the batches in rounds, each with one of every partition, all rounds in flight at once.
func (r *relay) write(batches map[int32][]batch.Batch, id batch.Producer) {
	r.tb.Helper()
	answers := make(chan error, 10_000)
	sent := 0
	for round := 0; ; round++ {
		req := &ProduceRequest{Timeout: 10 * time.Second, Topics: []ProduceTopic{{Name: r.to.name, ID: r.to.id}}}
		if r.byName {
			req.MaxVersion = LastProduceByName
		}
		expect := map[int32]int64{}
		for p, bs := range batches {
			if round >= len(bs) {
				continue
			}
			b := bs[round]
			mine := id
			mine.Sequence = int32(r.spans[p])
			batch.Patch(b, mine)
			expect[p] = r.spans[p]
			r.spans[p] += int64(b.Count())
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, ProducePartition{Partition: p, Records: b})
		}
		if len(expect) == 0 {
			break
		}
		sent++
		require.NoError(r.tb, r.target.Produce(req, func(resp *ProduceResponse, err error) {
			if err == nil && len(resp.Partitions) != len(expect) {
				err = fmt.Errorf("%d answers to %d batches", len(resp.Partitions), len(expect))
			}
			for i := 0; err == nil && i < len(resp.Partitions); i++ {
				p := &resp.Partitions[i]
				if err = kerr.ErrorForCode(p.ErrorCode); err != nil {
					err = fmt.Errorf("partition %d: %w %s", p.Partition, err, p.Message)
				} else if p.BaseOffset != expect[p.Partition] {
					err = fmt.Errorf("partition %d: base offset %d, not %d", p.Partition, p.BaseOffset, expect[p.Partition])
				}
			}
			answers <- err
		}))
	}
	for range sent {
		require.NoError(r.tb, <-answers)
	}
}

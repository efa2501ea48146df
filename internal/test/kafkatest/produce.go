package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// IDHeader names the header with the record's id: 8 bytes, big-endian, unique in its topic.
const IDHeader = "id"

var names atomic.Int64

// UniqueName is a topic or group name that no other call returns, made from the test's name.
func UniqueName(tb testing.TB) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("%.60s-%d", clean, names.Add(1))
}

// CreateTopic makes a topic, with as many replicas as the cluster's default says, and waits until every partition has a
// leader. configs may be nil.
func CreateTopic(tb testing.TB, c *Cluster, name string, partitions int32, configs map[string]string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := Admin(tb, c)
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = kadm.StringPtr(v)
	}
	_, err := admin.CreateTopic(ctx, partitions, -1, values, name)
	require.NoError(tb, err, "create topic %s", name)
	wait.For(tb, time.Minute, "leaders of topic "+name, func() error {
		details, err := admin.ListTopics(ctx, name)
		if err != nil {
			return err
		}
		if n := len(details[name].Partitions); n != int(partitions) {
			return fmt.Errorf("%d of %d partitions: %w", n, partitions, details[name].Err)
		}
		for _, p := range details[name].Partitions {
			if p.Err != nil || p.Leader < 0 {
				return fmt.Errorf("partition %d has no leader: %w", p.Partition, p.Err)
			}
		}
		return nil
	})
}

// GrowTopic gives a topic more partitions, total in all, and waits until every broker tells that they are there: the
// controller answers before the brokers know, and a producer that still sees the old number refuses records for the new
// ones. All brokers must run.
func GrowTopic(tb testing.TB, c *Cluster, name string, total int32) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	grown, err := Admin(tb, c).UpdatePartitions(ctx, int(total), name)
	require.NoError(tb, err, "grow topic %s", name)
	require.NoError(tb, grown.Error(), "grow topic %s", name)
	for _, broker := range c.AdminBootstraps() {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker))
		require.NoError(tb, err)
		tb.Cleanup(client.Close)
		req := kmsg.NewPtrMetadataRequest()
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = &name
		req.Topics = append(req.Topics, asked)
		wait.For(tb, time.Minute, fmt.Sprintf("%d partitions of topic %s at %s", total, name, broker), func() error {
			resp, err := client.SeedBrokers()[0].Request(ctx, req)
			if err != nil {
				return err
			}
			told := resp.(*kmsg.MetadataResponse).Topics[0]
			if n := len(told.Partitions); n != int(total) {
				return errors.Join(fmt.Errorf("%d partitions", n), kerr.ErrorForCode(told.ErrorCode))
			}
			return nil
		})
	}
}

// produceTimeout bounds the writing of one call. It is no RecordDeliveryTimeout, since the client measures that from a
// record's timestamp, and ours lie in the past.
const produceTimeout = 3 * time.Minute

// flush waits until everything that client was given is acknowledged.
func flush(tb testing.TB, client *kgo.Client, failures <-chan error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), produceTimeout)
	defer cancel()
	require.NoError(tb, client.Flush(ctx), "wait for acknowledgements")
	select {
	case err := <-failures:
		require.NoError(tb, err, "produce")
	default:
	}
}

// Produce writes records as they are, to the partition that each names, and waits until all are acknowledged.
func Produce(tb testing.TB, c *Cluster, topic string, records ...*kgo.Record) {
	tb.Helper()
	client := producer(tb, c, topic)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), produceTimeout)
	defer cancel()
	require.NoError(tb, client.ProduceSync(ctx, records...).FirstErr(), "produce to %s", topic)
}

func producer(tb testing.TB, c *Cluster, topic string, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	all := append([]kgo.Opt{
		kgo.SeedBrokers(c.AdminBootstraps()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(50_000), kgo.ProducerLinger(2 * time.Millisecond),
	}, opts...)
	client, err := kgo.NewClient(all...)
	require.NoError(tb, err)
	return client
}

// FillOptions say what Fill writes.
type FillOptions struct {
	Records    int
	Partitions int32 // records go round robin; default 1
	FirstID    uint64
	ValueBytes int // size of ordinary values; default 100
	// Plain makes every record alike: key, value and id header only. Otherwise keys and values that are null or empty,
	// headers with null, empty and repeated entries, and timestamps of past years are among them.
	Plain bool
	// Opts are added to the producer's, such as a compression.
	Opts []kgo.Opt
}

// Fill writes records of many kinds, each with an id in IDHeader that counts from FirstID, and returns the next id. What it
// writes depends on the options alone, except for the timestamps of ordinary records.
func Fill(tb testing.TB, c *Cluster, topic string, o FillOptions) uint64 {
	tb.Helper()
	client := producer(tb, c, topic, o.Opts...)
	defer client.Close()
	g := newGenerator(o)
	failures := make(chan error, 1)
	for range o.Records {
		client.Produce(context.Background(), g.next(), report(failures))
	}
	flush(tb, client, failures)
	return g.id
}

// report is a produce promise that keeps the first error.
func report(failures chan<- error) func(*kgo.Record, error) {
	return func(_ *kgo.Record, err error) {
		if err == nil {
			return
		}
		select {
		case failures <- err:
		default:
		}
	}
}

type generator struct {
	o     FillOptions
	id    uint64
	rnd   *rand.Rand
	value []byte
}

func newGenerator(o FillOptions) *generator {
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	if o.ValueBytes == 0 {
		o.ValueBytes = 100
	}
	rnd := rand.New(rand.NewPCG(1, o.FirstID))
	// Values are windows into one block of random letters: quick to make, and not the same everywhere.
	block := make([]byte, o.ValueBytes+4096)
	for i := range block {
		block[i] = byte('a' + rnd.IntN(26))
	}
	return &generator{o: o, id: o.FirstID, rnd: rnd, value: block}
}

func (g *generator) next() *kgo.Record {
	id := g.id
	g.id++
	at := g.rnd.IntN(4096)
	r := &kgo.Record{
		Partition: int32(id % uint64(g.o.Partitions)),
		Key:       fmt.Appendf(nil, "key-%d", id),
		Value:     g.value[at : at+g.o.ValueBytes],
		Headers:   []kgo.RecordHeader{{Key: IDHeader, Value: binary.BigEndian.AppendUint64(nil, id)}},
	}
	if g.o.Plain {
		return r
	}
	// Prime distances, so that the kinds meet each other and every partition.
	if id%7 == 3 {
		r.Value = nil
	}
	if id%11 == 5 {
		r.Key = nil
	}
	if id%13 == 6 {
		r.Value = []byte{}
	}
	if id%17 == 7 {
		r.Key = []byte{}
	}
	if id%5 == 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "null"}, kgo.RecordHeader{Key: "", Value: []byte{}},
			kgo.RecordHeader{Key: "twice", Value: []byte("1")}, kgo.RecordHeader{Key: "twice", Value: []byte{0, 255}})
	}
	if id%19 == 4 {
		// From 2001 on, far outside every retention, at millisecond steps.
		r.Timestamp = time.UnixMilli(1_000_000_000_000 + int64(id%6000)*86_400_001)
	}
	return r
}

// FillTransactions writes like Fill, in transactions of perTransaction records; of every abortEvery transactions the last
// is aborted (0: none). It returns the next id and the number of records committed.
func FillTransactions(tb testing.TB, c *Cluster, topic string, o FillOptions, perTransaction, abortEvery int) (next uint64, committed int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), produceTimeout)
	defer cancel()
	client := producer(tb, c, topic, append([]kgo.Opt{kgo.TransactionalID(UniqueName(tb))}, o.Opts...)...)
	defer client.Close()
	g := newGenerator(o)
	for tx, left := 1, o.Records; left > 0; tx++ {
		n := min(perTransaction, left)
		left -= n
		require.NoError(tb, client.BeginTransaction())
		failures := make(chan error, 1)
		for range n {
			client.Produce(ctx, g.next(), report(failures))
		}
		flush(tb, client, failures)
		end := kgo.TryCommit
		if abortEvery > 0 && tx%abortEvery == 0 {
			end = kgo.TryAbort
		} else {
			committed += n
		}
		require.NoError(tb, client.EndTransaction(ctx, end))
	}
	return g.id, committed
}

// OpenTransaction writes the records in a transaction that stays open until the returned function ends it.
func OpenTransaction(tb testing.TB, c *Cluster, topic string, records ...*kgo.Record) (end func(commit bool)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), produceTimeout)
	defer cancel()
	client := producer(tb, c, topic, kgo.TransactionalID(UniqueName(tb)))
	tb.Cleanup(client.Close)
	require.NoError(tb, client.BeginTransaction())
	require.NoError(tb, client.ProduceSync(ctx, records...).FirstErr())
	return func(commit bool) {
		tb.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), produceTimeout)
		defer cancel()
		require.NoError(tb, client.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
	}
}

// CompactedConfigs are topic configs under which the log cleaner works within seconds. Brokers of 4.x refuse segments
// below 1 MiB, so segments are closed by age.
func CompactedConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"min.cleanable.dirty.ratio": "0.001",
		"segment.ms":                "200",
		"delete.retention.ms":       "0",
	}
}

// FillCompacted writes records with ids over few keys to a topic made with CompactedConfigs, and waits until the cleaner has
// removed some in every partition it filled, so that offsets have gaps. It returns the next id.
func FillCompacted(tb testing.TB, c *Cluster, topic string, o FillOptions, keys int) uint64 {
	tb.Helper()
	client := producer(tb, c, topic, o.Opts...)
	defer client.Close()
	o.Plain = true
	g := newGenerator(o)
	failures := make(chan error, 1)
	write := func(n int) {
		for range n {
			r := g.next()
			r.Key = fmt.Appendf(nil, "key-%d", r.Headers[0].Value[7]%byte(min(keys, 255)))
			client.Produce(context.Background(), r, report(failures))
		}
		flush(tb, client, failures)
	}
	write(o.Records)
	wait.For(tb, 2*time.Minute, "the log cleaner on "+topic, func() error {
		// The newest segment is never cleaned. A record a look closes it once it is old enough.
		write(int(g.o.Partitions))
		sums := Sums(tb, c, topic, ReadUncommitted)
		ends, err := kadm.NewClient(client).ListEndOffsets(context.Background(), topic)
		if err != nil {
			return err
		}
		for p := range g.o.Partitions {
			end, ok := ends.Lookup(topic, p)
			if !ok || sums[p].Records >= end.Offset {
				return fmt.Errorf("partition %d still has all of its %d records", p, sums[p].Records)
			}
		}
		return nil
	})
	return g.id
}

// Commit commits offsets for a group that has no members.
func Commit(tb testing.TB, c *Cluster, group, topic string, offsets map[int32]int64) {
	tb.Helper()
	var all kadm.Offsets
	for p, o := range offsets {
		all.AddOffset(topic, p, o, -1)
	}
	responses, err := Admin(tb, c).CommitOffsets(context.Background(), group, all)
	require.NoError(tb, err)
	require.NoError(tb, responses.Error())
}

// Committed returns the offsets that a group has committed for a topic; partitions without one are absent.
func Committed(tb testing.TB, c *Cluster, group, topic string) map[int32]int64 {
	tb.Helper()
	responses, err := Admin(tb, c).FetchOffsets(context.Background(), group)
	require.NoError(tb, err)
	offsets := map[int32]int64{}
	responses.Each(func(r kadm.OffsetResponse) {
		if r.Topic == topic && r.At >= 0 {
			offsets[r.Partition] = r.At
		}
	})
	return offsets
}

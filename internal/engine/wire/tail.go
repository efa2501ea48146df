package wire

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tail is what a leader says of the end of a partition and of one producer there. It is a reading, not a lock: a request
// that was sent on another connection before may be appended after it.
type Tail struct {
	// Known: the broker has an entry for the producer. Brokers forget by the timestamps of records.
	Known bool
	// ProducerEpoch and LastSequence are of the entry. They count records that are not replicated yet.
	ProducerEpoch int16
	LastSequence  int32
	// LastTimestamp is the entry's age in ms: the largest timestamp of the producer's last batch.
	LastTimestamp int64
	// OpenTransaction is the first offset of the producer's open transaction, -1 without one.
	OpenTransaction int64
	// LogEnd is the offset behind the last record of the leader's log, HighWatermark the one behind the last replicated
	// record. Nothing may be concluded from LogEnd before the two are equal; HighWatermark is read later and is the larger
	// one when records came in between.
	LogEnd, HighWatermark int64
}

// Settled tells whether everything in the leader's log is replicated, so that a position may be derived from it.
func (t Tail) Settled() bool { return t.LogEnd == t.HighWatermark }

// debugReplica reads the log's end instead of the high watermark.
const debugReplica = -2

// Tail reads the end of a partition and the entry of the producer pid from the broker, which must be the partition's leader
// under leaderEpoch (-1: not known; a leader of another epoch refuses). An error of the broker is a *kerr.Error.
//
// It needs READ and DESCRIBE on the topic, and a broker of 2.8 or later.
func (c *Conn) Tail(ctx context.Context, topic string, partition, leaderEpoch int32, pid int64) (Tail, error) {
	t := Tail{ProducerEpoch: -1, LastSequence: -1, LastTimestamp: -1, OpenTransaction: -1}
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	answer, err := c.Request(ctx, req)
	if err != nil {
		return t, err
	}
	resp, ok := answer.(*kmsg.DescribeProducersResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return t, fmt.Errorf("%w: producers of other partitions than one", ErrAnswer)
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return t, err
	}
	for _, a := range p.ActiveProducers {
		if a.ProducerID == pid {
			t.Known, t.ProducerEpoch, t.LastSequence = true, int16(a.ProducerEpoch), a.LastSequence
			t.LastTimestamp, t.OpenTransaction = a.LastTimestamp, a.CurrentTxnStartOffset
		}
	}
	// The log's end after the entry, the watermark last: what is behind the entry shows in the end, and a watermark that has
	// reached an end read before it has passed all that the entry counts.
	return c.ends(ctx, t, topic, partition, leaderEpoch)
}

// TailEnd is Tail without an entry, for brokers that tell nothing of producers. It needs DESCRIBE on the topic.
func (c *Conn) TailEnd(ctx context.Context, topic string, partition, leaderEpoch int32) (Tail, error) {
	return c.ends(ctx, Tail{ProducerEpoch: -1, LastSequence: -1, LastTimestamp: -1, OpenTransaction: -1}, topic, partition, leaderEpoch)
}

func (c *Conn) ends(ctx context.Context, t Tail, topic string, partition, leaderEpoch int32) (Tail, error) {
	var err error
	if t.LogEnd, err = c.logEnd(ctx, topic, partition, leaderEpoch, debugReplica); err != nil {
		return t, err
	}
	t.HighWatermark, err = c.logEnd(ctx, topic, partition, leaderEpoch, -1)
	return t, err
}

func (c *Conn) logEnd(ctx context.Context, topic string, partition, leaderEpoch, replica int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = replica
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = partition, leaderEpoch, -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{rp}}}
	answer, err := c.Request(ctx, req)
	if err != nil {
		return -1, err
	}
	resp, ok := answer.(*kmsg.ListOffsetsResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1, fmt.Errorf("%w: offsets of other partitions than one", ErrAnswer)
	}
	p := &resp.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// Timestamps with a meaning of their own in ListOffsets, and its isolation levels.
const (
	atEnd   = int64(-1)
	atStart = int64(-2)

	uncommitted = int8(0) // the end is the high watermark
	committed   = int8(1) // the end is the last stable offset
)

// listed is one partition's answer; err is about the partition alone.
type listed struct {
	offset int64
	err    error
}

// errLeftOut says that an answer does not mention a partition that it was asked for.
var errLeftOut = errors.New("the answer leaves the partition out")

// listOffsets asks the leaders, one request to each broker. Every partition is in the result: those whose broker did not
// answer, or left them out, with an error, since no answer must never be taken for offset 0. The error returned is the
// first of the brokers', so that a caller who needs all sees it.
func listOffsets(ctx context.Context, client *kgo.Client, tps []mirror.TP, ts int64, isolation int8) (map[mirror.TP]listed, error) {
	out := make(map[mirror.TP]listed, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	for _, tp := range tps {
		out[tp] = listed{offset: -1, err: errLeftOut}
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	at := map[string]int{}
	for _, tp := range tps {
		i, ok := at[tp.Topic]
		if !ok {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = tp.Topic
			i = len(req.Topics)
			at[tp.Topic] = i
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = tp.Partition, ts
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	var first error
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			if first == nil {
				first = fmt.Errorf("list offsets: %w", shard.Err)
			}
			if sr, ok := shard.Req.(*kmsg.ListOffsetsRequest); ok {
				for _, t := range sr.Topics {
					for _, p := range t.Partitions {
						out[mirror.TP{Topic: t.Topic, Partition: p.Partition}] = listed{offset: -1, err: shard.Err}
					}
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				out[mirror.TP{Topic: t.Topic, Partition: p.Partition}] = listed{offset: p.Offset, err: kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return out, first
}

// bounds are a partition's first offset and high watermark.
type bounds struct {
	start, end int64
	err        error
}

// listBounds asks for both ends. An error of one partition, even a dead leader's, does not hide the others.
func listBounds(ctx context.Context, client *kgo.Client, tps []mirror.TP) (map[mirror.TP]bounds, error) {
	last := report.Aside("reading log ends", func() (map[mirror.TP]listed, error) {
		return listOffsets(ctx, client, tps, atEnd, uncommitted)
	})
	starts, err := listOffsets(ctx, client, tps, atStart, uncommitted)
	ends, endsErr := last()
	if err == nil {
		err = endsErr
	}
	out := make(map[mirror.TP]bounds, len(tps))
	for _, tp := range tps {
		s, e := starts[tp], ends[tp]
		b := bounds{start: s.offset, end: e.offset, err: s.err}
		if b.err == nil {
			b.err = e.err
		}
		out[tp] = b
	}
	return out, err
}

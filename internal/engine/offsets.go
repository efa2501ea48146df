package engine

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
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

// listOffsets asks the leaders, one request to each broker. Partitions whose broker did not answer carry that error;
// the error returned is the first of those, so that a caller who needs all sees it.
func listOffsets(ctx context.Context, client *kgo.Client, tps []mirror.TP, ts int64, isolation int8) (map[mirror.TP]listed, error) {
	out := make(map[mirror.TP]listed, len(tps))
	if len(tps) == 0 {
		return out, nil
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
	type answer struct {
		m   map[mirror.TP]listed
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		m, err := listOffsets(ctx, client, tps, atEnd, uncommitted)
		ch <- answer{m, err}
	}()
	starts, err := listOffsets(ctx, client, tps, atStart, uncommitted)
	ends := <-ch
	if err == nil {
		err = ends.err
	}
	out := make(map[mirror.TP]bounds, len(tps))
	for _, tp := range tps {
		s, sok := starts[tp]
		e, eok := ends.m[tp]
		b := bounds{start: s.offset, end: e.offset}
		switch {
		case s.err != nil:
			b.err = s.err
		case e.err != nil:
			b.err = e.err
		case !sok || !eok:
			b.err = kerr.UnknownTopicOrPartition
		}
		out[tp] = b
	}
	return out, err
}

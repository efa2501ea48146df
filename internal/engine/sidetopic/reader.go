package sidetopic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// noProgress is how long reading may stand still before it is given up.
	noProgress = time.Minute
	// readers partitions are read at a time.
	readers    = 8
	fetchBytes = 4 << 20
)

// ErrMissing is wrapped by the error of Read when the topic does not exist.
var ErrMissing = errors.New("the topic does not exist")

// Read calls fn for the records of a topic up to the ends that its partitions have at the start, read_committed: for one
// record at a time, in order per partition. It gives up when nothing moves for a minute; the whole has no bound but
// ctx, since a throttled cluster may take its time.
//
// It goes by the offsets of batch headers, as a consumer cannot: the last offsets of a compacted partition may hold no
// record.
func Read(ctx context.Context, client *kgo.Client, topic string, fn func(*kgo.Record)) error {
	r := reader{client: client, topic: topic, fn: fn}
	return r.read(ctx)
}

type reader struct {
	client *kgo.Client
	topic  string
	fn     func(*kgo.Record)
	mu     sync.Mutex // held during fn
}

func (r *reader) read(ctx context.Context) error {
	ends, err := r.ends(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for p, end := range ends {
		if end > 0 {
			group.Go(func() error {
				// A panic, of fn for one, is an error of the caller's and not the end of the process.
				return report.Contained("reading "+r.topic, func() error { return r.partition(ctx, p, end) })
			})
		}
	}
	return group.Wait()
}

func (r *reader) ends(ctx context.Context) (map[int32]int64, error) {
	for began := time.Now(); ; {
		listed, err := kadm.NewClient(r.client).ListCommittedOffsets(ctx, r.topic)
		if err == nil {
			err = listed.Error()
		}
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition), err == nil && len(listed[r.topic]) == 0:
			return nil, ErrMissing
		case err == nil:
			ends := map[int32]int64{}
			listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
			return ends, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !kerr.IsRetriable(err) || time.Since(began) > noProgress:
			return nil, fmt.Errorf("list the ends: %w", err)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// partition reads one partition from its start up to offset end.
func (r *reader) partition(ctx context.Context, partition int32, end int64) error {
	size := int32(fetchBytes)
	var leader int32
	var id [16]byte
	known := false
	at := int64(-1)
	var cause error
	for progress := time.Now(); at < end; {
		if cause != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Since(progress) > noProgress {
				return fmt.Errorf("partition %d: no progress for %s at offset %d of %d: %w", partition, noProgress, at, end, cause)
			}
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		if !known {
			if leader, id, cause = r.leader(ctx, partition); cause != nil {
				continue
			}
			known = true
		}
		if at < 0 {
			if at, cause = r.start(ctx, partition); cause != nil {
				at = -1
				continue
			}
			continue
		}
		var next int64
		next, cause = r.fetch(ctx, leader, id, partition, at, end, size)
		var ke *kerr.Error
		switch {
		case errors.Is(cause, kerr.OffsetOutOfRange):
			at = -1 // the start moved
		case errors.As(cause, &ke) && !ke.Retriable || errors.Is(cause, errBatch):
			return fmt.Errorf("partition %d at offset %d: %w", partition, at, cause)
		case cause != nil:
			known = false
			if errors.Is(cause, os.ErrDeadlineExceeded) {
				size = max(size/4, 16<<10) // over a slow line less gets through in the client's time
			}
		case next > at:
			at, progress = next, time.Now()
		default:
			cause = errNothing
		}
	}
	return nil
}

var (
	errNothing = errors.New("the broker answers without records")
	errBatch   = errors.New("a batch cannot be read")
	errForm    = errors.New("an answer has another form than expected")
)

func (r *reader) leader(ctx context.Context, partition int32) (int32, [16]byte, error) {
	meta, err := kadm.NewClient(r.client).Metadata(ctx, r.topic)
	if err != nil {
		return 0, [16]byte{}, err
	}
	t := meta.Topics[r.topic]
	if t.Err != nil {
		return 0, [16]byte{}, t.Err
	}
	p, ok := t.Partitions[partition]
	if !ok || p.Leader < 0 {
		return 0, [16]byte{}, kerr.LeaderNotAvailable
	}
	return p.Leader, t.ID, nil
}

func (r *reader) start(ctx context.Context, partition int32) (int64, error) {
	listed, err := kadm.NewClient(r.client).ListStartOffsets(ctx, r.topic)
	if err != nil {
		return 0, err
	}
	o, ok := listed.Lookup(r.topic, partition)
	if !ok {
		return 0, errForm
	}
	return o.Offset, o.Err
}

func (r *reader) fetch(ctx context.Context, broker int32, id [16]byte, partition int32, at, end int64, size int32) (int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 500, 1, size, 1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.topic, id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, at, size
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := r.client.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return at, err
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return at, errForm
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return at, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return at, errForm
	}
	got := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return at, err
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: partition,
	}, got, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil && next == at {
		return at, fmt.Errorf("%w: %w", errBatch, fp.Err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range fp.Records {
		if rec.Offset < end {
			r.fn(rec)
		}
	}
	return next, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

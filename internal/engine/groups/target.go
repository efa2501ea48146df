package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

const (
	// commitParallel is how many groups are written at a time.
	commitParallel = 16
	// describeBatch is how many groups one describe request asks for.
	describeBatch = 500
	// apiCacheLife is how long the target's abilities are believed; an upgrade shows after it at the latest.
	apiCacheLife = time.Minute
)

// description is a group as the target sees it.
type description struct {
	state  string
	active bool
	err    error
}

// apiCache remembers whether the target knows the describe request for KIP-848 groups.
type apiCache struct {
	at       time.Time
	describe bool
}

// knowsConsumerDescribe tells whether every broker of the target can describe KIP-848 groups. It runs within a sync round.
func (r *Room) knowsConsumerDescribe(ctx context.Context) (bool, error) {
	now := r.cfg.Now()
	if !r.apis.at.IsZero() && now.Sub(r.apis.at) < apiCacheLife {
		return r.apis.describe, nil
	}
	c, cancel := r.bounded(ctx)
	defer cancel()
	all, err := kadm.NewClient(r.cfg.Target).ApiVersions(c)
	if err != nil {
		return false, err
	}
	describe, asked := true, false
	for _, b := range all {
		if b.Err != nil {
			// A broker that is down is not asked for groups either.
			continue
		}
		asked = true
		if _, ok := b.KeyMaxVersion(int16(kmsg.ConsumerGroupDescribe)); !ok {
			describe = false
		}
	}
	if !asked {
		return false, firstBrokerError(all)
	}
	r.apis.at, r.apis.describe = now, describe
	return describe, nil
}

func firstBrokerError(all kadm.BrokersApiVersions) error {
	for _, b := range all.Sorted() {
		if b.Err != nil {
			return b.Err
		}
	}
	return errors.New("the cluster lists no brokers")
}

// describe asks the target for the groups' states. KIP-848 groups are asked for first: the old request calls them dead,
// active or not. A group that neither knows does not exist, and may be written.
func (r *Room) describe(ctx context.Context, names []string) (map[string]description, error) {
	newer, err := r.knowsConsumerDescribe(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]description, len(names))
	classic := names
	if newer {
		classic = nil
		c, cancel := r.bounded(ctx)
		defer cancel()
		for name, d := range describeConsumer(c, r.cfg.Target, names) {
			if errors.Is(d.err, kerr.GroupIDNotFound) || errors.Is(d.err, kerr.UnsupportedVersion) {
				classic = append(classic, name)
				continue
			}
			out[name] = d
		}
	}
	c, cancel := r.bounded(ctx)
	defer cancel()
	for name, d := range describeClassic(c, r.cfg.Target, classic) {
		if errors.Is(d.err, kerr.GroupIDNotFound) {
			d = description{state: "Dead"}
		}
		out[name] = d
	}
	return out, r.allFailed(out)
}

// allFailed returns the error when the cluster as a whole did not answer.
func (r *Room) allFailed(all map[string]description) error {
	var first error
	for _, d := range all {
		if d.err == nil || !whole(d.err) {
			return nil
		}
		first = d.err
	}
	return first
}

func describeConsumer(ctx context.Context, client *kgo.Client, names []string) map[string]description {
	out := make(map[string]description, len(names))
	for batch := range slices.Chunk(names, describeBatch) {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = batch
		for _, shard := range client.RequestSharded(ctx, req) {
			if shard.Err != nil {
				if asked, ok := shard.Req.(*kmsg.ConsumerGroupDescribeRequest); ok {
					fail(out, asked.Groups, shard.Err)
				}
				continue
			}
			resp, ok := shard.Resp.(*kmsg.ConsumerGroupDescribeResponse)
			if !ok {
				continue
			}
			for _, g := range resp.Groups {
				out[g.Group] = description{g.State, busy(g.State, len(g.Members)), kerr.ErrorForCode(g.ErrorCode)}
			}
		}
	}
	return complete(out, names)
}

func describeClassic(ctx context.Context, client *kgo.Client, names []string) map[string]description {
	out := make(map[string]description, len(names))
	for batch := range slices.Chunk(names, describeBatch) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = batch
		for _, shard := range client.RequestSharded(ctx, req) {
			if shard.Err != nil {
				if asked, ok := shard.Req.(*kmsg.DescribeGroupsRequest); ok {
					fail(out, asked.Groups, shard.Err)
				}
				continue
			}
			resp, ok := shard.Resp.(*kmsg.DescribeGroupsResponse)
			if !ok {
				continue
			}
			for _, g := range resp.Groups {
				out[g.Group] = description{g.State, busy(g.State, len(g.Members)), kerr.ErrorForCode(g.ErrorCode)}
			}
		}
	}
	return complete(out, names)
}

// busy tells whether a group in this state must not be written: in all but the two states in which it has no members.
func busy(state string, members int) bool {
	return members > 0 || state != "Empty" && state != "Dead"
}

func fail(out map[string]description, names []string, err error) {
	for _, name := range names {
		out[name] = description{err: err}
	}
}

// errNoAnswer says that a response left out what was asked for.
var errNoAnswer = errors.New("the response does not mention it")

func complete(out map[string]description, names []string) map[string]description {
	for _, name := range names {
		if _, ok := out[name]; !ok {
			out[name] = description{err: errNoAnswer}
		}
	}
	return out
}

// targetOffsets reads what the groups have committed on the target.
func (r *Room) targetOffsets(ctx context.Context, names []string) (map[string]map[mm2.TopicPartition]int64, map[string]error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	admin := kadm.NewClient(r.cfg.Target)
	have := make(map[string]map[mm2.TopicPartition]int64, len(names))
	failed := map[string]error{}
	for batch := range slices.Chunk(names, fetchBatch) {
		answers := admin.FetchManyOffsets(ctx, batch...)
		for _, name := range batch {
			answer, ok := answers[name]
			switch {
			case !ok:
				failed[name] = errNoAnswer
				continue
			case errors.Is(answer.Err, kerr.GroupIDNotFound):
				continue
			case answer.Err != nil:
				failed[name] = answer.Err
				continue
			}
			if err := firstPartitionError(answer.Fetched); err != nil {
				// Not knowing where the group is, we might move it back.
				failed[name] = err
				continue
			}
			m := map[mm2.TopicPartition]int64{}
			for topic, ps := range answer.Fetched {
				for id, o := range ps {
					if o.Err == nil && o.At >= 0 {
						m[mm2.TopicPartition{Topic: topic, Partition: id}] = o.At
					}
				}
			}
			have[name] = m
		}
	}
	return have, failed
}

// topicID is what the target says of a topic. The id is zero in a cluster before 2.8, and where it cannot be told.
type topicID struct {
	id [16]byte
	// missing: it is not there, and was when the offsets were translated.
	missing bool
}

// topicIDs looks up the ids of the topics in commits; commits to brokers from 4.1 on name topics by id.
func (r *Room) topicIDs(ctx context.Context, commits map[string]wants) (map[string]topicID, error) {
	knownOnce := map[string]bool{}
	req := kmsg.NewPtrMetadataRequest()
	for _, ws := range commits {
		for tp, w := range ws {
			if _, asked := knownOnce[tp.Topic]; !asked {
				knownOnce[tp.Topic] = w.topicID != [16]byte{}
				t := kmsg.NewMetadataRequestTopic()
				t.Topic = kmsg.StringPtr(tp.Topic)
				req.Topics = append(req.Topics, t)
			}
		}
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	resp, err := req.RequestWith(ctx, r.cfg.Target)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]topicID, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic != nil {
			ids[*t.Topic] = topicID{t.TopicID, knownOnce[*t.Topic] && t.ErrorCode == kerr.UnknownTopicOrPartition.Code}
		}
	}
	return ids, nil
}

// commitOffsets commits from outside the group and returns the partitions that failed.
func commitOffsets(ctx context.Context, client *kgo.Client, name string, ws wants, ids map[string]topicID) (map[mm2.TopicPartition]error, error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = name, -1
	at := map[string]int{}
	byID := map[[16]byte]string{}
	for tp, w := range ws {
		i, ok := at[tp.Topic]
		if !ok {
			i = len(req.Topics)
			at[tp.Topic] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = tp.Topic, ids[tp.Topic].id
			byID[t.TopicID] = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = tp.Partition, w.offset
		// The source's leader epoch means nothing here; a consumer would take it for data loss.
		p.LeaderEpoch = -1
		if w.metadata != "" {
			p.Metadata = kmsg.StringPtr(w.metadata)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("commit offsets: %w", err)
	}
	failed := map[mm2.TopicPartition]error{}
	for tp := range ws {
		failed[tp] = errNoAnswer
	}
	for _, t := range resp.Topics {
		topic := t.Topic
		if topic == "" {
			topic = byID[t.TopicID]
		}
		for _, p := range t.Partitions {
			tp := mm2.TopicPartition{Topic: topic, Partition: p.Partition}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				failed[tp] = err
				continue
			}
			delete(failed, tp)
		}
	}
	return failed, nil
}

// inParallel calls f for 0..n-1, at most limit at a time, and waits. A panic of one is raised again here.
func inParallel(n, limit int, f func(int)) {
	slots := make(chan struct{}, limit)
	faults := make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := report.Contained("writing group offsets", func() error { f(i); return nil }); err != nil {
				faults <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-faults:
		panic(err)
	default:
	}
}

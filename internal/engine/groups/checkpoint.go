package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/sidetopic"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// loadTimeout bounds reading the checkpoints topic at start.
const loadTimeout = time.Minute

// checkpointLoop writes checkpoints. The first round follows the restore of what is known.
func (r *Room) checkpointLoop(ctx context.Context) error {
	ticker := time.NewTicker(r.cfg.CheckpointInterval)
	defer ticker.Stop()
	for {
		if err := r.checkpointRound(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Debug("checkpoints failed", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// checkpointRound writes one checkpoint for each group and partition whose translation is more recent than the last one
// written (isDue).
func (r *Room) checkpointRound(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if !r.cfg.MayWrite() {
		return errNotAllowed
	}
	if err := r.prepare(ctx); err != nil {
		r.checkpointFailed(err)
		return err
	}
	fetchErr := r.fetch(ctx, max(fresh, r.cfg.CheckpointInterval/2))
	due, records, err := r.dueCheckpoints()
	if err != nil {
		return errors.Join(fetchErr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if !r.cfg.MayWrite() {
		return errNotAllowed
	}
	for i, failed := range sidetopic.Write(ctx, r.cfg.Target, records...) {
		if failed != nil {
			err = failed
			continue
		}
		// Known as written only once it is.
		r.checkpoints.Load(due[i])
	}
	if err != nil {
		if kafka.KindOf(err) == kafka.KindTopicMissing {
			r.topicMade = false
		}
		err = fmt.Errorf("write checkpoints: %w", err)
		if !errors.Is(err, context.Canceled) { // else we end, or another task took our records with its own that it gave up
			r.checkpointFailed(err)
		}
		return errors.Join(fetchErr, err)
	}
	r.troubles.clear(everything, phaseCheckpoint)
	return fetchErr
}

func (r *Room) topic() string { return r.cfg.Policy.CheckpointsTopic(r.cfg.SourceAlias) }

// prepare makes the topic and reads what stands in it. Nothing is written before, lest a restart let checkpoints go back.
func (r *Room) prepare(ctx context.Context) error {
	if !r.topicMade {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		if err := kafka.EnsureCompacted(ctx, r.cfg.Target, r.topic(), r.cfg.ReplicationFactor); err != nil {
			return err
		}
		r.topicMade = true
	}
	if r.checkpoints != nil {
		return nil
	}
	store, err := r.load(ctx)
	if kafka.KindOf(err) == kafka.KindAuthorization {
		// As MM2 does without the right to read. Translations are exact, so that what is written again says the same.
		r.cfg.Logger.Warn("checkpoints cannot be read back", slog.String("topic", r.topic()), slog.String("error", kafka.Brief(err)))
		store, err = mm2.NewCheckpointStore(), nil
	}
	if err != nil {
		return fmt.Errorf("read back checkpoints: %w", err)
	}
	r.checkpoints = store
	return nil
}

// load reads partition 0 of the checkpoints topic from its beginning to where it ends now. It either reads all of it or
// fails: a part would let checkpoints go back.
func (r *Room) load(ctx context.Context) (*mm2.CheckpointStore, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	store := mm2.NewCheckpointStore()
	topic := r.topic()
	admin := kadm.NewClient(r.cfg.Target)
	meta, err := admin.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	detail := meta.Topics[topic]
	if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return store, nil
	}
	if detail.Err != nil {
		return nil, detail.Err
	}
	lead := detail.Partitions[0]
	if lead.Err != nil {
		return nil, lead.Err
	}
	next, err := oneOffset(admin.ListStartOffsets(ctx, topic))
	if err != nil {
		return nil, err
	}
	// The end of what is committed: MM2 under exactly once writes this topic in transactions.
	end, err := oneOffset(admin.ListCommittedOffsets(ctx, topic))
	if err != nil {
		return nil, err
	}
	for next < end {
		records, after, err := r.readAt(ctx, lead.Leader, detail.ID, next)
		if err != nil {
			return nil, err
		}
		if after == next {
			// Nothing is left up to the end: cleaned away.
			break
		}
		next = after
		for _, rec := range records {
			c, err := mm2.DecodeCheckpoint(rec.Key, rec.Value)
			if err != nil {
				// Someone else's record, or a tombstone, which says nothing about our groups.
				r.cfg.Logger.Debug("checkpoint skipped", slog.String("topic", topic), slog.Int64("offset", rec.Offset), slog.Any("error", err))
				continue
			}
			store.Load(c)
		}
	}
	return store, nil
}

// oneOffset takes partition 0 out of the answer about one topic.
func oneOffset(all kadm.ListedOffsets, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	for _, ps := range all {
		o, ok := ps[0]
		if !ok {
			break
		}
		return o.Offset, o.Err
	}
	return 0, kerr.UnknownTopicOrPartition
}

// readAt reads one answer's worth of records from offset at on, and returns where to go on; the same offset when the log
// holds nothing more. A fetch of its own, since a consumer does not tell the end of a log from a broker that is away.
func (r *Room) readAt(ctx context.Context, leader int32, id kadm.TopicID, at int64) ([]*kgo.Record, int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 0, 0, 8<<20, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic(), id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = 0, at, 8<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := r.cfg.Target.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return nil, 0, fmt.Errorf("unexpected response %T", answer)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, errNoAnswer
	}
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic(),
	}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return nil, 0, read.Err
	}
	return read.Records, next, nil
}

// dueCheckpoints picks what is more recent than what is known. A group whose names do not fit the format is a condition
// and keeps nobody else back. It runs with writing held.
func (r *Room) dueCheckpoints() (due []mm2.Checkpoint, records []*kgo.Record, err error) {
	now := r.cfg.Now()
	plan := r.checkpointCandidates()
	for _, c := range plan {
		if !r.isDue(c) {
			continue
		}
		key, keyErr := c.Key()
		value, valueErr := c.Value()
		if err := errors.Join(keyErr, valueErr); err != nil {
			r.groupFailed(c.Group, phaseCheckpoint, "The checkpoint of the group %s does not fit MM2's format: a name or its metadata has more than 32767 bytes.", err, "Shorten the metadata that the consumers commit.")
			continue
		}
		due = append(due, c.Checkpoint)
		records = append(records, &kgo.Record{Topic: r.topic(), Partition: 0, Key: key, Value: value, Timestamp: now})
	}
	return due, records, nil
}

// candidate is a checkpoint that says where a group is now.
type candidate struct {
	mm2.Checkpoint
	exact bool
}

// isDue tells whether a candidate is to be written. MM2's rule, by which a checkpoint goes back only with the source's
// group, compares offsets of two topics when the target's was made anew, and would leave the old one's standing for ever.
// An exact translation goes back for one of these two reasons only, so it is right whatever was written before; an inexact
// one may just know less, and follows the rule.
func (r *Room) isDue(c candidate) bool {
	if r.checkpoints.ShouldEmit(c.Checkpoint) {
		return true
	}
	last, ok := r.checkpoints.Get(c.Group, c.TopicPartition())
	return ok && c.exact && c.Upstream >= 0 && c.Downstream >= 0 && c.Downstream != last.Downstream
}

func (r *Room) checkpointCandidates() []candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []candidate
	for name, g := range r.kept {
		if g.err != nil {
			continue
		}
		for tp, c := range g.commits {
			tr, ok, _ := r.cfg.Translator.Translate(tp.topic, tp.id, c.offset)
			if !ok || tr.Target < 0 {
				continue
			}
			on := r.targetPartition(tp)
			all = append(all, candidate{mm2.Checkpoint{
				Group: name, Topic: on.Topic, Partition: on.Partition, Upstream: c.offset, Downstream: tr.Target, Metadata: c.metadata,
			}, tr.Exact})
		}
	}
	return all
}

func (r *Room) checkpointFailed(err error) {
	r.troubles.set(everything, phaseCheckpoint, passing(err), report.Condition{
		Code: report.GroupSyncFailed, Severity: report.Warning,
		Message:  fmt.Sprintf("Checkpoints cannot be written to the topic %s on the target.", r.topic()),
		Evidence: map[string]any{"error": kafka.Brief(err), "topic": r.topic()},
		Remedy:   remedyFor(err, "target", "CREATE, READ and WRITE on the topic "+r.topic()),
	})
}

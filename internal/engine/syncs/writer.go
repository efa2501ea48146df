package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config is what a Writer needs.
type Config struct {
	// Client is a client of the cluster that holds the topic, the source or the target of the flow, made with
	// kgo.RecordPartitioner(kgo.ManualPartitioner()). The caller closes it.
	Client *kgo.Client
	// MayWrite is asked right before something is sent; false: not now. Default: always.
	MayWrite func() bool
	// Topic is the policy's name for it: its OffsetSyncsTopic with the alias of the other cluster.
	Topic string
	// ReplicationFactor of the topic if it has to be made; 0 and -1 are the cluster's default.
	ReplicationFactor int16
	// LagMax is offset.lag.max in records; negative counts as 0.
	LagMax int64
	Logger *slog.Logger // default: discard
	// OnError, if set, hears of a failure to make the topic or to write to it, again when the cause is another, and nil when
	// writing works again. Calls come one at a time.
	OnError func(error)
}

// Writer writes the offset syncs of one task. All methods are safe for concurrent use.
type Writer struct {
	cfg    Config
	client *kgo.Client
	wake   chan struct{}

	mu      sync.Mutex
	rule    *mm2.OffsetSyncWriter
	newest  map[mm2.TopicPartition]int64 // upstream offset of the sync sent last
	again   map[mm2.TopicPartition]mm2.OffsetSync
	againAt time.Time // not before
	flying  int
	made    bool
	deleted bool          // under us, while the client knew it
	settled chan struct{} // closed and made anew whenever nothing is due or in flight

	pause time.Duration // before a failed sync is sent again
	fault chan error    // the first panic of what takes answers

	reportMu sync.Mutex
	failing  string    // why; "": it does not
	unknown  time.Time // since when the topic is unknown; zero: it is not
}

// New makes a writer; it connects when it runs.
func New(cfg Config) (*Writer, error) {
	if cfg.Topic == "" || cfg.Client == nil {
		return nil, errors.New("syncs: config: Topic and Client are required")
	}
	if !kafka.PartitionsManually(cfg.Client) {
		return nil, errors.New("syncs: config: Client must have the manual partitioner")
	}
	if cfg.MayWrite == nil {
		cfg.MayWrite = func() bool { return true }
	}
	if cfg.ReplicationFactor == 0 {
		cfg.ReplicationFactor = -1
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		cfg: cfg, client: cfg.Client, wake: make(chan struct{}, 1), rule: mm2.NewOffsetSyncWriter(cfg.LagMax),
		newest: map[mm2.TopicPartition]int64{}, again: map[mm2.TopicPartition]mm2.OffsetSync{}, settled: make(chan struct{}),
		pause: time.Second, fault: make(chan error, 1),
	}, nil
}

// Run makes the topic and writes until ctx ends; what is in flight then is given up, and may still land. A panic within ends
// it, with a *report.PanicError.
func (w *Writer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return report.Contained("the offset syncs", func() error { return w.loop(ctx) })
}

// loop does all the work but taking answers.
func (w *Writer) loop(ctx context.Context) error {
	wait := time.Duration(0)
	for {
		var again <-chan time.Time
		wake := w.wake
		if w.cfg.MayWrite() && w.ensure(ctx) {
			wait = 0
			if d := w.send(ctx); d > 0 {
				again = time.After(d)
			}
		} else {
			wait = min(max(2*wait, 250*time.Millisecond), 10*time.Second)
			again, wake = time.After(wait), nil // nothing can be sent before the topic is there
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.fault:
			return err
		case <-wake:
		case <-again:
		}
	}
}

// ensure makes the topic if it is not known to be there, and tells whether it is. Like MM2, it supposes that somebody
// else has made a topic that we may not make; writing will tell.
func (w *Writer) ensure(ctx context.Context) bool {
	w.mu.Lock()
	made, deleted := w.made, w.deleted
	w.mu.Unlock()
	if made {
		return true
	}
	if deleted {
		// The client would look for the topic that it knew for ever.
		w.client.PurgeTopicsFromProducing(w.cfg.Topic)
	}
	err := kafka.CreateCompacted(ctx, w.client, w.cfg.Topic, 1, w.cfg.ReplicationFactor)
	if err != nil && !errors.Is(err, kafka.ErrCreateDenied) {
		if ctx.Err() == nil {
			w.report(err)
		}
		return false
	}
	w.mu.Lock()
	w.made, w.deleted = true, false
	w.mu.Unlock()
	return true
}

// Observe takes acknowledged spans of a source partition, in order.
func (w *Writer) Observe(topic string, partition int32, spans []mirror.Span) {
	tp := mm2.TopicPartition{Topic: topic, Partition: partition}
	w.mu.Lock()
	for _, s := range spans {
		w.rule.AckedRun(tp, s.Source, s.Target, s.Count)
	}
	due := w.rule.Pending() > 0
	w.mu.Unlock()
	if due {
		w.notify()
	}
}

// Forget drops a partition's history, before it is mirrored from elsewhere or by another task: its next record is a
// first one, which gets a sync at once.
func (w *Writer) Forget(topic string, partition int32) {
	tp := mm2.TopicPartition{Topic: topic, Partition: partition}
	w.mu.Lock()
	w.rule.Forget(tp)
	delete(w.newest, tp)
	delete(w.again, tp)
	w.mu.Unlock()
}

// Flush makes the delayed syncs due, as MM2 does at each store of its positions, and returns when all that is due is
// written, or ctx ends.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	w.rule.Promote()
	for {
		if w.rule.Pending() == 0 && w.flying == 0 && len(w.again) == 0 {
			w.mu.Unlock()
			return nil
		}
		settled := w.settled
		w.mu.Unlock()
		w.notify()
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("write offset syncs to %s: %w", w.cfg.Topic, ctx.Err())
		}
		w.mu.Lock()
	}
}

// send hands what is due to the client. It answers how long what failed waits to be sent again; 0: nothing does.
func (w *Writer) send(ctx context.Context) (after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.rule.Take()
	taken := len(due)
	if after = time.Until(w.againAt); after <= 0 {
		for tp, s := range w.again {
			if w.flying+len(due) >= mm2.MaxOutstandingOffsetSyncs {
				break
			}
			due = append(due, s)
			delete(w.again, tp)
		}
	}
	for i, s := range due {
		// A newer one of the partition makes an older one superfluous.
		delete(w.again, s.TopicPartition())
		key, err := s.Key()
		if err != nil { // a topic name of more than 32767 bytes
			w.cfg.Logger.Error("offset sync cannot be encoded", slog.Any("topic", s.Topic), slog.Any("error", err))
			w.rule.Done()
			continue
		}
		w.newest[s.TopicPartition()] = s.Upstream
		w.flying++
		byRule := i < taken
		w.client.Produce(ctx, &kgo.Record{Topic: w.cfg.Topic, Key: key, Value: s.Value(), Partition: 0}, func(_ *kgo.Record, err error) {
			fault := report.Contained("the offset syncs", func() error {
				w.written(ctx, s, byRule, err)
				return nil
			})
			if fault != nil {
				select {
				case w.fault <- fault:
				default:
				}
			}
		})
	}
	if len(w.again) == 0 {
		return 0
	}
	return max(after, 0) // answers under way wake us up for the others
}

// written takes the outcome of one sync.
func (w *Writer) written(ctx context.Context, s mm2.OffsetSync, byRule bool, err error) {
	more := w.settle(ctx, s, byRule, err)
	if ctx.Err() != nil {
		return
	}
	// A record that another task gave up takes those behind it with it; they are sent again.
	if !errors.Is(err, context.Canceled) && !w.passing(err) {
		w.report(err)
	}
	if err != nil || more {
		w.notify()
	}
}

// settle notes the outcome of one sync and tells whether there is more to send.
func (w *Writer) settle(ctx context.Context, s mm2.OffsetSync, byRule bool, err error) (more bool) {
	tp := s.TopicPartition()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	if byRule {
		w.rule.Done()
	}
	if err != nil && ctx.Err() == nil {
		w.againAt = time.Now().Add(w.pause)
		if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
			w.made, w.deleted = false, true
		}
		// MM2 gives a failed sync up. Ours is sent again unless a newer one went out: an old one behind it would be taken for
		// a rewind by readers.
		if w.newest[tp] == s.Upstream {
			w.again[tp] = s
		}
	}
	more = w.rule.Pending() > 0 || len(w.again) > 0
	if w.flying == 0 && !more {
		close(w.settled)
		w.settled = make(chan struct{})
	}
	return more
}

// unknownGrace is for how long a topic may be unknown before that is told: a broker may learn late of one just made.
const unknownGrace = 3 * time.Second

// passing tells whether an outcome is of a topic that is unknown since a moment.
func (w *Writer) passing(err error) bool {
	w.reportMu.Lock()
	defer w.reportMu.Unlock()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		w.unknown = time.Time{}
		return false
	}
	if w.unknown.IsZero() {
		w.unknown = time.Now()
	}
	return time.Since(w.unknown) < unknownGrace
}

// report tells when writing begins to fail, fails for another cause, or works again.
func (w *Writer) report(err error) {
	w.reportMu.Lock()
	defer w.reportMu.Unlock()
	cause := ""
	if err != nil {
		cause = kafka.Brief(err)
	}
	if cause == w.failing {
		return
	}
	w.failing = cause
	if err != nil {
		w.cfg.Logger.Warn("offset syncs are not written", slog.Any("topic", w.cfg.Topic), slog.Any("error", err))
	} else {
		w.cfg.Logger.Info("offset syncs are written again", slog.Any("topic", w.cfg.Topic))
	}
	if w.cfg.OnError != nil {
		w.cfg.OnError(err)
	}
}

func (w *Writer) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

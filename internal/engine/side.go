package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// The two sides.
const (
	sideSource = "source"
	sideTarget = "target"
)

// Bounds of one piece of admin work on a side, and how often a lasting failure is looked at anew.
const (
	adminTimeout     = 10 * time.Second
	diagnoseInterval = 5 * time.Second
)

// side is one of the two clusters: its admin client, and whether it can be reached. Whoever works with the cluster says
// so when that fails (failed) or succeeds (ok), under a name of its own; while any of them fails, the side carries a
// condition whose cause is looked for by a check step by step.
type side struct {
	name    string
	cluster kafka.Cluster
	client  *kgo.Client
	board   *report.Board
	log     *slog.Logger
	// diagnose is kafka.Diagnose.
	diagnose func(context.Context, kafka.Cluster, error) *kafka.Problem

	mu      sync.Mutex
	failing map[string]error // by origin
	since   time.Time
	wake    chan struct{}
}

func newSide(name string, cluster kafka.Cluster, client *kgo.Client, board *report.Board, log *slog.Logger) *side {
	return &side{
		name: name, cluster: cluster, client: client, board: board, log: log.With(slog.String("side", name)),
		diagnose: kafka.Diagnose, failing: map[string]error{}, wake: make(chan struct{}, 1),
	}
}

// failed says that origin cannot work with the cluster. An ended context of ours is no failure, nor that we may not write.
func (s *side) failed(origin string, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kafka.ErrMayNotWrite) {
		return
	}
	s.mu.Lock()
	first := len(s.failing) == 0
	if first {
		s.since = time.Now()
	}
	s.failing[origin] = err
	s.mu.Unlock()
	s.log.Debug("cluster does not answer", slog.String("origin", origin), slog.Any("error", err))
	if first {
		signal(s.wake)
	}
}

// ok says that origin works again.
func (s *side) ok(origin string) {
	s.mu.Lock()
	_, was := s.failing[origin]
	delete(s.failing, origin)
	over := was && len(s.failing) == 0
	s.mu.Unlock()
	if over {
		signal(s.wake)
	}
}

// withdrawn says that the cluster answers and that nobody works with it any more: whoever failed before will not say that
// it works again. Who fails all the same says so anew.
func (s *side) withdrawn() {
	s.mu.Lock()
	over := len(s.failing) > 0
	clear(s.failing)
	s.mu.Unlock()
	if over {
		signal(s.wake)
	}
}

// current is what fails now and since when something does; nil when all is well.
func (s *side) current() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for origin, err := range s.failing {
		errs = append(errs, fmt.Errorf("%s: %w", origin, err))
	}
	return s.since, errors.Join(errs...)
}

// watch keeps the condition in step with what is said, until ctx ends.
func (s *side) watch(ctx context.Context) {
	var again <-chan time.Time // nil while all is well
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again:
		}
		again = nil
		since, err := s.current()
		if err == nil {
			s.clear("")
			continue
		}
		again = time.After(diagnoseInterval)
		p := s.diagnose(ctx, s.cluster, err)
		if ctx.Err() != nil {
			return
		}
		if _, err := s.current(); err == nil {
			again = nil
			s.clear("")
			continue
		}
		if p == nil {
			// The check goes through, and still somebody fails: shown only when it lasts, it may be a moment's trouble.
			// A refusal of one request is for the room that sent it to show; who refuses is there.
			var refusal *kerr.Error
			refused := errors.As(err, &refusal)
			if refused {
				s.clear("")
			}
			if refused || time.Since(since) < diagnoseInterval {
				s.log.Debug("requests fail though the cluster answers", slog.Any("error", err))
				continue
			}
			p = &kafka.Problem{
				Code: kafka.Unreachable, Step: kafka.StepMetadata,
				Message: fmt.Sprintf("The %s accepts connections but does not answer requests in time.", s.name),
				Remedy:  "Look at the load and the logs of the brokers.", Err: err,
			}
		}
		s.set(p)
	}
}

// set shows a problem as the side's condition.
func (s *side) set(p *kafka.Problem) {
	code := s.code(p.Code)
	if !s.board.Has(code, report.Flow) {
		s.log.Warn("cluster problem", slog.String("code", code), slog.String("step", string(p.Step)), slog.String("address", p.Address), slog.String("message", p.Message), slog.Any("error", p.Err))
	}
	ev := map[string]any{"step": string(p.Step)}
	if p.Address != "" {
		ev["address"] = p.Address
	}
	s.board.Set(report.Condition{Code: code, Severity: report.Error, Subject: report.Flow, Message: p.Message, Evidence: ev, Remedy: p.Remedy})
	s.clear(code)
}

// clear takes the side's connection conditions away, all but keep. CLUSTER_CHANGED is cleared by checkID only.
func (s *side) clear(keep string) {
	prefix, changed := s.code(""), s.code(kafka.ClusterChanged)
	s.board.ClearWhere(func(c report.Condition) bool {
		return c.Subject == report.Flow && strings.HasPrefix(c.Code, prefix) && c.Code != keep && c.Code != changed &&
			connectionCode(strings.TrimPrefix(c.Code, prefix))
	})
}

// connectionCode keeps TARGET_TOPIC_MISSING and its like out.
func connectionCode(code string) bool {
	switch kafka.ProblemCode(code) {
	case kafka.Unreachable, kafka.NotKafka, kafka.TLSFailed, kafka.AuthFailed, kafka.Forbidden, kafka.ClusterChanged:
		return true
	}
	return false
}

func (s *side) code(c kafka.ProblemCode) string { return strings.ToUpper(s.name) + "_" + string(c) }

// checkID compares the cluster's id with the one expected and keeps CLUSTER_CHANGED in step; false: it is another one.
func (s *side) checkID(expected, found string) bool {
	if expected == "" || found == "" || expected == found {
		s.board.Clear(s.code(kafka.ClusterChanged), report.Flow)
		return true
	}
	p := s.cluster.Changed(expected, found)
	s.board.Set(report.Condition{
		Code: s.code(kafka.ClusterChanged), Severity: report.Error, Subject: report.Flow, Message: p.Message, Remedy: p.Remedy,
		Evidence: map[string]any{"expected_cluster_id": expected, "found_cluster_id": found},
	})
	return false
}

// connect asks the cluster for its id until it answers or ctx ends.
func (s *side) connect(ctx context.Context) (clusterID string, err error) {
	for wait, pause := 3*time.Second, 100*time.Millisecond; ; wait, pause = min(2*wait, adminTimeout), min(2*pause, 2*time.Second) {
		id, err := s.clusterID(ctx, wait)
		if err == nil {
			s.ok("connect")
			return id, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		s.failed("connect", err)
		if !sleep(ctx, pause) {
			return "", context.Cause(ctx)
		}
	}
}

func (s *side) clusterID(ctx context.Context, wait time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := s.client.Request(ctx, req)
	if err != nil {
		return "", err
	}
	if id := resp.(*kmsg.MetadataResponse).ClusterID; id != nil {
		return *id, nil
	}
	return "", nil
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sleep waits and answers false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

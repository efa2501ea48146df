package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// channel is the one Postgres channel in use; payloads are "kind:id".
const channel = "mirrorflow"

const (
	resyncKind = "resync"
	doneKind   = "done" // a job that somebody waits for has its result; not for workers
)

const (
	// maxHints bounds what one transaction sends and what one receiver keeps; more becomes a resync.
	maxHints = 200
	// pingEvery finds out that a connection is dead though nobody said so.
	pingEvery = 5 * time.Second
	maxDelay  = 10 * time.Second
)

// notify sends hints when the transaction commits.
func notify(ctx context.Context, q *dbsqlc.Queries, hints []flows.Notification) error {
	seen := map[string]bool{}
	var payloads []string
	for _, h := range hints {
		p := h.Kind + ":" + h.ID.String()
		if !seen[p] {
			seen[p] = true
			payloads = append(payloads, p)
		}
	}
	if len(payloads) == 0 {
		return nil
	}
	if len(payloads) > maxHints {
		payloads = []string{resyncKind + ":" + uuid.Nil.String()}
	}
	return q.Notify(ctx, payloads)
}

func parseHint(payload string) (flows.Notification, bool) {
	kind, id, ok := strings.Cut(payload, ":")
	if !ok {
		return flows.Notification{}, false
	}
	parsed, err := uuid.Parse(id)
	return flows.Notification{Kind: kind, ID: parsed}, err == nil
}

// Notifications implements flows.WorkerStore. The channel is closed when ctx ends or the store is closed.
func (s *Store) Notifications(ctx context.Context) <-chan flows.Notification {
	return s.listener.subscribe(ctx, func(n flows.Notification) bool { return n.Kind != doneKind })
}

// listener owns one connection that listens, from the first subscription until close. Whenever the
// connection is new, every subscriber gets a resync, since nobody knows what was missed.
type listener struct {
	config *pgx.ConnConfig
	logger *slog.Logger

	done   chan struct{} // closed by close
	work   sync.WaitGroup
	mu     sync.Mutex
	subs   map[*subscription]struct{}
	live   bool // the connection listens
	begun  bool
	closed bool
}

func newListener(config *pgx.ConnConfig, logger *slog.Logger) *listener {
	return &listener{config: config, logger: logger, done: make(chan struct{}), subs: map[*subscription]struct{}{}}
}

// subscription collects hints until its receiver takes them.
type subscription struct {
	wants   func(flows.Notification) bool
	mu      sync.Mutex
	pending []flows.Notification
	wake    chan struct{} // buffered by one
}

func (l *listener) subscribe(ctx context.Context, wants func(flows.Notification) bool) <-chan flows.Notification {
	out := make(chan flows.Notification)
	sub := &subscription{wants: wants, wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		close(out)
		return out
	}
	l.subs[sub] = struct{}{}
	if l.live {
		// What happened before the subscription is unknown to the subscriber too.
		sub.add(flows.Notification{Kind: resyncKind})
	}
	if !l.begun {
		l.begun = true
		l.work.Go(l.run)
	}
	l.work.Go(func() {
		defer close(out)
		sub.forward(ctx, l.done, out)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, sub)
	})
	return out
}

// close ends everything and waits for it.
func (l *listener) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	l.mu.Unlock()
	l.work.Wait()
}

// add keeps a hint once; too many become a resync.
func (s *subscription) add(n flows.Notification) {
	if !s.wants(n) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.pending, n):
	case n.Kind == resyncKind || len(s.pending) >= maxHints:
		s.pending = []flows.Notification{{Kind: resyncKind}}
	case len(s.pending) == 1 && s.pending[0].Kind == resyncKind:
		// Who looks at everything needs no hint.
	default:
		s.pending = append(s.pending, n)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) take() []flows.Notification {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending
	s.pending = nil
	return p
}

func (s *subscription) forward(ctx context.Context, done <-chan struct{}, out chan<- flows.Notification) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-s.wake:
		}
		for _, n := range s.take() {
			select {
			case out <- n:
			case <-ctx.Done():
				return
			case <-done:
				return
			}
		}
	}
}

func (l *listener) publish(n flows.Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for sub := range l.subs {
		sub.add(n)
	}
}

// setLive notes whether the connection listens; when it begins to, everybody looks at everything.
func (l *listener) setLive(live bool) {
	l.mu.Lock()
	l.live = live
	l.mu.Unlock()
	if live {
		l.publish(flows.Notification{Kind: resyncKind})
	}
}

// run keeps a connection listening until close.
func (l *listener) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.work.Go(func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for attempt := 0; ctx.Err() == nil; {
		heard, err := l.listen(ctx)
		l.setLive(false)
		if ctx.Err() != nil {
			return
		}
		if heard {
			attempt = 0
		}
		attempt++
		delay := min(maxDelay, 100*time.Millisecond<<min(attempt, 10))
		delay = delay/2 + time.Duration(rand.Int64N(int64(delay/2)))
		l.logger.Warn("listening for notifications failed", slog.Any("error", err), slog.Duration("retry_in", delay))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// listen uses one connection until it fails; heard tells whether it worked at all.
func (l *listener) listen(ctx context.Context) (heard bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(ctx))
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return false, err
	}
	l.setLive(true)
	for {
		n, err := waitNotification(ctx, conn)
		switch {
		case err != nil:
			return true, err
		case n == nil:
			if err := ping(ctx, conn); err != nil {
				return true, err
			}
		default:
			hint, ok := parseHint(n.Payload)
			if !ok {
				l.logger.Warn("a notification cannot be read", slog.String("payload", n.Payload))
				hint = flows.Notification{Kind: resyncKind}
			}
			if hint.Kind == resyncKind {
				hint.ID = uuid.Nil
			}
			l.publish(hint)
		}
	}
}

// waitNotification answers nil when nothing came for a while.
func waitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil && !conn.IsClosed() {
		return nil, nil
	}
	return n, err
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	return conn.Ping(ctx)
}

package store

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// Options tune a Store; the zero value is good.
type Options struct {
	// Logger; nil discards.
	Logger *slog.Logger
	// ApplicationName is what pg_stat_activity shows; default "mirrorflow".
	ApplicationName string
	// MaxConns bounds the pool; default 16. Notifications have a connection of their own.
	MaxConns int32
	// StatementTimeout ends a statement inside Postgres; default 15 s.
	StatementTimeout time.Duration
	// OperationTimeout ends a whole call, also when the network swallows every packet; default 20 s.
	OperationTimeout time.Duration
}

// Store is the database. Safe for concurrent use; Close it when done.
type Store struct {
	pool     *pgxpool.Pool
	q        *dbsqlc.Queries
	logger   *slog.Logger
	timeout  time.Duration
	listener *listener
	// session tells this process from an earlier or another one whose worker has the same name.
	session string
}

var (
	_ flows.Store       = (*Store)(nil)
	_ flows.WorkerStore = (*Store)(nil)
)

// Open prepares a pool for the database at url. It does not wait for Postgres: a process may start
// before its database, and Ready tells whether it is there. An error means that url is wrong.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ApplicationName == "" {
		o.ApplicationName = "mirrorflow"
	}
	if o.MaxConns <= 0 {
		o.MaxConns = 16
	}
	if o.StatementTimeout <= 0 {
		o.StatementTimeout = 15 * time.Second
	}
	if o.OperationTimeout <= 0 {
		o.OperationTimeout = 20 * time.Second
	}
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx removes the password from the text of this error.
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	c.MaxConns = o.MaxConns
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	setDefaults(c.ConnConfig.RuntimeParams, map[string]string{
		"application_name":                    o.ApplicationName,
		"statement_timeout":                   strconv.FormatInt(o.StatementTimeout.Milliseconds(), 10),
		"lock_timeout":                        strconv.FormatInt(o.StatementTimeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(2*o.OperationTimeout.Milliseconds(), 10),
	})
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{
		pool: pool, q: dbsqlc.New(pool), logger: o.Logger, timeout: o.OperationTimeout,
		listener: newListener(c.ConnConfig.Copy(), o.Logger), session: uuid.NewString()[:8],
	}, nil
}

// setDefaults leaves alone what the URL sets.
func setDefaults(params, defaults map[string]string) {
	for k, v := range defaults {
		if _, ok := params[k]; !ok {
			params[k] = v
		}
	}
}

// Close ends the listener and waits for calls under way.
func (s *Store) Close() {
	s.listener.close()
	s.pool.Close()
}

// bound limits one call.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// one runs a read of one object.
func one[R, T any](ctx context.Context, s *Store, op string, read func(context.Context) (R, error), from func(R) (T, error)) (T, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	row, err := read(ctx)
	if err != nil {
		var zero T
		return zero, translate(op, err)
	}
	v, err := from(row)
	return v, translate(op, err)
}

// many runs a read of a list; the answer is never nil.
func many[R, T any](ctx context.Context, s *Store, op string, read func(context.Context) ([]R, error), from func(R) (T, error)) ([]T, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := read(ctx)
	if err != nil {
		return nil, translate(op, err)
	}
	return convert(op, rows, from)
}

func convert[R, T any](op string, rows []R, from func(R) (T, error)) ([]T, error) {
	out := make([]T, 0, len(rows))
	for _, r := range rows {
		v, err := from(r)
		if err != nil {
			return nil, translate(op, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// inTx runs fn in a transaction with a bound on the whole.
func (s *Store) inTx(ctx context.Context, op string, o pgx.TxOptions, fn func(ctx context.Context, q *dbsqlc.Queries) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return translate(op, WithTx(ctx, s.pool, o, func(ctx context.Context, tx pgx.Tx) error {
		return fn(ctx, s.q.WithTx(tx))
	}))
}

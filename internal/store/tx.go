package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// txAttempts is how often a transaction is tried that lost against another one.
const txAttempts = 5

type beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// WithTx runs fn in a transaction: committed when fn returns nil, else rolled back, also when ctx has
// ended. A transaction that failed for another one's sake (serialization, deadlock) is tried again, here and
// nowhere else; so fn must have no effect but through tx. Other errors come back as they are.
func WithTx(ctx context.Context, db beginner, o pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := tryTx(ctx, db, o, fn)
		if err == nil || attempt == txAttempts || !lostToAnother(err) {
			return err
		}
		wait := time.Duration(rand.Int64N(int64(10*time.Millisecond) << attempt))
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

func tryTx(ctx context.Context, db beginner, o pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		// A rollback must outlive the caller, or the connection would be thrown away. After a
		// commit it does nothing; what it says in other cases is less than what err says.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if rerr := tx.Rollback(ctx); rerr != nil && !errors.Is(rerr, pgx.ErrTxClosed) && err == nil {
			err = rerr
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func lostToAnother(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
)

func TestEveryConstraintOfTheSchemaHasAMeaning(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.NewDB(t))
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `SELECT conname::text FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
		WHERE c.connamespace = 'public'::regnamespace AND r.relname <> $1 AND c.contype <> 'n'`, versionTable)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	var known []string
	for name := range constraints {
		known = append(known, name)
	}
	slices.Sort(names)
	slices.Sort(known)
	require.Equal(t, names, known)
}

func TestEveryConstraintIsTranslatedAsItsMeaningSays(t *testing.T) {
	t.Parallel()
	for name, m := range constraints {
		err := translate("op", &pgconn.PgError{Code: "23505", ConstraintName: name, Message: "secret row"})
		var e *flows.Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, m.code, e.Code, name)
		require.NotEmpty(t, e.Message, name)
		require.NotContains(t, e.Message, "secret row")
		if m.code == flows.CodeInternal {
			require.Equal(t, meaning{code: flows.CodeInternal}, m, name)
			continue
		}
		require.Equal(t, m.message, e.Message, name)
		if m.pointer != "" {
			require.Equal(t, []flows.FieldError{{Pointer: m.pointer, Message: m.message}}, e.Fields, name)
		}
	}
}

func TestDatabaseErrorsGetTheDomainsCodes(t *testing.T) {
	t.Parallel()
	pg := func(state string) error { return fmt.Errorf("run: %w", &pgconn.PgError{Code: state}) }
	for _, c := range []struct {
		err  error
		code flows.Code
	}{
		{nil, ""},
		{pgx.ErrNoRows, flows.CodeNotFound},
		{pg("23505"), flows.CodeInternal}, // a constraint without a name that is known
		{pg("22021"), flows.CodeInvalid},
		{pg("22P05"), flows.CodeInvalid},
		{pg("08006"), flows.CodeUnavailable},
		{pg("42P01"), flows.CodeUnavailable},
		{pg("42703"), flows.CodeUnavailable},
		{pg("3D000"), flows.CodeUnavailable},
		{pg("28P01"), flows.CodeUnavailable},
		{pg("40001"), flows.CodeUnavailable},
		{pg("40P01"), flows.CodeUnavailable},
		{pg("53300"), flows.CodeUnavailable},
		{pg("55P03"), flows.CodeUnavailable},
		{pg("57014"), flows.CodeUnavailable},
		{pg("57P01"), flows.CodeUnavailable},
		{pg("57P03"), flows.CodeUnavailable},
		{pg("25006"), flows.CodeUnavailable},
		{pg("25P03"), flows.CodeUnavailable},
		{pg("42601"), flows.CodeInternal},
		{context.Canceled, flows.CodeUnavailable},
		{context.DeadlineExceeded, flows.CodeUnavailable},
		{io.ErrUnexpectedEOF, flows.CodeUnavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, flows.CodeUnavailable},
		{errors.New("cannot scan"), flows.CodeInternal},
		{&flows.Error{Code: flows.CodeConflict}, flows.CodeConflict},
		{fmt.Errorf("x: %w", &flows.Error{Code: flows.CodeLeaseLost}), flows.CodeLeaseLost},
	} {
		err := translate("op", c.err)
		require.Equal(t, c.code, flows.CodeOf(err), "%v", c.err)
		var e *flows.Error
		if errors.As(err, &e) && c.code == flows.CodeUnavailable {
			require.Positive(t, e.RetryAfter)
			require.ErrorIs(t, err, c.err)
		}
	}
}

func TestTransactionsThatLoseAgainstOthersAreTriedAgain(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.NewDB(t), Options{})
	require.NoError(t, err)
	defer s.Close()
	for state, attempts := range map[string]int{"40001": txAttempts, "40P01": txAttempts, "23505": 1} {
		n := 0
		err := WithTx(t.Context(), s.pool, pgx.TxOptions{}, func(context.Context, pgx.Tx) error {
			n++
			return &pgconn.PgError{Code: state}
		})
		require.Error(t, err)
		require.Equal(t, attempts, n, state)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = WithTx(ctx, s.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO projects (id, name) VALUES (gen_random_uuid(), 'gone')")
		cancel()
		return errors.Join(err, ctx.Err())
	})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.ProjectByName(t.Context(), "gone")
	require.Equal(t, flows.CodeNotFound, flows.CodeOf(err))
	require.Zero(t, s.pool.Stat().AcquiredConns())
}

func TestStorableReplacesOnlyTheEscapeOfNUL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``:                       ``,
		`"a"`:                    `"a"`,
		`"a\u0000b"`:             `"a\ufffdb"`,
		`"\\u0000"`:              `"\\u0000"`,
		`"\\\u0000"`:             `"\\\ufffd"`,
		`"\u0000\u0000"`:         `"\ufffd\ufffd"`,
		`"\u00001\n\u0001\u000"`: `"\ufffd1\n\u0001\u000"`,
		`"\`:                     `"\`,
	} {
		require.Equal(t, want, string(storable([]byte(in))), in)
	}
	require.Equal(t, strings.Repeat("x", 3)+"\uFFFD", plain("xxx\x00"))
}

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/migrations"
)

// Migrate brings the schema of the database at url to the version of this program. Any number of
// processes may do it at once: one works while the others wait at a lock in Postgres.
func Migrate(ctx context.Context, url string) error {
	return withProvider(url, func(p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate the database: %w", err)
		}
		return nil
	})
}

// MigrateTo brings the schema to a version, up or down; 0 removes everything.
func MigrateTo(ctx context.Context, url string, version int64) error {
	return withProvider(url, func(p *goose.Provider) error {
		current, err := p.GetDBVersion(ctx)
		if err != nil {
			return fmt.Errorf("read the schema version: %w", err)
		}
		if version > current {
			_, err = p.UpTo(ctx, version)
		} else {
			_, err = p.DownTo(ctx, version)
		}
		if err != nil {
			return fmt.Errorf("migrate the database to version %d: %w", version, err)
		}
		return nil
	})
}

func withProvider(url string, fn func(*goose.Provider) error) (err error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	// Migrations may take as long as they need.
	setDefaults(c.RuntimeParams, map[string]string{"application_name": "mirrorflow-migrate", "statement_timeout": "0"})
	db := stdlib.OpenDB(*c)
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := provider(db)
	if err != nil {
		return err
	}
	return fn(p)
}

func provider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return nil, fmt.Errorf("prepare the migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithSessionLocker(locker), goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}

const versionTable = "schema_versions"

// schemaVersion is the version that this program needs: the number of its last migration file.
var schemaVersion = func() int64 {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(files) == 0 {
		panic("store: no migrations are embedded")
	}
	version, err := goose.NumericComponent(slices.Max(files))
	if err != nil {
		panic("store: a migration without a number is embedded: " + err.Error())
	}
	return version
}()

// Ready implements flows.Store.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var version int64
	err := s.pool.QueryRow(ctx, "SELECT COALESCE(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&version)
	if err != nil {
		if e := translate("read the schema version", err); flows.CodeOf(e) == flows.CodeUnavailable {
			return e
		}
		return &flows.Error{Code: flows.CodeUnavailable, Message: "the database has no schema yet: run mirrorctl migrate", Err: err}
	}
	if version < schemaVersion {
		return &flows.Error{Code: flows.CodeUnavailable, Message: fmt.Sprintf(
			"the database's schema is version %d and this program needs %d: run mirrorctl migrate", version, schemaVersion)}
	}
	return nil
}

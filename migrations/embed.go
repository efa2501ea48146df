// Package migrations holds the database schema as goose SQL files and embeds
// them, since an embedded file cannot lie outside its package's directory.
//
// It owns the schema's history: a released file is never edited, a change is a
// new file NNNNN_verb_noun.sql with both directions. It must never hold Go
// migrations or data of a particular installation. Start at
// 00001_create_schema.sql; internal/store applies the files.
package migrations

import "embed"

// FS holds the migration files at its root.
//
//go:embed *.sql
var FS embed.FS

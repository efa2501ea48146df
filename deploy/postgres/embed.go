// Package postgres embeds the script that finds or installs a Postgres server's programs, so that tests and development
// tools can use it wherever they are run from. It holds files only; internal/dev/pgproc uses them.
// It must never be imported by the product's binaries. Start with ensure.sh.
package postgres

import "embed"

// Files holds ensure.sh.
//
//go:embed ensure.sh
var Files embed.FS

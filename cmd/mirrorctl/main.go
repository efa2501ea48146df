// Command mirrorctl is the operator's tool: schema, projects, tokens, keys and
// a look at all flows. It talks to Postgres (MIRRORFLOW_DATABASE_URL), not to
// the API.
//
// It must never print a secret other than the one it was asked to make. Start
// at cli.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/mirrorflow/mirrorflow/internal/config"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
	"github.com/mirrorflow/mirrorflow/internal/obs"
	"github.com/mirrorflow/mirrorflow/internal/store"
)

// cli is the command line.
type cli struct {
	Migrate migrateCmd `cmd:"" help:"Bring the database's schema to this version (the API does it at start, too)."`
	Project struct {
		Create projectCreateCmd `cmd:"" help:"Make a project."`
		List   projectListCmd   `cmd:"" help:"List projects."`
	} `cmd:"" help:"Projects."`
	Token struct {
		Create tokenCreateCmd `cmd:"" help:"Make a token and print it, once. The project is made when it is missing."`
		List   tokenListCmd   `cmd:"" help:"List a project's tokens, without their texts, which nobody knows."`
		Delete tokenDeleteCmd `cmd:"" help:"Delete a token; nobody can use it from then on."`
	} `cmd:"" help:"API tokens."`
	Keys struct {
		New keysNewCmd `cmd:"" help:"Make a key pair for secrets."`
	} `cmd:"" help:"Keys that seal the credentials of clusters."`
	Status  statusCmd  `cmd:"" help:"List all flows with their states."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// app is what commands work with.
type app struct {
	ctx context.Context //nolint:containedctx // one command is one call
	out io.Writer
	env []string
}

// withStore runs f with the database.
func (a *app) withStore(f func(*store.Store) error) error {
	cfg, err := config.LoadCtl(a.env)
	if err != nil {
		return err
	}
	db, err := store.Open(a.ctx, cfg.DatabaseURL, store.Options{ApplicationName: "mirrorctl", MaxConns: 2})
	if err != nil {
		return err
	}
	defer db.Close()
	return f(db)
}

func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

type versionCmd struct{}

// Run implements the command.
func (versionCmd) Run(a *app) error { return a.print("mirrorctl %s\n", obs.ReadBuild().Version) }

type migrateCmd struct{}

// Run implements the command.
func (migrateCmd) Run(a *app) error {
	cfg, err := config.LoadCtl(a.env)
	if err != nil {
		return err
	}
	if err := store.Migrate(a.ctx, cfg.DatabaseURL); err != nil {
		return err
	}
	return a.print("the schema is up to date\n")
}

func main() {
	ctx, stop := lifecycle.Notify(context.Background())
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and answers the exit code: 0, 1 when the
// command failed, 2 when the command line is wrong.
func run(ctx context.Context, args, env []string, out, errOut io.Writer) int {
	var c cli
	exit := -1
	k, err := kong.New(&c, kong.Name("mirrorctl"), kong.Writers(out, errOut), kong.Exit(func(code int) { exit = code }),
		kong.Description("Operates mirrorflow. The database is named by "+config.Prefix+"DATABASE_URL."))
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	parsed, err := k.Parse(args)
	if exit >= 0 {
		return exit // --help
	}
	code := 2
	if err == nil {
		code = 1
		err = parsed.Run(&app{ctx: ctx, out: out, env: env})
	}
	if err != nil {
		fmt.Fprintf(errOut, "mirrorctl: %s\n", explain(err))
		return code
	}
	return 0
}

// explain is an error for the person at the terminal: what they did wrong in a
// sentence, and everything else with its cause, since they operate the database.
func explain(err error) string {
	var e *flows.Error
	if !errors.As(err, &e) || e.Code == flows.CodeInternal || e.Code == flows.CodeUnavailable {
		return err.Error()
	}
	return e.Message
}

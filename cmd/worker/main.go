// Command mirrorflow-worker runs replication flows: it takes leases from
// Postgres and copies records between Kafka clusters.
//
// It owns wiring only: configuration, keys, supervisor, health endpoints.
// Settings are environment variables (docs/config.md). Start at run.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/mirrorflow/mirrorflow/internal/config"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
	"github.com/mirrorflow/mirrorflow/internal/obs"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/worker"
)

// gcPercent is GOGC where the environment does not say: most of the heap are buffers that are used again, and those that
// are not should not stay for long.
const gcPercent = 50

// process is the name in logs and in Postgres' list of connections.
const process = "mirrorflow-worker"

func main() {
	version := flag.Bool("version", false, "print the version and exit")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), process+" runs replication flows. Its settings are environment variables, see docs/config.md.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *version {
		fmt.Println(process, obs.ReadBuild().Version)
		return
	}
	cfg, warnings, err := config.LoadWorker(os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: wrong configuration:\n%v\n", process, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := obs.NewLogger(os.Stderr, cfg.LogLevel, process)
	obs.LogStart(log, warnings)
	ctx, stop := lifecycle.Notify(context.Background())
	defer stop()
	if err := run(ctx, cfg, log); err != nil {
		log.Error("stopped", slog.Any("error", err))
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
	log.Info("stopped")
}

func run(ctx context.Context, cfg config.Worker, log *slog.Logger) error {
	opener, err := secrets.LoadOpener(cfg.SecretPrivateKeysFile, log)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, cfg.DatabaseURL, store.Options{Logger: log, ApplicationName: process})
	if err != nil {
		return err
	}
	// Last: leases are released through it.
	defer db.Close()

	go lifecycle.AdjustProcs(ctx)
	registry := obs.NewRegistry()
	supervisor, err := worker.New(worker.Config{
		ID: cfg.WorkerID, TTL: cfg.LeaseTTL, DrainTimeout: cfg.DrainTimeout,
		Store: db, Opener: opener, PassThrough: cfg.DataPath == config.DataPathBatches,
		MaxBytesInFlight: cfg.MaxBytesInFlight, Rack: cfg.Rack, Logger: log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	// Health and metrics come first and go last, so that a draining worker can be watched. Nobody
	// waits for their requests: the time is the tasks'.
	return lifecycle.Run(ctx, log,
		lifecycle.Server("worker", cfg.WorkerListen, obs.Endpoints(registry, supervisor.Ready, log), 0, log),
		lifecycle.Component{Name: "supervisor", Run: func(ctx context.Context, ready func()) error {
			ready()
			return supervisor.Run(ctx)
		}},
	)
}

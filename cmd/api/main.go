// Command mirrorflow-api serves the HTTP API over Postgres.
//
// It owns wiring only: configuration, schema, first token, server. It never
// touches a Kafka cluster; workers do. Settings are environment variables
// (docs/config.md). Start at run.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/config"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	httpapi "github.com/mirrorflow/mirrorflow/internal/http"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
	"github.com/mirrorflow/mirrorflow/internal/obs"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
	"github.com/mirrorflow/mirrorflow/internal/store"
)

// process is the name in logs and in Postgres' list of connections.
const process = "mirrorflow-api"

// databaseWait is how long a starting API waits for Postgres, which may start at the same time.
const databaseWait = 2 * time.Minute

func main() {
	version := flag.Bool("version", false, "print the version and exit")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), process+" serves the HTTP API. Its settings are environment variables, see docs/config.md.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *version {
		fmt.Println(process, obs.ReadBuild().Version)
		return
	}
	cfg, warnings, err := config.LoadAPI(os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: wrong configuration:\n%v\n", process, err)
		os.Exit(2)
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

func run(ctx context.Context, cfg config.API, log *slog.Logger) error {
	sealer, err := secrets.LoadSealer(cfg.SecretPublicKeysFile)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, cfg.DatabaseURL, store.Options{Logger: log, ApplicationName: process})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := prepare(ctx, cfg, db, log); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it waited
		}
		return err
	}

	registry := obs.NewRegistry()
	metrics := obs.Metrics(registry, log)
	manager := flows.NewManager(flows.ManagerConfig{Store: db, Sealer: sealer, Logger: log})
	apiCfg := httpapi.Config{API: manager, Auth: httpapi.AuthMode(cfg.Auth), Logger: log, Registerer: registry, Metrics: metrics}
	if cfg.MetricsListen != "" {
		apiCfg.Metrics = nil
	}
	// The API comes first: scripts wait for the first line "listening".
	components := []lifecycle.Component{lifecycle.Server("api", cfg.Listen, httpapi.New(apiCfg), cfg.DrainTimeout, log)}
	if cfg.MetricsListen != "" {
		h := obs.Endpoints(registry, manager.Ready, log)
		components = append(components, lifecycle.Server("metrics", cfg.MetricsListen, h, cfg.DrainTimeout, log))
	}
	return lifecycle.Run(ctx, log, components...)
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/config"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
	"github.com/mirrorflow/mirrorflow/internal/store"
)

// bootstrapName is the name of the token that comes from the bootstrap file.
const bootstrapName = "bootstrap"

// minBootstrapToken is the least length of a token that somebody chose.
const minBootstrapToken = 16

// prepare brings the database to the state that the API needs: schema, default
// project, bootstrap token. It waits for Postgres, up to databaseWait.
func prepare(ctx context.Context, cfg config.API, db *store.Store, log *slog.Logger) error {
	deadline := time.Now().Add(databaseWait)
	backoff := lifecycle.Backoff{Base: 200 * time.Millisecond, Max: 3 * time.Second}
	for {
		err := store.Migrate(ctx, cfg.DatabaseURL)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return err
		}
		log.Warn("schema not brought up to date, trying again", slog.Any("error", err))
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
	project, err := db.EnsureDefaultProject(ctx)
	if err != nil {
		return err
	}
	if cfg.BootstrapTokenFile == "" {
		return nil
	}
	text, err := readToken(cfg.BootstrapTokenFile)
	if err != nil {
		return fmt.Errorf("%sBOOTSTRAP_TOKEN_FILE: %w", config.Prefix, err)
	}
	return bootstrap(ctx, db, project, text, log)
}

// readToken reads a token's text. Errors do not quote it.
func readToken(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(raw))
	switch {
	case len(text) < minBootstrapToken:
		return "", fmt.Errorf("%s: the token must have at least %d characters", path, minBootstrapToken)
	case len(text) > 512, strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s: the token must be one word of at most 512 printable ASCII characters", path)
	}
	return text, nil
}

// bootstrap makes text a token of the project, and takes back the bootstrap
// tokens of earlier contents of the file: changing the file changes the token.
func bootstrap(ctx context.Context, db *store.Store, project flows.Project, text string, log *slog.Logger) error {
	hash := flows.HashToken(text)
	tokens, err := db.ListTokens(ctx, project.ID)
	if err != nil {
		return err
	}
	known := false
	for _, t := range tokens {
		switch {
		case t.Hash == hash:
			known = true
		case t.Name == bootstrapName:
			if err := db.DeleteToken(ctx, project.ID, t.ID); err != nil && flows.CodeOf(err) != flows.CodeNotFound {
				return err
			}
			log.Info("former bootstrap token removed", slog.String("token_id", t.ID.String()))
		}
	}
	if known {
		return nil
	}
	t, err := db.AddToken(ctx, project.ID, bootstrapName, text)
	if flows.CodeOf(err) == flows.CodeConflict {
		// Another API did the same at this moment, or the text is a token of another project.
		if p, err := db.ProjectByToken(ctx, hash); err == nil && p.ID == project.ID {
			return nil
		}
		return fmt.Errorf("%sBOOTSTRAP_TOKEN_FILE: the token belongs to another project", config.Prefix)
	}
	if err != nil {
		return err
	}
	log.Info("bootstrap token added", slog.String("token_id", t.ID.String()), slog.String("project", project.Name))
	return nil
}

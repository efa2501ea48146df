package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// CreateProject makes a project; CodeConflict when there is one of this name.
func (s *Store) CreateProject(ctx context.Context, name string) (flows.Project, error) {
	return one(ctx, s, "create a project", func(ctx context.Context) (dbsqlc.Project, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return dbsqlc.Project{}, err
		}
		return s.q.InsertProject(ctx, dbsqlc.InsertProjectParams{ID: id, Name: name})
	}, fromDBProject)
}

// EnsureDefaultProject returns the project that MIRRORFLOW_AUTH=none acts in, made when it is not there.
func (s *Store) EnsureDefaultProject(ctx context.Context) (flows.Project, error) {
	return s.EnsureProject(ctx, flows.DefaultProject)
}

// EnsureProject returns the project of this name, made when it is not there.
func (s *Store) EnsureProject(ctx context.Context, name string) (flows.Project, error) {
	return one(ctx, s, "ensure a project", func(ctx context.Context) (dbsqlc.Project, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return dbsqlc.Project{}, err
		}
		return s.q.EnsureProject(ctx, dbsqlc.EnsureProjectParams{ID: id, Name: name})
	}, fromDBProject)
}

// ListProjects lists all projects by name.
func (s *Store) ListProjects(ctx context.Context) ([]flows.Project, error) {
	return many(ctx, s, "list projects", s.q.ListProjects, fromDBProject)
}

// ProjectByName implements flows.Store.
func (s *Store) ProjectByName(ctx context.Context, name string) (flows.Project, error) {
	return one(ctx, s, "find a project", func(ctx context.Context) (dbsqlc.Project, error) {
		r, err := s.q.ProjectByName(ctx, name)
		return r, missing(err, "project", name)
	}, fromDBProject)
}

// ProjectByToken implements flows.Store.
func (s *Store) ProjectByToken(ctx context.Context, hash [32]byte) (flows.Project, error) {
	return one(ctx, s, "find a token", func(ctx context.Context) (dbsqlc.Project, error) {
		r, err := s.q.ProjectByToken(ctx, hash[:])
		if errors.Is(err, pgx.ErrNoRows) {
			err = &flows.Error{Code: flows.CodeUnauthenticated, Message: "this token is not known"}
		}
		return r, err
	}, fromDBProject)
}

// CreateToken makes a token for a project. The text is not stored: it can be told once, here.
func (s *Store) CreateToken(ctx context.Context, project uuid.UUID, name string) (t flows.Token, text string, err error) {
	text = flows.NewTokenText()
	t, err = s.AddToken(ctx, project, name, text)
	if err != nil {
		return flows.Token{}, "", err
	}
	return t, text, nil
}

// AddToken stores a token whose text somebody else chose (a bootstrap file). The text must be hard to guess.
func (s *Store) AddToken(ctx context.Context, project uuid.UUID, name, text string) (flows.Token, error) {
	hash := flows.HashToken(text)
	return one(ctx, s, "create a token", func(ctx context.Context) (dbsqlc.Token, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return dbsqlc.Token{}, err
		}
		return s.q.InsertToken(ctx, dbsqlc.InsertTokenParams{ID: id, ProjectID: project, Name: name, Hash: hash[:]})
	}, fromDBToken)
}

// ListTokens lists a project's tokens, the oldest first.
func (s *Store) ListTokens(ctx context.Context, project uuid.UUID) ([]flows.Token, error) {
	return many(ctx, s, "list tokens", func(ctx context.Context) ([]dbsqlc.Token, error) {
		return s.q.ListTokens(ctx, project)
	}, fromDBToken)
}

// DeleteToken removes a token; from then on nobody can use it.
func (s *Store) DeleteToken(ctx context.Context, project, id uuid.UUID) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	n, err := s.q.DeleteToken(ctx, dbsqlc.DeleteTokenParams{ProjectID: project, ID: id})
	if err == nil && n == 0 {
		err = missing(pgx.ErrNoRows, "token", id.String())
	}
	return translate("delete a token", err)
}

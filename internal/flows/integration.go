package flows

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// IntegrationType is the only type of integration there is.
const IntegrationType = string(EngineKafkaMirrorMaker)

// GetIntegration implements API.
func (m *Manager) GetIntegration(ctx context.Context, project, id uuid.UUID) (Integration, error) {
	return m.store.GetIntegration(ctx, project, id)
}

// ListIntegrations implements API.
func (m *Manager) ListIntegrations(ctx context.Context, project uuid.UUID, f IntegrationFilter, p Page) (List[Integration], error) {
	return pageOf(p, func(i Integration) uuid.UUID { return i.ID }, func(after uuid.UUID, limit int) ([]Integration, error) {
		return m.store.ListIntegrations(ctx, project, f, after, limit)
	})
}

// CreateIntegration implements API.
func (m *Manager) CreateIntegration(ctx context.Context, project uuid.UUID, in IntegrationInput) (Integration, error) {
	var f fieldErrors
	if in.Type == "" {
		in.Type = IntegrationType
	}
	if in.Type != IntegrationType {
		f.addf("/type", "must be %s", IntegrationType)
	}
	validateParameters(&f, in.Parameters)
	id, err := newID()
	if err != nil {
		return Integration{}, err
	}
	var out Integration
	err = m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		f := f[:len(f):len(f)] // this may run more than once
		if err := checkEnd(ctx, tx, &f, "/sourceServiceId", in.SourceServiceID, EngineKafka); err != nil {
			return err
		}
		if err := checkEnd(ctx, tx, &f, "/destinationServiceId", in.DestinationServiceID, EngineKafkaMirrorMaker); err != nil {
			return err
		}
		if err := f.err(); err != nil {
			return err
		}
		existing, err := tx.IntegrationBetween(ctx, in.SourceServiceID, in.DestinationServiceID)
		if err != nil {
			return err
		}
		if existing != uuid.Nil {
			return &Error{Code: CodeConflict, Message: fmt.Sprintf("integration %s binds these two services already; use it", existing)}
		}
		out, err = tx.InsertIntegration(ctx, Integration{
			ID: id, ProjectID: project, Type: in.Type, SourceServiceID: in.SourceServiceID,
			DestinationServiceID: in.DestinationServiceID, Parameters: in.Parameters, Status: StatusReady,
		})
		return err
	})
	return out, err
}

// checkEnd makes sure that an integration's end is a service with the right engine.
func checkEnd(ctx context.Context, tx Tx, f *fieldErrors, pointer string, id uuid.UUID, engine Engine) error {
	if id == uuid.Nil {
		f.addf(pointer, "is required")
		return nil
	}
	s, err := tx.GetService(ctx, id)
	switch {
	case CodeOf(err) == CodeNotFound:
		f.addf(pointer, "there is no service %s", id)
		return nil
	case err != nil:
		return err
	case s.Engine != engine:
		f.addf(pointer, "service %s has engine %s; this end needs %s", id, s.Engine, engine)
	}
	return nil
}

func validateParameters(f *fieldErrors, parameters map[string]string) {
	if len(parameters) > 64 {
		f.addf("/parameters", "must have at most 64 members")
		return
	}
	for _, k := range sortedStringKeys(parameters) {
		pointer := "/parameters/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
		f.text(pointer, k, 128)
		f.text(pointer, parameters[k], 4096)
	}
}

// DeleteIntegration implements API.
func (m *Manager) DeleteIntegration(ctx context.Context, project, id uuid.UUID) error {
	return m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		if _, err := tx.GetIntegration(ctx, id); err != nil {
			return err
		}
		used, err := tx.FlowsOfIntegration(ctx, id)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return &Error{Code: CodeConflict, Message: "the integration is used by " + named("flow", used)}
		}
		return tx.DeleteIntegration(ctx, id)
	})
}

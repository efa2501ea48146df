package httpapi

import (
	"context"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// ListIntegrations answers a page of integrations.
func (h *handlers) ListIntegrations(ctx context.Context, r apigen.ListIntegrationsRequestObject) (apigen.ListIntegrationsResponseObject, error) {
	filter := flows.IntegrationFilter{ServiceID: value(r.Params.ServiceId)}
	page, err := h.api.ListIntegrations(ctx, infoFrom(ctx).project.ID, filter, FromAPIPage(r.Params.Limit, r.Params.Cursor))
	if err != nil {
		return nil, listError(err)
	}
	return apigen.ListIntegrations200JSONResponse{Items: each(page.Items, ToAPIIntegration), NextCursor: nextCursor(page.Next)}, nil
}

// CreateIntegration binds two services.
func (h *handlers) CreateIntegration(ctx context.Context, r apigen.CreateIntegrationRequestObject) (apigen.CreateIntegrationResponseObject, error) {
	i, err := h.api.CreateIntegration(ctx, infoFrom(ctx).project.ID, FromAPIIntegrationCreate(*r.Body))
	if err != nil {
		return nil, err
	}
	location := "/integrations/" + i.ID.String()
	return apigen.CreateIntegration201JSONResponse{
		Body: ToAPIIntegration(i), Headers: apigen.CreateIntegration201ResponseHeaders{Location: &location},
	}, nil
}

// GetIntegration answers an integration.
func (h *handlers) GetIntegration(ctx context.Context, r apigen.GetIntegrationRequestObject) (apigen.GetIntegrationResponseObject, error) {
	i, err := h.api.GetIntegration(ctx, infoFrom(ctx).project.ID, r.Id)
	if err != nil {
		return nil, err
	}
	return apigen.GetIntegration200JSONResponse(ToAPIIntegration(i)), nil
}

// DeleteIntegration removes an integration that no flow uses.
func (h *handlers) DeleteIntegration(ctx context.Context, r apigen.DeleteIntegrationRequestObject) (apigen.DeleteIntegrationResponseObject, error) {
	if err := h.api.DeleteIntegration(ctx, infoFrom(ctx).project.ID, r.Id); err != nil {
		return nil, err
	}
	return apigen.DeleteIntegration204Response{}, nil
}

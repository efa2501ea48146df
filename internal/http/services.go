package httpapi

import (
	"context"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// ListServices answers a page of services.
func (h *handlers) ListServices(ctx context.Context, r apigen.ListServicesRequestObject) (apigen.ListServicesResponseObject, error) {
	filter := flows.ServiceFilter{Engine: flows.Engine(value(r.Params.Engine))}
	page, err := h.api.ListServices(ctx, infoFrom(ctx).project.ID, filter, FromAPIPage(r.Params.Limit, r.Params.Cursor))
	if err != nil {
		return nil, listError(err)
	}
	items := make([]apigen.Service, 0, len(page.Items))
	for _, s := range page.Items {
		shown, err := ToAPIService(s)
		if err != nil {
			return nil, err
		}
		items = append(items, shown)
	}
	return apigen.ListServices200JSONResponse{Items: items, NextCursor: nextCursor(page.Next)}, nil
}

// CreateService registers a cluster or makes a MirrorMaker service.
func (h *handlers) CreateService(ctx context.Context, r apigen.CreateServiceRequestObject) (apigen.CreateServiceResponseObject, error) {
	s, err := h.api.CreateService(ctx, infoFrom(ctx).project.ID, FromAPIServiceCreate(*r.Body), value(r.Params.Force))
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIService(s)
	if err != nil {
		return nil, err
	}
	location := "/services/" + s.ID.String()
	return apigen.CreateService201JSONResponse{
		Body: shown, Headers: apigen.CreateService201ResponseHeaders{ETag: etag(s.Revision), Location: &location},
	}, nil
}

// GetService answers a service.
func (h *handlers) GetService(ctx context.Context, r apigen.GetServiceRequestObject) (apigen.GetServiceResponseObject, error) {
	s, err := h.api.GetService(ctx, infoFrom(ctx).project.ID, r.Id)
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIService(s)
	if err != nil {
		return nil, err
	}
	return apigen.GetService200JSONResponse{Body: shown, Headers: apigen.GetService200ResponseHeaders{ETag: etag(s.Revision)}}, nil
}

// UpdateService replaces a service.
func (h *handlers) UpdateService(ctx context.Context, r apigen.UpdateServiceRequestObject) (apigen.UpdateServiceResponseObject, error) {
	project := infoFrom(ctx).project.ID
	stored, err := h.api.GetService(ctx, project, r.Id)
	if err != nil {
		return nil, err
	}
	revision, _, err := matchRevision(r.Params.IfMatch, stored.Revision)
	if err != nil {
		return nil, err
	}
	if err := checkServiceUnchanged(stored, sentBody(ctx)); err != nil {
		return nil, err
	}
	s, err := h.api.UpdateService(ctx, project, r.Id, FromAPIServiceUpdate(stored, *r.Body), revision, value(r.Params.Force))
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIService(s)
	if err != nil {
		return nil, err
	}
	return apigen.UpdateService200JSONResponse{Body: shown, Headers: apigen.UpdateService200ResponseHeaders{ETag: etag(s.Revision)}}, nil
}

// PatchService applies a merge patch to what GET shows and goes on as PUT does.
func (h *handlers) PatchService(ctx context.Context, r apigen.PatchServiceRequestObject) (apigen.PatchServiceResponseObject, error) {
	project := infoFrom(ctx).project.ID
	patch := sentBody(ctx)
	s, err := retryStale(ctx, func() (none flows.Service, asked bool, err error) {
		stored, err := h.api.GetService(ctx, project, r.Id)
		if err != nil {
			return none, true, err
		}
		_, asked, err = matchRevision(r.Params.IfMatch, stored.Revision)
		if err != nil {
			return none, asked, err
		}
		shown, err := ToAPIService(stored)
		if err != nil {
			return none, asked, err
		}
		tree, err := asTree(shown)
		if err != nil {
			return none, asked, err
		}
		merged, _ := mergePatch(tree, patch).(map[string]any)
		keepSecretNulls(merged, patch)
		if err := h.checkAgainst("ServiceUpdate", merged); err != nil {
			return none, asked, err
		}
		if err := checkServiceUnchanged(stored, merged); err != nil {
			return none, asked, err
		}
		body, err := fromTree[apigen.ServiceUpdate](merged)
		if err != nil {
			return none, asked, err
		}
		// Always against what was read: the merge is of that revision.
		out, err := h.api.UpdateService(ctx, project, r.Id, FromAPIServiceUpdate(stored, body), stored.Revision, value(r.Params.Force))
		return out, asked, err
	})
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIService(s)
	if err != nil {
		return nil, err
	}
	return apigen.PatchService200JSONResponse{Body: shown, Headers: apigen.PatchService200ResponseHeaders{ETag: etag(s.Revision)}}, nil
}

// DeleteService removes a service that nothing uses.
func (h *handlers) DeleteService(ctx context.Context, r apigen.DeleteServiceRequestObject) (apigen.DeleteServiceResponseObject, error) {
	project, revision := infoFrom(ctx).project.ID, flows.AnyRevision
	if r.Params.IfMatch != nil {
		stored, err := h.api.GetService(ctx, project, r.Id)
		if err != nil {
			return nil, err
		}
		if revision, _, err = matchRevision(r.Params.IfMatch, stored.Revision); err != nil {
			return nil, err
		}
	}
	if err := h.api.DeleteService(ctx, project, r.Id, revision); err != nil {
		return nil, err
	}
	return apigen.DeleteService204Response{}, nil
}

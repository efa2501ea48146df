package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// ovhVoid is the answer to a removal: 200 with null, which every OVHcloud client can read.
type ovhVoid struct{}

func (ovhVoid) visit(w http.ResponseWriter) error {
	writeJSON(w, http.StatusOK, "application/json", nil)
	return nil
}

// VisitOvhDeleteMirrorMakerResponse implements apigen.OvhDeleteMirrorMakerResponseObject.
func (v ovhVoid) VisitOvhDeleteMirrorMakerResponse(w http.ResponseWriter) error { return v.visit(w) }

// VisitOvhDeleteIntegrationResponse implements apigen.OvhDeleteIntegrationResponseObject.
func (v ovhVoid) VisitOvhDeleteIntegrationResponse(w http.ResponseWriter) error { return v.visit(w) }

// VisitOvhDeleteReplicationResponse implements apigen.OvhDeleteReplicationResponseObject.
func (v ovhVoid) VisitOvhDeleteReplicationResponse(w http.ResponseWriter) error { return v.visit(w) }

// paging is what the X-Pagination headers of a list ask for.
type paging struct {
	objects      bool
	number, size int
}

func pagingOf(mode *apigen.PaginationMode, number *apigen.PaginationNumber, size *apigen.PaginationSize) paging {
	return paging{objects: value(mode) == "CachedObjectList-Pages", number: max(1, int(value(number))), size: int(value(size))}
}

// cut returns one page of all, and the headers that go with it.
func cut[T any](p paging, all []T) ([]T, *int, *int, *int) {
	elements, size := len(all), p.size
	if size == 0 {
		size = max(1, elements)
	}
	from := min(elements, (p.number-1)*size)
	return all[from:min(elements, from+size)], &elements, &p.number, &size
}

// everything reads all pages of a list: OVHcloud's lists of ids have no paging.
func everything[T any](read func(flows.Page) (flows.List[T], error)) ([]T, error) {
	all := []T{}
	page := flows.Page{Limit: 1000}
	for {
		l, err := read(page)
		if err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if l.Next == "" {
			return all, nil
		}
		page.Cursor = l.Next
	}
}

func ids[T any](all []T, id func(T) uuid.UUID) apigen.OvhIdList {
	return each(all, id)
}

// service reads a service of one of the engines; any other is not there.
func (h *handlers) service(ctx context.Context, id uuid.UUID, engines ...flows.Engine) (flows.Service, error) {
	s, err := h.api.GetService(ctx, infoFrom(ctx).project.ID, id)
	if err == nil {
		for _, e := range engines {
			if s.Engine == e {
				return s, nil
			}
		}
	}
	if err == nil || flows.CodeOf(err) == flows.CodeNotFound {
		return s, notFound("Client::NotFound::ServiceNotFound", "Service "+id.String()+" does not exist")
	}
	return s, err
}

// OvhGetTime answers the clock; clients sign with it.
func (h *handlers) OvhGetTime(context.Context, apigen.OvhGetTimeRequestObject) (apigen.OvhGetTimeResponseObject, error) {
	return apigen.OvhGetTime200JSONResponse(h.cfg.Now().Unix()), nil
}

// OvhGetAuthDetails answers who asks.
func (h *handlers) OvhGetAuthDetails(ctx context.Context, _ apigen.OvhGetAuthDetailsRequestObject) (apigen.OvhGetAuthDetailsResponseObject, error) {
	return apigen.OvhGetAuthDetails200JSONResponse(ToAPIOvhAuthDetails(infoFrom(ctx).project)), nil
}

// OvhListProjects answers the token's project.
func (h *handlers) OvhListProjects(ctx context.Context, _ apigen.OvhListProjectsRequestObject) (apigen.OvhListProjectsResponseObject, error) {
	return apigen.OvhListProjects200JSONResponse{infoFrom(ctx).project.Name}, nil
}

// OvhGetProject answers the token's project; admit has seen to the name.
func (h *handlers) OvhGetProject(ctx context.Context, _ apigen.OvhGetProjectRequestObject) (apigen.OvhGetProjectResponseObject, error) {
	return apigen.OvhGetProject200JSONResponse(ToAPIOvhProject(infoFrom(ctx).project)), nil
}

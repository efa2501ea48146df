package httpapi

import (
	"context"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// ListReplications answers a page of flows.
func (h *handlers) ListReplications(ctx context.Context, r apigen.ListReplicationsRequestObject) (apigen.ListReplicationsResponseObject, error) {
	filter := flows.FlowFilter{MirrorMakerID: value(r.Params.ServiceId)}
	page, err := h.api.ListFlows(ctx, infoFrom(ctx).project.ID, filter, FromAPIPage(r.Params.Limit, r.Params.Cursor))
	if err != nil {
		return nil, listError(err)
	}
	return apigen.ListReplications200JSONResponse{Items: each(page.Items, ToAPIReplication), NextCursor: nextCursor(page.Next)}, nil
}

// CreateReplication makes a flow.
func (h *handlers) CreateReplication(ctx context.Context, r apigen.CreateReplicationRequestObject) (apigen.CreateReplicationResponseObject, error) {
	f, err := h.api.CreateFlow(ctx, infoFrom(ctx).project.ID, FromAPIReplicationCreate(*r.Body))
	if err != nil {
		return nil, err
	}
	location := "/replications/" + f.ID.String()
	return apigen.CreateReplication201JSONResponse{
		Body: ToAPIReplication(f), Headers: apigen.CreateReplication201ResponseHeaders{ETag: etag(f.Revision), Location: &location},
	}, nil
}

// GetReplication answers a flow.
func (h *handlers) GetReplication(ctx context.Context, r apigen.GetReplicationRequestObject) (apigen.GetReplicationResponseObject, error) {
	f, err := h.api.GetFlow(ctx, infoFrom(ctx).project.ID, r.Id)
	if err != nil {
		return nil, err
	}
	return apigen.GetReplication200JSONResponse{
		Body: ToAPIReplication(f), Headers: apigen.GetReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// UpdateReplication replaces a flow's settings.
func (h *handlers) UpdateReplication(ctx context.Context, r apigen.UpdateReplicationRequestObject) (apigen.UpdateReplicationResponseObject, error) {
	project := infoFrom(ctx).project.ID
	stored, err := h.api.GetFlow(ctx, project, r.Id)
	if err != nil {
		return nil, err
	}
	revision, _, err := matchRevision(r.Params.IfMatch, stored.Revision)
	if err != nil {
		return nil, err
	}
	if err := checkReplicationUnchanged(stored, sentBody(ctx)); err != nil {
		return nil, err
	}
	f, err := h.api.UpdateFlow(ctx, project, r.Id, FromAPIReplicationUpdate(*r.Body), revision)
	if err != nil {
		return nil, err
	}
	return apigen.UpdateReplication200JSONResponse{
		Body: ToAPIReplication(f), Headers: apigen.UpdateReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// PatchReplication applies a merge patch to what GET shows and goes on as PUT does.
func (h *handlers) PatchReplication(ctx context.Context, r apigen.PatchReplicationRequestObject) (apigen.PatchReplicationResponseObject, error) {
	project := infoFrom(ctx).project.ID
	patch := sentBody(ctx)
	f, err := retryStale(ctx, func() (none flows.Flow, asked bool, err error) {
		stored, err := h.api.GetFlow(ctx, project, r.Id)
		if err != nil {
			return none, true, err
		}
		_, asked, err = matchRevision(r.Params.IfMatch, stored.Revision)
		if err != nil {
			return none, asked, err
		}
		tree, err := asTree(ToAPIReplication(stored))
		if err != nil {
			return none, asked, err
		}
		merged, _ := mergePatch(tree, patch).(map[string]any)
		if err := h.checkAgainst("ReplicationUpdate", merged); err != nil {
			return none, asked, err
		}
		if err := checkReplicationUnchanged(stored, merged); err != nil {
			return none, asked, err
		}
		body, err := fromTree[apigen.ReplicationUpdate](merged)
		if err != nil {
			return none, asked, err
		}
		// Always against what was read: the merge is of that revision.
		out, err := h.api.UpdateFlow(ctx, project, r.Id, FromAPIReplicationUpdate(body), stored.Revision)
		return out, asked, err
	})
	if err != nil {
		return nil, err
	}
	return apigen.PatchReplication200JSONResponse{
		Body: ToAPIReplication(f), Headers: apigen.PatchReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// DeleteReplication stops and removes a flow.
func (h *handlers) DeleteReplication(ctx context.Context, r apigen.DeleteReplicationRequestObject) (apigen.DeleteReplicationResponseObject, error) {
	project, revision := infoFrom(ctx).project.ID, flows.AnyRevision
	if r.Params.IfMatch != nil {
		stored, err := h.api.GetFlow(ctx, project, r.Id)
		if err != nil {
			return nil, err
		}
		if revision, _, err = matchRevision(r.Params.IfMatch, stored.Revision); err != nil {
			return nil, err
		}
	}
	if err := h.api.DeleteFlow(ctx, project, r.Id, value(r.Params.Forget), revision); err != nil {
		return nil, err
	}
	return apigen.DeleteReplication204Response{}, nil
}

// GetReplicationStatus answers what was observed of a flow.
func (h *handlers) GetReplicationStatus(ctx context.Context, r apigen.GetReplicationStatusRequestObject) (apigen.GetReplicationStatusResponseObject, error) {
	s, err := h.api.FlowStatus(ctx, infoFrom(ctx).project.ID, r.Id)
	if err != nil {
		return nil, err
	}
	return apigen.GetReplicationStatus200JSONResponse(ToAPIReplicationStatus(s)), nil
}

// ListReplicationEvents answers a page of a flow's events.
func (h *handlers) ListReplicationEvents(ctx context.Context, r apigen.ListReplicationEventsRequestObject) (apigen.ListReplicationEventsResponseObject, error) {
	page, err := h.api.ListFlowEvents(ctx, infoFrom(ctx).project.ID, r.Id, FromAPIPage(r.Params.Limit, r.Params.Cursor))
	if err != nil {
		return nil, listError(err)
	}
	items := make([]apigen.Event, 0, len(page.Items))
	for _, e := range page.Items {
		shown, err := ToAPIEvent(e)
		if err != nil {
			return nil, err
		}
		items = append(items, shown)
	}
	return apigen.ListReplicationEvents200JSONResponse{Items: items, NextCursor: nextCursor(page.Next)}, nil
}

package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// integration reads an integration of a MirrorMaker service; another service's is not there.
func (h *handlers) integration(ctx context.Context, cluster, id uuid.UUID) (flows.Integration, error) {
	if _, err := h.service(ctx, cluster, flows.EngineKafkaMirrorMaker); err != nil {
		return flows.Integration{}, err
	}
	i, err := h.api.GetIntegration(ctx, infoFrom(ctx).project.ID, id)
	if flows.CodeOf(err) == flows.CodeNotFound || err == nil && i.DestinationServiceID != cluster {
		return i, notFound("Client::NotFound::IntegrationNotFound", "Integration "+id.String()+" does not exist")
	}
	return i, err
}

// flow reads a flow of a MirrorMaker service; another service's is not there.
func (h *handlers) flow(ctx context.Context, cluster, id uuid.UUID) (flows.Flow, error) {
	if _, err := h.service(ctx, cluster, flows.EngineKafkaMirrorMaker); err != nil {
		return flows.Flow{}, err
	}
	f, err := h.api.GetFlow(ctx, infoFrom(ctx).project.ID, id)
	if flows.CodeOf(err) == flows.CodeNotFound || err == nil && f.MirrorMakerID != cluster {
		return f, notFound("Client::NotFound::ReplicationNotFound", "Replication "+id.String()+" does not exist")
	}
	return f, err
}

// OvhListIntegrations lists a MirrorMaker service's integrations.
func (h *handlers) OvhListIntegrations(ctx context.Context, r apigen.OvhListIntegrationsRequestObject) (apigen.OvhListIntegrationsResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	all, err := everything(func(page flows.Page) (flows.List[flows.Integration], error) {
		return h.api.ListIntegrations(ctx, infoFrom(ctx).project.ID, flows.IntegrationFilter{ServiceID: r.ClusterId}, page)
	})
	if err != nil {
		return nil, err
	}
	var out apigen.OvhListIntegrations200JSONResponse
	p := pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize)
	if !p.objects {
		err := out.Body.FromOvhIdList(ids(all, func(i flows.Integration) uuid.UUID { return i.ID }))
		return out, err
	}
	part, elements, number, size := cut(p, all)
	out.Headers = apigen.OvhListIntegrations200ResponseHeaders{XPaginationElements: elements, XPaginationNumber: number, XPaginationSize: size}
	err = out.Body.FromOvhIntegrationList1(each(part, ToAPIOvhIntegration))
	return out, err
}

// OvhCreateIntegration binds a kafka service to the MirrorMaker service of the path.
func (h *handlers) OvhCreateIntegration(ctx context.Context, r apigen.OvhCreateIntegrationRequestObject) (apigen.OvhCreateIntegrationResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	if r.Body.DestinationServiceId != r.ClusterId {
		return nil, invalidBody("/destinationServiceId", "must be the MirrorMaker service of the path, "+r.ClusterId.String())
	}
	i, err := h.api.CreateIntegration(ctx, infoFrom(ctx).project.ID, FromAPIOvhIntegrationCreation(*r.Body))
	if err != nil {
		return nil, err
	}
	return apigen.OvhCreateIntegration200JSONResponse(ToAPIOvhIntegration(i)), nil
}

// OvhGetIntegration answers an integration.
func (h *handlers) OvhGetIntegration(ctx context.Context, r apigen.OvhGetIntegrationRequestObject) (apigen.OvhGetIntegrationResponseObject, error) {
	i, err := h.integration(ctx, r.ClusterId, r.IntegrationId)
	if err != nil {
		return nil, err
	}
	return apigen.OvhGetIntegration200JSONResponse(ToAPIOvhIntegration(i)), nil
}

// OvhDeleteIntegration removes an integration that no flow uses.
func (h *handlers) OvhDeleteIntegration(ctx context.Context, r apigen.OvhDeleteIntegrationRequestObject) (apigen.OvhDeleteIntegrationResponseObject, error) {
	if _, err := h.integration(ctx, r.ClusterId, r.IntegrationId); err != nil {
		return nil, err
	}
	return ovhVoid{}, h.api.DeleteIntegration(ctx, infoFrom(ctx).project.ID, r.IntegrationId)
}

// OvhListReplications lists a MirrorMaker service's flows.
func (h *handlers) OvhListReplications(ctx context.Context, r apigen.OvhListReplicationsRequestObject) (apigen.OvhListReplicationsResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	all, err := everything(func(page flows.Page) (flows.List[flows.Flow], error) {
		return h.api.ListFlows(ctx, infoFrom(ctx).project.ID, flows.FlowFilter{MirrorMakerID: r.ClusterId}, page)
	})
	if err != nil {
		return nil, err
	}
	var out apigen.OvhListReplications200JSONResponse
	p := pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize)
	if !p.objects {
		err := out.Body.FromOvhIdList(ids(all, func(f flows.Flow) uuid.UUID { return f.ID }))
		return out, err
	}
	part, elements, number, size := cut(p, all)
	out.Headers = apigen.OvhListReplications200ResponseHeaders{XPaginationElements: elements, XPaginationNumber: number, XPaginationSize: size}
	err = out.Body.FromOvhReplicationList1(each(part, ToAPIOvhReplication))
	return out, err
}

// OvhCreateReplication makes a flow between two integrations of the path's MirrorMaker service.
func (h *handlers) OvhCreateReplication(ctx context.Context, r apigen.OvhCreateReplicationRequestObject) (apigen.OvhCreateReplicationResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	project := infoFrom(ctx).project.ID
	var fields []apigen.ProblemField
	for _, side := range []struct {
		pointer string
		id      uuid.UUID
	}{{"/sourceIntegration", r.Body.SourceIntegration}, {"/targetIntegration", r.Body.TargetIntegration}} {
		i, err := h.api.GetIntegration(ctx, project, side.id)
		switch {
		case flows.CodeOf(err) == flows.CodeNotFound:
			// The domain says what is wrong with it.
		case err != nil:
			return nil, err
		case i.DestinationServiceID != r.ClusterId:
			fields = append(fields, apigen.ProblemField{Pointer: side.pointer, Message: "is an integration of another MirrorMaker service than the path's"})
		}
	}
	if len(fields) > 0 {
		return nil, invalidFields(fields...)
	}
	f, err := h.api.CreateFlow(ctx, project, FromAPIOvhReplicationCreation(*r.Body))
	if err != nil {
		return nil, err
	}
	return apigen.OvhCreateReplication200JSONResponse{
		Body: ToAPIOvhReplication(f), Headers: apigen.OvhCreateReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// OvhGetReplication answers a flow's ten fields.
func (h *handlers) OvhGetReplication(ctx context.Context, r apigen.OvhGetReplicationRequestObject) (apigen.OvhGetReplicationResponseObject, error) {
	f, err := h.flow(ctx, r.ClusterId, r.ReplicationId)
	if err != nil {
		return nil, err
	}
	return apigen.OvhGetReplication200JSONResponse{
		Body: ToAPIOvhReplication(f), Headers: apigen.OvhGetReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// OvhUpdateReplication changes what the body names and keeps the rest, the extended fields included.
func (h *handlers) OvhUpdateReplication(ctx context.Context, r apigen.OvhUpdateReplicationRequestObject) (apigen.OvhUpdateReplicationResponseObject, error) {
	f, err := retryStale(ctx, func() (none flows.Flow, asked bool, err error) {
		stored, err := h.flow(ctx, r.ClusterId, r.ReplicationId)
		if err != nil {
			return none, true, err
		}
		if _, asked, err = matchRevision(r.Params.IfMatch, stored.Revision); err != nil {
			return none, asked, err
		}
		// Always against what was read: kept members are of that revision.
		out, err := h.api.UpdateFlow(ctx, infoFrom(ctx).project.ID, r.ReplicationId, FromAPIOvhReplicationUpdate(stored.Options, *r.Body), stored.Revision)
		return out, asked, err
	})
	if err != nil {
		return nil, err
	}
	return apigen.OvhUpdateReplication200JSONResponse{
		Body: ToAPIOvhReplication(f), Headers: apigen.OvhUpdateReplication200ResponseHeaders{ETag: etag(f.Revision)},
	}, nil
}

// OvhDeleteReplication stops and removes a flow; its positions stay.
func (h *handlers) OvhDeleteReplication(ctx context.Context, r apigen.OvhDeleteReplicationRequestObject) (apigen.OvhDeleteReplicationResponseObject, error) {
	if _, err := h.flow(ctx, r.ClusterId, r.ReplicationId); err != nil {
		return nil, err
	}
	return ovhVoid{}, h.api.DeleteFlow(ctx, infoFrom(ctx).project.ID, r.ReplicationId, false, flows.AnyRevision)
}

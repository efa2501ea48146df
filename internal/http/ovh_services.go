package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// ovhServices answers a list of services in either form.
func (h *handlers) ovhServices(ctx context.Context, engine flows.Engine, p paging) (apigen.OvhServicesJSONResponse, error) {
	var out apigen.OvhServicesJSONResponse
	all, err := everything(func(page flows.Page) (flows.List[flows.Service], error) {
		return h.api.ListServices(ctx, infoFrom(ctx).project.ID, flows.ServiceFilter{Engine: engine}, page)
	})
	if err != nil {
		return out, err
	}
	if !p.objects {
		return out, out.Body.FromOvhIdList(ids(all, func(s flows.Service) uuid.UUID { return s.ID }))
	}
	part, elements, number, size := cut(p, all)
	objects := make([]apigen.OvhService, 0, len(part))
	for _, s := range part {
		shown, err := ToAPIOvhService(s)
		if err != nil {
			return out, err
		}
		objects = append(objects, shown)
	}
	out.Headers = apigen.OvhServicesResponseHeaders{XPaginationElements: elements, XPaginationNumber: number, XPaginationSize: size}
	return out, out.Body.FromOvhServiceList1(objects)
}

// OvhListServices lists services of all engines.
func (h *handlers) OvhListServices(ctx context.Context, r apigen.OvhListServicesRequestObject) (apigen.OvhListServicesResponseObject, error) {
	p := pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize)
	if c := r.Params.Category; c != nil && *c != apigen.OvhListServicesParamsCategoryAnalysis {
		var none apigen.OvhListServices200JSONResponse
		return none, none.Body.FromOvhIdList(apigen.OvhIdList{})
	}
	list, err := h.ovhServices(ctx, "", p)
	if err != nil {
		return nil, err
	}
	return apigen.OvhListServices200JSONResponse{OvhServicesJSONResponse: list}, nil
}

// OvhListKafkas lists kafka services.
func (h *handlers) OvhListKafkas(ctx context.Context, r apigen.OvhListKafkasRequestObject) (apigen.OvhListKafkasResponseObject, error) {
	list, err := h.ovhServices(ctx, flows.EngineKafka, pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize))
	if err != nil {
		return nil, err
	}
	return apigen.OvhListKafkas200JSONResponse{OvhServicesJSONResponse: list}, nil
}

// OvhListMirrorMakers lists MirrorMaker services.
func (h *handlers) OvhListMirrorMakers(ctx context.Context, r apigen.OvhListMirrorMakersRequestObject) (apigen.OvhListMirrorMakersResponseObject, error) {
	list, err := h.ovhServices(ctx, flows.EngineKafkaMirrorMaker, pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize))
	if err != nil {
		return nil, err
	}
	return apigen.OvhListMirrorMakers200JSONResponse{OvhServicesJSONResponse: list}, nil
}

// OvhCreateKafka refuses: OVHcloud's body says nothing about where a cluster is.
func (h *handlers) OvhCreateKafka(context.Context, apigen.OvhCreateKafkaRequestObject) (apigen.OvhCreateKafkaResponseObject, error) {
	return nil, invalidBody("", "kafka services are registered with POST /services: this body has no place for a cluster's addresses and credentials")
}

// OvhGetService answers a service of any engine.
func (h *handlers) OvhGetService(ctx context.Context, r apigen.OvhGetServiceRequestObject) (apigen.OvhGetServiceResponseObject, error) {
	s, err := h.service(ctx, r.ClusterId, flows.EngineKafka, flows.EngineKafkaMirrorMaker)
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIOvhService(s)
	return apigen.OvhGetService200JSONResponse(shown), err
}

// OvhGetKafka answers a kafka service.
func (h *handlers) OvhGetKafka(ctx context.Context, r apigen.OvhGetKafkaRequestObject) (apigen.OvhGetKafkaResponseObject, error) {
	s, err := h.service(ctx, r.ClusterId, flows.EngineKafka)
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIOvhService(s)
	return apigen.OvhGetKafka200JSONResponse(shown), err
}

// OvhCreateMirrorMaker makes a MirrorMaker service.
func (h *handlers) OvhCreateMirrorMaker(ctx context.Context, r apigen.OvhCreateMirrorMakerRequestObject) (apigen.OvhCreateMirrorMakerResponseObject, error) {
	in, err := FromAPIOvhServiceCreation(*r.Body)
	if err != nil {
		return nil, err
	}
	s, err := h.api.CreateService(ctx, infoFrom(ctx).project.ID, in, false)
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIOvhService(s)
	return apigen.OvhCreateMirrorMaker200JSONResponse(shown), err
}

// OvhGetMirrorMaker answers a MirrorMaker service.
func (h *handlers) OvhGetMirrorMaker(ctx context.Context, r apigen.OvhGetMirrorMakerRequestObject) (apigen.OvhGetMirrorMakerResponseObject, error) {
	s, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker)
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIOvhService(s)
	return apigen.OvhGetMirrorMaker200JSONResponse(shown), err
}

// OvhUpdateMirrorMaker changes what the body names and keeps the rest.
func (h *handlers) OvhUpdateMirrorMaker(ctx context.Context, r apigen.OvhUpdateMirrorMakerRequestObject) (apigen.OvhUpdateMirrorMakerResponseObject, error) {
	s, err := retryStale(ctx, func() (out flows.Service, asked bool, err error) {
		stored, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker)
		if err != nil {
			return out, true, err
		}
		in, err := FromAPIOvhServiceUpdate(stored, *r.Body)
		if err != nil {
			return out, true, err
		}
		out, err = h.api.UpdateService(ctx, infoFrom(ctx).project.ID, r.ClusterId, in, stored.Revision, false)
		return out, false, err
	})
	if err != nil {
		return nil, err
	}
	shown, err := ToAPIOvhService(s)
	return apigen.OvhUpdateMirrorMaker200JSONResponse(shown), err
}

// OvhDeleteMirrorMaker removes a MirrorMaker service that nothing uses.
func (h *handlers) OvhDeleteMirrorMaker(ctx context.Context, r apigen.OvhDeleteMirrorMakerRequestObject) (apigen.OvhDeleteMirrorMakerResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	return ovhVoid{}, h.api.DeleteService(ctx, infoFrom(ctx).project.ID, r.ClusterId, flows.AnyRevision)
}

// OvhListIntegrationCapabilities answers the one kind of integration there is.
func (h *handlers) OvhListIntegrationCapabilities(ctx context.Context, r apigen.OvhListIntegrationCapabilitiesRequestObject) (apigen.OvhListIntegrationCapabilitiesResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	c := apigen.OvhIntegrationCapability{
		Type: apigen.OvhIntegrationCapabilityTypeKafkaMirrorMaker, SourceEngine: apigen.Engine(flows.EngineKafka),
		DestinationEngine: apigen.Engine(flows.EngineKafkaMirrorMaker),
	}
	c.Parameters.SetNull()
	return apigen.OvhListIntegrationCapabilities200JSONResponse{c}, nil
}

// OvhGetAdvancedConfiguration answers an empty map, which clients want to read.
func (h *handlers) OvhGetAdvancedConfiguration(ctx context.Context, r apigen.OvhGetAdvancedConfigurationRequestObject) (apigen.OvhGetAdvancedConfigurationResponseObject, error) {
	if _, err := h.service(ctx, r.ClusterId, flows.EngineKafkaMirrorMaker); err != nil {
		return nil, err
	}
	return apigen.OvhGetAdvancedConfiguration200JSONResponse{}, nil
}

func (h *handlers) nodes(ctx context.Context, cluster uuid.UUID) ([]apigen.OvhNode, error) {
	s, err := h.service(ctx, cluster, flows.EngineKafkaMirrorMaker)
	if err != nil {
		return nil, err
	}
	return ToAPIOvhNodes(s)
}

// OvhListNodes lists a MirrorMaker service's nodes.
func (h *handlers) OvhListNodes(ctx context.Context, r apigen.OvhListNodesRequestObject) (apigen.OvhListNodesResponseObject, error) {
	all, err := h.nodes(ctx, r.ClusterId)
	if err != nil {
		return nil, err
	}
	var out apigen.OvhListNodes200JSONResponse
	p := pagingOf(r.Params.XPaginationMode, r.Params.XPaginationNumber, r.Params.XPaginationSize)
	if !p.objects {
		err := out.Body.FromOvhIdList(ids(all, func(n apigen.OvhNode) uuid.UUID { return n.Id }))
		return out, err
	}
	part, elements, number, size := cut(p, all)
	out.Headers = apigen.OvhListNodes200ResponseHeaders{XPaginationElements: elements, XPaginationNumber: number, XPaginationSize: size}
	err = out.Body.FromOvhNodeList1(part)
	return out, err
}

// OvhGetNode answers a node.
func (h *handlers) OvhGetNode(ctx context.Context, r apigen.OvhGetNodeRequestObject) (apigen.OvhGetNodeResponseObject, error) {
	all, err := h.nodes(ctx, r.ClusterId)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.Id == r.NodeId {
			return apigen.OvhGetNode200JSONResponse(n), nil
		}
	}
	return nil, notFound("Client::NotFound::NodeNotFound", "Node "+r.NodeId.String()+" does not exist")
}

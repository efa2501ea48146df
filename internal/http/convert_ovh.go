package httpapi

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// FromAPIOvhServiceCreation converts OVHcloud's body of a new MirrorMaker service.
func FromAPIOvhServiceCreation(b apigen.OvhServiceCreation) (flows.ServiceInput, error) {
	in := flows.ServiceInput{
		Engine: flows.EngineKafkaMirrorMaker, Description: nullValue(b.Description), Plan: nullValue(b.Plan), Version: nullValue(b.Version),
		NodesPattern: fromAPINodesPattern(b.NodesPattern),
	}
	nodes := nullValue(b.NodesList)
	if len(nodes) == 0 {
		return in, nil
	}
	if in.NodesPattern != nil {
		p := invalidBody("/nodesList", "give either nodesPattern or nodesList")
		p.class = "Client::BadRequest::OnlyNodeListOrPattern"
		return in, p
	}
	first := nodes[0]
	for i, n := range nodes {
		switch {
		case value(n.Flavor) != value(first.Flavor):
			p := invalidBody("/nodesList/"+strconv.Itoa(i)+"/flavor", "all nodes must have one flavor")
			p.class = "Client::BadRequest::NodesFlavorMismatch"
			return in, p
		case value(n.Region) != value(first.Region):
			p := invalidBody("/nodesList/"+strconv.Itoa(i)+"/region", "all nodes must be in one region")
			p.class = "Client::BadRequest::NodesRegionMismatch"
			return in, p
		}
	}
	number := int32(len(nodes))
	in.NodesPattern = nodesPatternJSON(apigen.NodesPattern{Flavor: first.Flavor, Number: &number, Region: first.Region})
	return in, nil
}

// FromAPIOvhServiceUpdate overlays what the body names on the stored service.
func FromAPIOvhServiceUpdate(stored flows.Service, b apigen.OvhServiceUpdate) (flows.ServiceInput, error) {
	in := flows.ServiceInput{
		Engine: stored.Engine, Description: stored.Description, Plan: stored.Plan, Version: stored.Version, NodesPattern: stored.NodesPattern,
	}
	overlayNull(&in.Description, b.Description)
	overlayNull(&in.Plan, b.Plan)
	overlayNull(&in.Version, b.Version)
	// A null is kept, as what is omitted is.
	withFlavor, withNumber := b.Flavor.IsSpecified() && !b.Flavor.IsNull(), b.NodeNumber.IsSpecified() && !b.NodeNumber.IsNull()
	if !withFlavor && !withNumber {
		return in, nil
	}
	p, err := toAPINodesPattern(stored.NodesPattern)
	if err != nil {
		return in, err
	}
	if p == nil {
		p = &apigen.NodesPattern{}
	}
	// Clients send back what they were shown: that must not make a pattern where none was.
	if flavor := nullValue(b.Flavor); withFlavor && flavor != value(p.Flavor) {
		p.Flavor = &flavor
	}
	if number := nullValue(b.NodeNumber); withNumber && number != nodeNumber(p) {
		p.Number = &number
	}
	if *p != (apigen.NodesPattern{}) {
		in.NodesPattern = nodesPatternJSON(*p)
	}
	return in, nil
}

func overlayNull(target *string, n nullable.Nullable[string]) {
	if v, err := n.Get(); err == nil {
		*target = v
	}
}

// nodeNumber is how many nodes are shown; clients need at least one.
func nodeNumber(p *apigen.NodesPattern) int32 {
	if p == nil || p.Number == nil {
		return 1
	}
	return *p.Number
}

// ToAPIOvhService converts a service for the OVHcloud-shaped routes.
func ToAPIOvhService(s flows.Service) (apigen.OvhService, error) {
	out := apigen.OvhService{
		Id: s.ID, Engine: apigen.Engine(s.Engine), Category: apigen.OvhServiceCategoryAnalysis, CreatedAt: s.CreatedAt.UTC(),
		Description: s.Description, Plan: s.Plan, Version: s.Version, Status: apigen.ResourceStatus(s.Status),
		NetworkType: apigen.OvhServiceNetworkTypePublic, NetworkId: nullIfEmpty(""), SubnetId: nullIfEmpty(""),
		Nodes: []apigen.OvhNode{}, Endpoints: []apigen.OvhEndpoint{}, IpRestrictions: []map[string]any{},
		Backups: nullable.NewNullNullable[map[string]any](), BackupTime: "00:00:00", MaintenanceTime: "00:00:00",
	}
	out.Storage.Size.Unit = "GB"
	out.Storage.Type.SetNull()
	if s.Engine == flows.EngineKafka {
		no := false
		out.RestApi, out.SchemaRegistry = &no, &no
		out.Version = s.KafkaVersion
		out.Endpoints = toAPIOvhEndpoints(s)
		out.Capabilities = map[string]apigen.OvhCapability{"service": capability("r")}
		return out, nil
	}
	nodes, err := ToAPIOvhNodes(s)
	if err != nil {
		return out, err
	}
	out.Nodes, out.NodeNumber, out.Flavor = nodes, int64(len(nodes)), nodes[0].Flavor
	out.Capabilities = map[string]apigen.OvhCapability{
		"service": capability("crud"), "integrations": capability("crd"), "replication": capability("crud"), "nodes": capability("r"),
	}
	return out, nil
}

// capability names what is enabled by its letters; the rest is disabled.
func capability(letters string) apigen.OvhCapability {
	word := func(letter string) string {
		if strings.Contains(letters, letter) {
			return "enabled"
		}
		return "disabled"
	}
	c, r, u, d := apigen.OvhCapabilityCreate(word("c")), apigen.OvhCapabilityRead(word("r")), apigen.OvhCapabilityUpdate(word("u")), apigen.OvhCapabilityDelete(word("d"))
	return apigen.OvhCapability{Create: &c, Read: &r, Update: &u, Delete: &d}
}

func toAPIOvhEndpoints(s flows.Service) []apigen.OvhEndpoint {
	component := apigen.OvhEndpointComponentKafka
	if strings.HasPrefix(s.Security.Protocol, "SASL_") {
		component = apigen.OvhEndpointComponentKafkaSASL
	}
	out := make([]apigen.OvhEndpoint, 0, len(s.BootstrapServers))
	for _, address := range s.BootstrapServers {
		e := apigen.OvhEndpoint{
			Component: component, Domain: address, Path: nullIfEmpty(""), Port: nullable.NewNullNullable[int32](), Scheme: nullIfEmpty(""),
			Ssl: strings.HasSuffix(s.Security.Protocol, "SSL"), SslMode: nullIfEmpty(""), Uri: nullIfEmpty(address),
		}
		if host, port, err := net.SplitHostPort(address); err == nil {
			e.Domain = host
			if n, err := strconv.ParseInt(port, 10, 32); err == nil {
				e.Port.Set(int32(n))
			}
		}
		out = append(out, e)
	}
	return out
}

// ToAPIOvhNodes makes the nodes that a MirrorMaker service's nodesPattern asks
// for, at least one. Their ids follow from the service's, so that they stay.
func ToAPIOvhNodes(s flows.Service) ([]apigen.OvhNode, error) {
	p, err := toAPINodesPattern(s.NodesPattern)
	if err != nil {
		return nil, err
	}
	number := nodeNumber(p)
	if p == nil {
		p = &apigen.NodesPattern{}
	}
	nodes := make([]apigen.OvhNode, 0, number)
	for i := range number {
		name := "node-" + strconv.Itoa(int(i)+1)
		nodes = append(nodes, apigen.OvhNode{
			Id: uuid.NewSHA1(s.ID, []byte(name)), Name: name, Flavor: value(p.Flavor), Region: value(p.Region),
			Status: apigen.ResourceStatus(s.Status), Role: nullIfEmpty(""), CreatedAt: s.CreatedAt.UTC(),
			NetworkId: nullIfEmpty(""), SubnetId: nullIfEmpty(""),
		})
	}
	return nodes, nil
}

// FromAPIOvhIntegrationCreation converts OVHcloud's body of a new integration.
func FromAPIOvhIntegrationCreation(b apigen.OvhIntegrationCreation) flows.IntegrationInput {
	return flows.IntegrationInput{
		Type: string(nullValue(b.Type)), SourceServiceID: b.SourceServiceId, DestinationServiceID: b.DestinationServiceId,
		Parameters: fromAPIParameters(b.Parameters),
	}
}

// ToAPIOvhIntegration converts an integration for the OVHcloud-shaped routes.
// Parameters are as sent: clients replace an integration that shows others.
func ToAPIOvhIntegration(i flows.Integration) apigen.OvhIntegration {
	return apigen.OvhIntegration{
		Id: i.ID, SourceServiceId: i.SourceServiceID, DestinationServiceId: i.DestinationServiceID,
		Type: apigen.OvhIntegrationType(i.Type), Parameters: toAPIParameters(i.Parameters), Status: apigen.OvhIntegrationStatus(i.Status),
	}
}

// FromAPIOvhReplicationCreation converts OVHcloud's body of a new flow; the extended fields take their defaults.
func FromAPIOvhReplicationCreation(b apigen.OvhReplicationCreation) flows.FlowInput {
	in := flows.FlowInput{
		SourceIntegration: b.SourceIntegration, TargetIntegration: b.TargetIntegration,
		ReplicationPolicyClass: string(value(b.ReplicationPolicyClass)), Options: flows.DefaultOptions(),
	}
	overlayOvh(&in.Options, apigen.OvhReplicationUpdate{
		Topics: b.Topics, TopicExcludeList: b.TopicExcludeList, SyncGroupOffsets: b.SyncGroupOffsets,
		SyncInterval: b.SyncInterval, EmitHeartbeats: b.EmitHeartbeats, Enabled: &b.Enabled,
	})
	return in
}

// FromAPIOvhReplicationUpdate overlays what the body names on the stored options.
func FromAPIOvhReplicationUpdate(stored flows.Options, b apigen.OvhReplicationUpdate) flows.Options {
	overlayOvh(&stored, b)
	return stored
}

func overlayOvh(o *flows.Options, b apigen.OvhReplicationUpdate) {
	overlay(&o.Topics, b.Topics)
	overlay(&o.TopicExcludeList, b.TopicExcludeList)
	overlay(&o.SyncGroupOffsets, b.SyncGroupOffsets)
	overlaySeconds(&o.SyncInterval, b.SyncInterval)
	overlay(&o.EmitHeartbeats, b.EmitHeartbeats)
	overlay(&o.Enabled, b.Enabled)
}

// ToAPIOvhReplication converts a flow to OVHcloud's ten fields.
func ToAPIOvhReplication(f flows.Flow) apigen.OvhReplication {
	return apigen.OvhReplication{
		Id: f.ID, SourceIntegration: f.SourceIntegration, TargetIntegration: f.TargetIntegration,
		ReplicationPolicyClass: apigen.ReplicationPolicyClass(f.ReplicationPolicyClass),
		Topics:                 list(f.Topics), TopicExcludeList: list(f.TopicExcludeList), SyncGroupOffsets: f.SyncGroupOffsets,
		SyncInterval: seconds(f.SyncInterval), EmitHeartbeats: f.EmitHeartbeats, Enabled: f.Enabled,
	}
}

// ToAPIOvhProject converts the project.
func ToAPIOvhProject(p flows.Project) apigen.OvhProject {
	return apigen.OvhProject{
		ProjectId: p.Name, ProjectName: p.Name, Description: p.Name, Status: apigen.OvhProjectStatusOk, Access: apigen.OvhProjectAccessFull,
		CreationDate: p.CreatedAt.UTC(), PlanCode: "project", Expiration: nullable.NewNullNullable[time.Time](), OrderId: nullable.NewNullNullable[int64](),
	}
}

// ToAPIOvhAuthDetails says who asks, as clients made for OVHcloud want it at their start.
func ToAPIOvhAuthDetails(p flows.Project) apigen.OvhAuthDetails {
	return apigen.OvhAuthDetails{
		Account: p.Name, Method: apigen.OvhAuthDetailsMethodAccount, Identities: []string{},
		AllowedRoutes: nullable.NewNullNullable[[]string](), Roles: nullable.NewNullNullable[[]string](),
		Description: nullIfEmpty(""), User: nullIfEmpty(""),
	}
}

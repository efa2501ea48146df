package flows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// prefix is what the flow puts before a source topic's name.
func (r FlowRoute) prefix() string {
	if r.PolicyClass == IdentityPolicyClass {
		return ""
	}
	return r.SourceAlias + r.Separator
}

// sameCluster tells whether two services are known to be one Kafka cluster.
func sameCluster(serviceA, serviceB uuid.UUID, clusterA, clusterB string) bool {
	return serviceA == serviceB || (clusterA != "" && clusterA == clusterB)
}

// selection is a flow's pair of lists. Names in them stand apart: two flows can be compared for good by names only,
// since whether two patterns have a common match among the topics of the future nobody knows.
type selection struct {
	topics, exclude *nameList
	entries         []string // topics as written
}

// newSelection prepares a route's lists; own tells that they are those of the request.
func newSelection(e *effort, r FlowRoute, own bool) (*selection, error) {
	pointer := excludesPointer
	if !own {
		pointer = topicsPointer // what is compared with them
	}
	s := &selection{entries: r.Topics}
	var err error
	if s.topics, err = newNameList(e, r.Topics, topicsPointer, own); err != nil {
		return nil, err
	}
	s.exclude, err = newNameList(e, r.Excludes, pointer, own)
	return s, err
}

// takes tells whether the flow would mirror a topic of this name.
func (s *selection) takes(e *effort, name string) (bool, error) {
	ok, err := s.topics.selects(e, name)
	if err != nil || !ok {
		return false, err
	}
	return s.leaves(e, name)
}

// leaves tells whether the excludes leave a topic of this name in.
func (s *selection) leaves(e *effort, name string) (bool, error) {
	out, err := s.exclude.selects(e, name)
	return !out, err
}

// overlap finds a topic entry that both flows take, given that both add the
// same prefix. It answers what they share in words, "" for nothing.
func (s *selection) overlap(e *effort, o *selection) (string, error) {
	for _, entry := range s.entries {
		if err := e.step(topicsPointer); err != nil {
			return "", err
		}
		// A shared plain name is a matter of the excludes, too.
		if _, both := o.topics.index[entry]; both && !legalTopicName(entry) {
			return fmt.Sprintf("both list %q", entry), nil
		}
	}
	what, err := s.sharedName(e, o)
	if err != nil || what != "" {
		return what, err
	}
	return o.sharedName(e, s)
}

// sharedName finds a name in s's list that both flows take.
func (s *selection) sharedName(e *effort, o *selection) (string, error) {
	for _, name := range s.topics.names {
		if err := e.step(topicsPointer); err != nil {
			return "", err
		}
		ok, err := o.takes(e, name)
		if err == nil && ok {
			ok, err = s.leaves(e, name)
		}
		if err != nil {
			return "", err
		}
		if ok {
			return fmt.Sprintf("both take topic %q", name), nil
		}
	}
	return "", nil
}

// sharedRemote finds a listed name of each that become one remote topic under different prefixes.
func (s *selection) sharedRemote(e *effort, o *selection, prefix, otherPrefix string) (string, error) {
	listed := make(map[string]bool, len(o.topics.names))
	for _, name := range o.topics.names {
		listed[name] = true
	}
	for _, name := range s.topics.names {
		if err := e.step(topicsPointer); err != nil {
			return "", err
		}
		other, ok := strings.CutPrefix(prefix+name, otherPrefix)
		if !ok || !listed[other] {
			continue
		}
		ok, err := s.leaves(e, name)
		if err == nil && ok {
			ok, err = o.leaves(e, other)
		}
		if err != nil {
			return "", err
		}
		if ok {
			return fmt.Sprintf("both write topic %q on the target", prefix+name), nil
		}
	}
	return "", nil
}

// checkRoutes compares a flow that is to be stored with the others of its
// project. It answers CodeConflict naming the other flow when
//   - both write to one cluster under one prefix and their lists overlap, or
//     two plain names become one remote topic;
//   - identity flows would carry the records back to where they came from,
//     directly or over other clusters, and it is not certain that their lists are disjoint.
//
// What else only the topics of the future can tell is left to topic ownership at run time.
// Lists that cannot be compared within the given time are CodeInvalid.
func checkRoutes(ctx context.Context, limit time.Duration, flow FlowRoute, others []FlowRoute) error {
	e := &effort{ctx: ctx, until: time.Now().Add(limit)}
	mine, err := newSelection(e, flow, true)
	if err != nil {
		return err
	}
	selections := map[uuid.UUID]*selection{}
	selectionOf := func(r FlowRoute) (*selection, error) {
		s, ok := selections[r.FlowID]
		if !ok {
			var err error
			if s, err = newSelection(e, r, false); err != nil {
				return nil, err
			}
			selections[r.FlowID] = s
		}
		return s, nil
	}
	for _, o := range others {
		if o.FlowID == flow.FlowID || !sameCluster(flow.TargetService, o.TargetService, flow.TargetCluster, o.TargetCluster) {
			continue
		}
		prefix, otherPrefix := flow.prefix(), o.prefix()
		if !strings.HasPrefix(prefix, otherPrefix) && !strings.HasPrefix(otherPrefix, prefix) {
			continue // no name is under both
		}
		theirs, err := selectionOf(o)
		if err != nil {
			return err
		}
		var what string
		if prefix == otherPrefix {
			what, err = mine.overlap(e, theirs)
		} else {
			what, err = mine.sharedRemote(e, theirs, prefix, otherPrefix)
		}
		if err != nil {
			return err
		}
		if what != "" {
			return &Error{Code: CodeConflict, Message: fmt.Sprintf("flow %s writes the same remote topics: %s", o.FlowID, what)}
		}
	}
	if flow.PolicyClass != IdentityPolicyClass {
		return nil
	}
	return checkLoop(e, flow, mine, others, selectionOf)
}

// checkLoop follows identity flows from the new flow's target and refuses when they lead to its source, unless one of
// them is certain to take none of the new flow's topics.
func checkLoop(e *effort, flow FlowRoute, mine *selection, others []FlowRoute, selectionOf func(FlowRoute) (*selection, error)) error {
	type node struct {
		service uuid.UUID
		cluster string
		via     []string
	}
	seen := map[uuid.UUID]bool{flow.FlowID: true}
	queue := []node{{flow.TargetService, flow.TargetCluster, nil}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, o := range others {
			if seen[o.FlowID] || o.PolicyClass != IdentityPolicyClass ||
				!sameCluster(at.service, o.SourceService, at.cluster, o.SourceCluster) {
				continue
			}
			seen[o.FlowID] = true
			theirs, err := selectionOf(o)
			if err != nil {
				return err
			}
			what, err := mine.mayShare(e, theirs)
			if err != nil {
				return err
			}
			if what == "" {
				continue
			}
			via := append(slices.Clone(at.via), o.FlowID.String())
			if sameCluster(o.TargetService, flow.SourceService, o.TargetCluster, flow.SourceCluster) {
				return &Error{Code: CodeConflict, Message: fmt.Sprintf(
					"with IdentityReplicationPolicy the records could come back to the source over flow %s for ever: %s; "+
						"list only names of topics, with dots written as \\., in one of these flows, and none that another of them takes, "+
						"or use DefaultReplicationPolicy", strings.Join(via, ", then flow "), what)}
			}
			queue = append(queue, node{o.TargetService, o.TargetCluster, via})
		}
	}
	return nil
}

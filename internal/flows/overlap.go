package flows

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/javaregex"
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

// selection is a compiled pair of lists. Entries that are plain names stand
// apart: two flows can be compared for good by names only, since whether two
// patterns have a common match among the topics of the future nobody knows.
type selection struct {
	entries map[string]bool
	names   []string // plain names among the entries that the excludes leave in
	topics  []*javaregex.Pattern
	exclude []*javaregex.Pattern
	// undecided is a pattern that ran out of time on some name: such lists count as overlapping.
	undecided string
}

func compileSelection(topics, excludes []string) (*selection, error) {
	s := &selection{entries: make(map[string]bool, len(topics))}
	var err error
	if s.exclude, err = compileAll(excludes); err != nil {
		return nil, err
	}
	if s.topics, err = compileAll(topics); err != nil {
		return nil, err
	}
	for i, p := range s.topics {
		s.entries[topics[i]] = true
		if name, ok := p.Literal(); ok && !s.matchAny(s.exclude, name) {
			s.names = append(s.names, name)
		}
	}
	return s, nil
}

func compileAll(list []string) ([]*javaregex.Pattern, error) {
	out := make([]*javaregex.Pattern, len(list))
	for i, entry := range list {
		p, err := javaregex.Compile(entry)
		if err != nil {
			return nil, fmt.Errorf("compile pattern %d: %w", i, err)
		}
		out[i] = p
	}
	return out, nil
}

func (s *selection) matchAny(list []*javaregex.Pattern, name string) bool {
	for _, p := range list {
		ok, err := p.Matches(name)
		if err != nil {
			s.undecided = p.String()
			continue
		}
		if ok {
			return true
		}
	}
	return false
}

// takes tells whether the flow would mirror a topic of this name.
func (s *selection) takes(name string) bool {
	return s.matchAny(s.topics, name) && !s.matchAny(s.exclude, name)
}

// overlap finds a topic entry that both flows take, given that both add the
// same prefix. It answers what they share in words, "" for nothing.
func (s *selection) overlap(o *selection) string {
	for _, e := range sortedKeys(s.entries) {
		if !o.entries[e] {
			continue
		}
		// A shared plain name that one of them excludes is shared by nobody.
		if legalTopicName(e) && (!slices.Contains(s.names, e) || !slices.Contains(o.names, e)) {
			continue
		}
		return fmt.Sprintf("both list %q", e)
	}
	for _, pair := range [][2]*selection{{s, o}, {o, s}} {
		for _, name := range pair[0].names {
			if pair[1].takes(name) {
				return fmt.Sprintf("both take topic %q", name)
			}
		}
	}
	for _, x := range []*selection{s, o} {
		if x.undecided != "" {
			return fmt.Sprintf("pattern %q takes too long to be compared", x.undecided)
		}
	}
	return ""
}

// remoteNames are the names on the target that s is certain to write, given its prefix.
func (s *selection) remoteNames(prefix string) map[string]bool {
	m := make(map[string]bool, len(s.names))
	for _, n := range s.names {
		m[prefix+n] = true
	}
	return m
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkRoutes compares a flow that is to be stored with the others of its
// project. It answers CodeConflict naming the other flow when
//   - both write to one cluster under one prefix and their lists overlap, or
//     two plain names become one remote topic;
//   - identity flows would carry the records back to where they came from,
//     directly or over other clusters, under lists that overlap.
//
// What only the topics of the future can tell is left to topic ownership at run time.
func checkRoutes(flow FlowRoute, others []FlowRoute) error {
	mine, err := compileSelection(flow.Topics, flow.Excludes)
	if err != nil {
		return internal("compare topic lists", err)
	}
	selections := map[uuid.UUID]*selection{}
	selectionOf := func(r FlowRoute) (*selection, error) {
		s, ok := selections[r.FlowID]
		if !ok {
			var err error
			if s, err = compileSelection(r.Topics, r.Excludes); err != nil {
				return nil, internal("compare topic lists", err)
			}
			selections[r.FlowID] = s
		}
		return s, nil
	}
	for _, o := range others {
		if o.FlowID == flow.FlowID || !sameCluster(flow.TargetService, o.TargetService, flow.TargetCluster, o.TargetCluster) {
			continue
		}
		theirs, err := selectionOf(o)
		if err != nil {
			return err
		}
		what := ""
		if flow.prefix() == o.prefix() {
			what = mine.overlap(theirs)
		} else {
			written := theirs.remoteNames(o.prefix())
			for _, n := range sortedKeys(mine.remoteNames(flow.prefix())) {
				if written[n] {
					what = fmt.Sprintf("both write topic %q on the target", n)
					break
				}
			}
		}
		if what != "" {
			return &Error{Code: CodeConflict, Message: fmt.Sprintf("flow %s writes the same remote topics: %s", o.FlowID, what)}
		}
	}
	if flow.PolicyClass != IdentityPolicyClass {
		return nil
	}
	return checkLoop(flow, mine, others, selectionOf)
}

// checkLoop follows identity flows from the new flow's target and refuses when they lead to its source.
func checkLoop(flow FlowRoute, mine *selection, others []FlowRoute, selectionOf func(FlowRoute) (*selection, error)) error {
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
			theirs, err := selectionOf(o)
			if err != nil {
				return err
			}
			what := mine.overlap(theirs)
			if what == "" {
				continue
			}
			seen[o.FlowID] = true
			via := append(slices.Clone(at.via), o.FlowID.String())
			if sameCluster(o.TargetService, flow.SourceService, o.TargetCluster, flow.SourceCluster) {
				return &Error{Code: CodeConflict, Message: fmt.Sprintf(
					"with IdentityReplicationPolicy the records would come back to the source over flow %s for ever: %s",
					strings.Join(via, ", then flow "), what)}
			}
			queue = append(queue, node{o.TargetService, o.TargetCluster, via})
		}
	}
	return nil
}

package topics

import (
	"fmt"
	"maps"
	"sort"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

// MaxExcluded bounds Discovery.Excluded. Topics that no include entry matches are never listed: the list is there to
// answer "why is this topic, which I asked for, not copied?".
const MaxExcluded = 1000

// maxExamples bounds Selection.Examples.
const maxExamples = 5

// Compile turns Java patterns into matchers, one for each entry. field names the list in the error.
func Compile(field string, patterns []string) ([]mm2.Matcher, error) {
	out := make([]mm2.Matcher, 0, len(patterns))
	for i, p := range patterns {
		m, err := javaregex.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// Selected is a source topic that the flow mirrors.
type Selected struct {
	Topic      SourceTopic
	Remote     string // name on the target
	Heartbeats bool   // carries heartbeats, mirrored past the lists
}

// Selection is what the lists make of the source's topics.
type Selection struct {
	Topics   []Selected        // ordered by name
	Excluded []report.Excluded // ordered by name, at most MaxExcluded
	// InvalidNames are matched topics whose remote name would be illegal, with the reason.
	InvalidNames map[string]string
	// Matched counts Topics without heartbeats, the number that a person asked for.
	Matched int
	// Examples are the first names, at most five, of topics that the lists do not select and could; for messages.
	Examples []string
	// Undecided are topics for which a pattern ran out of time; what is mirrored already goes on.
	Undecided map[string]error
}

// selector remembers decisions: names do not change, and patterns may be slow. Most topics of a large cluster are none of
// the flow's, and of those it keeps the name only.
type selector struct {
	rule    mm2.TopicSelector
	others  map[string]struct{}     // mm2.ReasonNotMatched
	decided map[string]mm2.Decision // all others
}

func newSelector(rule mm2.TopicSelector) *selector {
	return &selector{rule: rule, others: map[string]struct{}{}, decided: map[string]mm2.Decision{}}
}

// decide answers what is remembered, or decides.
func (s *selector) decide(name string) (mm2.Decision, error) {
	if _, ok := s.others[name]; ok {
		return mm2.Decision{Reason: mm2.ReasonNotMatched}, nil
	}
	if d, ok := s.decided[name]; ok {
		return d, nil
	}
	d, err := s.rule.Decide(name)
	switch {
	case err != nil:
	case !d.Replicate && d.Reason == mm2.ReasonNotMatched:
		s.others[name] = struct{}{}
	default:
		s.decided[name] = d
	}
	return d, err
}

// forget drops topics that are gone.
func (s *selector) forget(topics []SourceTopic) {
	if len(s.others)+len(s.decided) <= len(topics) {
		return // none, or about as many as came: it may wait
	}
	left := make(map[string]struct{}, len(topics))
	for _, t := range topics {
		left[t.Name] = struct{}{}
	}
	gone := func(name string) bool { _, ok := left[name]; return !ok }
	maps.DeleteFunc(s.others, func(name string, _ struct{}) bool { return gone(name) })
	maps.DeleteFunc(s.decided, func(name string, _ mm2.Decision) bool { return gone(name) })
}

// wanted tells whether the include list asks for a topic that a rule excludes before the lists are looked at.
func (s *selector) wanted(name string, reason mm2.Reason) bool {
	if reason != mm2.ReasonInternal && reason != mm2.ReasonHeartbeatsOff {
		return true
	}
	v, err := s.rule.Filter.Match(name)
	return err == nil && v.IncludedBy != ""
}

// apply decides about every topic. Not safe for concurrent use.
func (s *selector) apply(topics []SourceTopic) Selection {
	out := Selection{InvalidNames: map[string]string{}, Undecided: map[string]error{}}
	for _, t := range topics {
		d, err := s.decide(t.Name)
		if err != nil {
			out.Undecided[t.Name] = err
			out.Excluded = append(out.Excluded, report.Excluded{Name: t.Name, Reason: "no decision: " + err.Error()})
			continue
		}
		switch {
		case d.Replicate:
			hb := d.Reason == mm2.ReasonHeartbeats
			out.Topics = append(out.Topics, Selected{Topic: t, Remote: d.Remote, Heartbeats: hb})
			if !hb {
				out.Matched++
			}
		case d.Reason == mm2.ReasonNotMatched:
			out.Examples = append(out.Examples, t.Name)
		case d.Reason == mm2.ReasonInvalidName:
			why := d.String()
			if err := mm2.ValidateTopicName(d.Remote); err != nil {
				why = err.Error()
			}
			out.InvalidNames[t.Name] = why
			out.Excluded = append(out.Excluded, report.Excluded{Name: t.Name, Reason: why})
		default:
			if d.Reason == mm2.ReasonExcluded {
				out.Examples = append(out.Examples, t.Name)
			}
			if s.wanted(t.Name, d.Reason) {
				out.Excluded = append(out.Excluded, report.Excluded{Name: t.Name, Reason: d.String()})
			}
		}
	}
	s.forget(topics)
	sort.Strings(out.Examples)
	out.Examples = out.Examples[:min(len(out.Examples), maxExamples):min(len(out.Examples), maxExamples)]
	sort.Slice(out.Topics, func(i, j int) bool { return out.Topics[i].Topic.Name < out.Topics[j].Topic.Name })
	sort.Slice(out.Excluded, func(i, j int) bool { return out.Excluded[i].Name < out.Excluded[j].Name })
	if len(out.Excluded) > MaxExcluded {
		out.Excluded = out.Excluded[:MaxExcluded]
	}
	return out
}

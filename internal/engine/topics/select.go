package topics

import (
	"fmt"
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

// selector remembers decisions: names do not change, and patterns may be slow.
type selector struct {
	rule    mm2.TopicSelector
	decided map[string]mm2.Decision
}

func newSelector(rule mm2.TopicSelector) *selector {
	return &selector{rule: rule, decided: map[string]mm2.Decision{}}
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
	seen := make(map[string]mm2.Decision, len(topics))
	for _, t := range topics {
		d, ok := s.decided[t.Name]
		if !ok {
			var err error
			if d, err = s.rule.Decide(t.Name); err != nil {
				out.Undecided[t.Name] = err
				out.Excluded = append(out.Excluded, report.Excluded{Name: t.Name, Reason: "no decision: " + err.Error()})
				continue
			}
		}
		seen[t.Name] = d
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
	s.decided = seen // forget topics that are gone
	sort.Strings(out.Examples)
	out.Examples = out.Examples[:min(len(out.Examples), maxExamples):min(len(out.Examples), maxExamples)]
	sort.Slice(out.Topics, func(i, j int) bool { return out.Topics[i].Topic.Name < out.Topics[j].Topic.Name })
	sort.Slice(out.Excluded, func(i, j int) bool { return out.Excluded[i].Name < out.Excluded[j].Name })
	if len(out.Excluded) > MaxExcluded {
		out.Excluded = out.Excluded[:MaxExcluded]
	}
	return out
}

package mm2

import "fmt"

// Matcher decides about whole names. An error means that no decision was reached (a pattern ran out of time); it must
// not be read as "does not match". Implementations that also have String() string are named by it in decisions.
type Matcher interface {
	Matches(name string) (bool, error)
}

// Literal is a Matcher for exactly one name.
type Literal string

// Matches implements Matcher.
func (l Literal) Matches(name string) (bool, error) { return string(l) == name, nil }

// String is the name.
func (l Literal) String() string { return string(l) }

// MM2's defaults as Java patterns, one list entry each. Matching needs an engine for Java's grammar, which the caller
// brings along as Matchers.
var (
	// DefaultTopicExcludes is topics.exclude of 4.0 and later. For information: mirrorflow's default list is empty, since
	// internal names are excluded by rule.
	DefaultTopicExcludes = []string{`mm2.*\.internal`, `.*\.replica`, `__.*`}
	// DefaultTopicExcludes39 is topics.exclude of 3.9 and older.
	DefaultTopicExcludes39 = []string{`.*[\-\.]internal`, `.*\.replica`, `__.*`}
	// DefaultGroupExcludes is groups.exclude, which mirrorflow shares.
	DefaultGroupExcludes = []string{`console-consumer-.*`, `connect-.*`, `__.*`}
	// DefaultIncludes is the default of topics and groups.
	DefaultIncludes = []string{`.*`}
)

// Verdict is what include and exclude lists say about a name.
type Verdict struct {
	// Passes is true when an include entry matches and no exclude entry does. No include entries match nothing.
	Passes bool
	// IncludedBy and ExcludedBy name the first entry that matched, "" if none did.
	IncludedBy string
	ExcludedBy string
}

type nameFilter struct {
	include, exclude []Matcher
}

func (f nameFilter) Match(name string) (Verdict, error) {
	var v Verdict
	hit, err := firstMatch(f.include, name)
	if err != nil {
		return Verdict{}, fmt.Errorf("match include list: %w", err)
	}
	if hit == nil {
		return v, nil
	}
	v.IncludedBy = describe(hit)
	hit, err = firstMatch(f.exclude, name)
	if err != nil {
		return Verdict{}, fmt.Errorf("match exclude list: %w", err)
	}
	if hit != nil {
		v.ExcludedBy = describe(hit)
		return v, nil
	}
	v.Passes = true
	return v, nil
}

// MatchError says which entry of a list could not decide about a name.
type MatchError struct {
	Entry string
	Err   error // the Matcher's
}

// Error implements error.
func (e *MatchError) Error() string { return fmt.Sprintf("entry %q: %v", e.Entry, e.Err) }

// Unwrap returns the Matcher's error.
func (e *MatchError) Unwrap() error { return e.Err }

func firstMatch(ms []Matcher, name string) (Matcher, error) {
	for _, m := range ms {
		ok, err := m.Matches(name)
		if err != nil {
			return nil, &MatchError{describe(m), err}
		}
		if ok {
			return m, nil
		}
	}
	return nil, nil
}

func describe(m Matcher) string {
	if s, ok := m.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", m)
}

// TopicFilter is MM2's DefaultTopicFilter: entries are OR-ed, excluded wins, names are matched whole and case matters.
type TopicFilter struct{ nameFilter }

// NewTopicFilter builds a filter from include and exclude entries. The slices are kept.
func NewTopicFilter(include, exclude []Matcher) *TopicFilter {
	return &TopicFilter{nameFilter{include, exclude}}
}

// Match decides about one topic by the lists alone. The error is a Matcher's.
func (f *TopicFilter) Match(topic string) (Verdict, error) { return f.nameFilter.Match(topic) }

// GroupFilter is MM2's DefaultGroupFilter, with the rules of TopicFilter.
type GroupFilter struct{ nameFilter }

// NewGroupFilter builds a filter from include and exclude entries. The slices are kept.
func NewGroupFilter(include, exclude []Matcher) *GroupFilter {
	return &GroupFilter{nameFilter{include, exclude}}
}

// Match decides about one group by the lists alone. The error is a Matcher's.
func (f *GroupFilter) Match(group string) (Verdict, error) { return f.nameFilter.Match(group) }

// Reason says why a topic is mirrored or not. The texts are shown to users.
type Reason string

// The reasons of TopicSelector.Decide.
const (
	ReasonIncluded      Reason = "included"            // an include entry matches
	ReasonHeartbeats    Reason = "heartbeats"          // mirrored past the lists because it carries heartbeats
	ReasonNotMatched    Reason = "not matched"         // no include entry matches
	ReasonExcluded      Reason = "excluded"            // an exclude entry matches; Decision.Pattern names it
	ReasonInternal      Reason = "internal name"       // never mirrored, whatever the lists say
	ReasonCycle         Reason = "cycle"               // its records come from the target, or from the source itself
	ReasonHeartbeatsOff Reason = "heartbeats disabled" // HeartbeatsNever
	ReasonInvalidName   Reason = "remote name invalid" // the name on the target would not be a legal topic name
)

// Decision is the outcome for one source topic.
type Decision struct {
	Topic     string
	Replicate bool
	Reason    Reason
	// Pattern is the list entry that decided, for ReasonIncluded and ReasonExcluded.
	Pattern string
	// Remote is the topic's name on the target, set when Replicate is true or the reason is ReasonInvalidName.
	Remote string
}

// String renders the decision's reason for people, for example `excluded by tmp-.*`.
func (d Decision) String() string {
	if d.Pattern != "" {
		return string(d.Reason) + " by " + d.Pattern
	}
	return string(d.Reason)
}

// HeartbeatsRule says how heartbeats topics relate to the lists.
type HeartbeatsRule int8

const (
	// HeartbeatsAlways mirrors heartbeats topics whatever the lists say (heartbeats.replication.enabled=true, default).
	HeartbeatsAlways HeartbeatsRule = iota
	// HeartbeatsByFilter treats them like other topics (heartbeats.replication.enabled=false).
	HeartbeatsByFilter
	// HeartbeatsNever leaves them out even if the lists name them. MM2 has no such setting.
	HeartbeatsNever
)

// TopicSelector decides which source topics a flow mirrors. All fields but KnownAliases are required; the zero
// Heartbeats is MM2's default. It is safe for concurrent use if its Matchers are.
type TopicSelector struct {
	Filter      *TopicFilter
	Policy      ReplicationPolicy
	SourceAlias string
	TargetAlias string
	// KnownAliases are the aliases of other clusters whose copies may be on the source. Source and target are known
	// without being listed.
	KnownAliases []string
	Heartbeats   HeartbeatsRule
}

// Decide applies MM2's shouldReplicate to one source topic: (lists or heartbeats) and not internal and not a cycle,
// with two differences: heartbeats topics and cycles are recognised by full known aliases, and topics whose name on the
// target would be illegal (longer than 249 characters, above all) are left out. The error is a Matcher's; the topic must
// then be left alone and the error shown.
func (s TopicSelector) Decide(topic string) (Decision, error) {
	d := Decision{Topic: topic}
	if isNeverMirrored(s.Policy, topic) {
		d.Reason = ReasonInternal
		return d, nil
	}
	known := append([]string{s.SourceAlias, s.TargetAlias}, s.KnownAliases...)
	heartbeats := s.Policy.IsHeartbeatsTopicOf(topic, known)
	switch {
	case heartbeats && s.Heartbeats == HeartbeatsNever:
		d.Reason = ReasonHeartbeatsOff
		return d, nil
	case heartbeats && s.Heartbeats == HeartbeatsAlways:
		d.Reason = ReasonHeartbeats
	default:
		v, err := s.Filter.Match(topic)
		if err != nil {
			return Decision{Topic: topic}, fmt.Errorf("topic %q: %w", topic, err)
		}
		switch {
		case v.ExcludedBy != "":
			d.Reason, d.Pattern = ReasonExcluded, v.ExcludedBy
			return d, nil
		case !v.Passes:
			d.Reason = ReasonNotMatched
			return d, nil
		}
		d.Reason, d.Pattern = ReasonIncluded, v.IncludedBy
	}
	if s.Policy.IsCycle(topic, s.SourceAlias, s.TargetAlias, s.KnownAliases) {
		d.Reason, d.Pattern = ReasonCycle, ""
		return d, nil
	}
	d.Remote = s.Policy.FormatRemoteTopic(s.SourceAlias, topic)
	if !isTopicName(d.Remote) {
		d.Reason, d.Pattern = ReasonInvalidName, ""
		return d, nil
	}
	d.Replicate = true
	return d, nil
}

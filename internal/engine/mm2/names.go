package mm2

import (
	"errors"
	"fmt"
	"strings"
)

// MaxTopicNameLength is Kafka's limit for topic names, in bytes (all legal characters are ASCII).
const MaxTopicNameLength = 249

// ErrInvalidTopicName is wrapped by every error of ValidateTopicName.
var ErrInvalidTopicName = errors.New("invalid topic name")

// ValidateTopicName tells whether a broker would accept the name: 1 to 249 characters, letters, digits, '.', '_' and
// '-' only, neither "." nor "..".
func ValidateTopicName(name string) error {
	switch name {
	case "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTopicName)
	case ".", "..":
		return fmt.Errorf("%w: %q is reserved", ErrInvalidTopicName, name)
	}
	for i, r := range name {
		if !legalTopicRune(r) {
			return fmt.Errorf("%w: character %q at position %d is not a letter, digit, '.', '_' or '-'", ErrInvalidTopicName, r, i)
		}
	}
	if len(name) > MaxTopicNameLength {
		return fmt.Errorf("%w: %d characters, at most %d are allowed", ErrInvalidTopicName, len(name), MaxTopicNameLength)
	}
	return nil
}

func isTopicName(name string) bool { return ValidateTopicName(name) == nil }

func legalTopicRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// Names that do not depend on the replication policy: Connect's topics of a dedicated MM2 whose target is the cluster
// that holds them, and mirrorflow's own. All carry the source alias and always use ".".

// ConnectOffsetsTopic is the topic in which dedicated MM2 keeps its progress.
func ConnectOffsetsTopic(sourceAlias string) string {
	return "mm2-offsets." + sourceAlias + ".internal"
}

// ConnectConfigsTopic is Connect's config topic of dedicated MM2.
func ConnectConfigsTopic(sourceAlias string) string {
	return "mm2-configs." + sourceAlias + ".internal"
}

// ConnectStatusTopic is Connect's status topic of dedicated MM2.
func ConnectStatusTopic(sourceAlias string) string { return "mm2-status." + sourceAlias + ".internal" }

// ConnectGroup is the worker group of dedicated MM2; while it has members, MM2 runs.
func ConnectGroup(sourceAlias string) string { return sourceAlias + "-mm2" }

const stateTopicPrefix = "mirrorflow-state."

// StateTopic is mirrorflow's own compacted topic on the target: anchors and offset maps.
func StateTopic(sourceAlias string) string { return stateTopicPrefix + sourceAlias + ".internal" }

// IsStateTopic tells whether the name is one that StateTopic yields for some alias.
func IsStateTopic(topic string) bool {
	return strings.HasPrefix(topic, stateTopicPrefix) && strings.HasSuffix(topic, ".internal") &&
		len(topic) > len(stateTopicPrefix)+len(".internal")
}

// isNeverMirrored is the rule that the engine uses on top of a policy's: names that belong to the machinery whatever
// the separator says. MM2 relies on the default of topics.exclude for Connect's topics under a custom separator, ours
// is empty.
func isNeverMirrored(p ReplicationPolicy, topic string) bool {
	return p.IsInternalTopic(topic) || IsStateTopic(topic) ||
		strings.HasPrefix(topic, "mm2-") && strings.HasSuffix(topic, ".internal")
}

// walkAliases calls visit for every name that is reached from topic by taking known alias prefixes off, topic itself
// included, with the alias that was taken last ("" at the start), until visit returns true. Aliases may contain the
// separator, and one may be a prefix of another ("a" and "a.b"), so every way of reading the name is followed: a chain
// that any reading shows is a chain. Each name is a suffix of topic, so that there are at most len(topic) of them.
func (b base) walkAliases(topic string, aliases []string, visit func(name, alias string) bool) bool {
	seen := map[string]bool{}
	var walk func(name, alias string) bool
	walk = func(name, alias string) bool {
		if visit(name, alias) {
			return true
		}
		if seen[name] {
			return false
		}
		seen[name] = true
		for _, a := range aliases {
			if rest, ok := b.stripPrefix(a, name); ok && walk(rest, a) {
				return true
			}
		}
		return false
	}
	return walk(topic, "")
}

// passes tells whether a chain of known aliases in front of topic contains one of the wanted ones.
func (b base) passes(topic string, wanted, known []string) bool {
	all := append(append(make([]string, 0, len(wanted)+len(known)), wanted...), known...)
	return b.walkAliases(topic, all, func(_, alias string) bool {
		for _, w := range wanted {
			if alias != "" && alias == w {
				return true
			}
		}
		return false
	})
}

// reaches tells whether taking known aliases off topic can leave exactly original.
func (b base) reaches(topic string, known []string, original string) bool {
	return b.walkAliases(topic, known, func(name, _ string) bool { return name == original })
}

// stripKnown takes known aliases off, the longest that fits each time, until none fits.
func (b base) stripKnown(topic string, known []string) string {
	for {
		best, longest := "", -1
		for _, a := range known {
			if rest, ok := b.stripPrefix(a, topic); ok && len(a) > longest {
				best, longest = rest, len(a)
			}
		}
		if longest < 0 {
			return topic
		}
		topic = best
	}
}

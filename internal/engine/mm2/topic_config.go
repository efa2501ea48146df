package mm2

import (
	"fmt"
	"sort"
)

// ConfigSource is where a described config value comes from, with Kafka's wire numbers.
type ConfigSource int8

// The sources of DescribeConfigs.
const (
	ConfigSourceUnknown              ConfigSource = 0
	ConfigSourceDynamicTopic         ConfigSource = 1
	ConfigSourceDynamicBroker        ConfigSource = 2
	ConfigSourceDynamicDefaultBroker ConfigSource = 3
	ConfigSourceStaticBroker         ConfigSource = 4
	ConfigSourceDefault              ConfigSource = 5
)

// ConfigEntry is one described config of a topic. A nil Value is a null on the wire (sensitive values are).
type ConfigEntry struct {
	Name      string
	Value     *string
	Source    ConfigSource
	ReadOnly  bool
	Sensitive bool
}

// ConfigOp is one incremental change of the target topic's configs: set Name to Value, or delete the override.
type ConfigOp struct {
	Name   string
	Delete bool
	Value  string
}

// ConfigSyncMode says how topic configs follow the source.
type ConfigSyncMode int8

const (
	// ConfigSyncIncremental sets what the source sets and removes only what an earlier sync set: overrides that someone
	// made on the target for properties that the source leaves at their default stay. It is mirrorflow's default.
	ConfigSyncIncremental ConfigSyncMode = iota
	// ConfigSyncMirror is MM2's way (use.defaults.from=target): every property that is at its default on the source is
	// deleted on the target, and everything is sent at every sync.
	ConfigSyncMirror
)

// DefaultConfigPropertyExcludes is config.properties.exclude of MM2 4.3 and later, and beside it the topic-level names
// of the two timestamp limits: MM2 lists the broker-level names only, which never occur on topics, and so copies limits
// that make the target refuse records.
var DefaultConfigPropertyExcludes = []string{
	"follower.replication.throttled.replicas",
	"leader.replication.throttled.replicas",
	"message.timestamp.difference.max.ms",
	"log.message.timestamp.before.max.ms",
	"log.message.timestamp.after.max.ms",
	"message.timestamp.type",
	"unclean.leader.election.enable",
	"min.insync.replicas",
	"message.timestamp.before.max.ms",
	"message.timestamp.after.max.ms",
}

// DefaultConfigPropertyExcludesMM2 is MM2's own list (4.3 and later), for parity.
var DefaultConfigPropertyExcludesMM2 = DefaultConfigPropertyExcludes[:8:8]

// ConfigPropertyFilter decides which topic configs are copied, and how.
type ConfigPropertyFilter struct {
	exclude []Matcher
}

// NewConfigPropertyFilter builds a filter from exclude entries, matched on whole property names. The slice is kept.
func NewConfigPropertyFilter(exclude []Matcher) *ConfigPropertyFilter {
	return &ConfigPropertyFilter{exclude: exclude}
}

// ConfigSkip names a property that the source sets and that was not copied.
type ConfigSkip struct {
	Name   string
	Reason string
}

// Reasons of ConfigSkip.
const (
	ConfigSkipExcluded      = "excluded"              // by the exclude list
	ConfigSkipUnknownTarget = "unknown on the target" // sending it would make the target refuse the whole topic
)

// ConfigPlan is what one sync of one topic comes to.
type ConfigPlan struct {
	// Ops are the changes, ordered by name; empty when there is nothing to send.
	Ops []ConfigOp
	// Owned is what will be ours on the target once Ops are carried out: to be stored and passed in the next time. Never
	// nil.
	Owned map[string]string
	// Skipped are overrides of the source topic that are not copied.
	Skipped []ConfigSkip
}

// copyable is MM2's filter of entries, without the exclude list: read-only and sensitive ones and those from the
// broker's static file stay. Dynamic broker configs pass, as in MM2: the topic behaves by them on the source.
func copyable(e ConfigEntry) bool {
	return !e.ReadOnly && !e.Sensitive && e.Value != nil && e.Source != ConfigSourceStaticBroker
}

func (f *ConfigPropertyFilter) excluded(name string) (bool, error) {
	m, err := firstMatch(f.exclude, name)
	if err != nil {
		return false, fmt.Errorf("match config exclude list: %w", err)
	}
	return m != nil, nil
}

// AtCreation yields the configs for the create request of a new topic: what the source sets, none of its defaults.
// known is the set of property names that the target knows, nil if that is not known. Ops of the plan are all sets.
func (f *ConfigPropertyFilter) AtCreation(source []ConfigEntry, known map[string]bool) (ConfigPlan, error) {
	return f.plan(ConfigSyncIncremental, source, nil, known, nil)
}

// Plan computes one sync of an existing topic.
//
// source and target are the topic's described configs on the two sides. target may be nil (could not be described):
// then nothing is left out because the target has it already, or does not know it, and owned overrides are removed
// without looking. owned is the Owned of the plan carried out before (for a topic that we created, of AtCreation).
//
// In ConfigSyncIncremental mode, an override that is gone on the source is removed on the target if it is owned and has
// still the value that we set; someone else's later change stays. A value that the target has already is not sent and
// does not become owned.
func (f *ConfigPropertyFilter) Plan(mode ConfigSyncMode, source, target []ConfigEntry, owned map[string]string) (ConfigPlan, error) {
	if target == nil {
		return f.plan(mode, source, nil, nil, owned)
	}
	overrides := make(map[string]string)
	known := make(map[string]bool, len(target))
	for _, e := range target {
		known[e.Name] = true
		if e.Source == ConfigSourceDynamicTopic && e.Value != nil {
			overrides[e.Name] = *e.Value
		}
	}
	return f.plan(mode, source, overrides, known, owned)
}

// plan does the work; overrides (of the target topic) and known are nil when not known.
func (f *ConfigPropertyFilter) plan(mode ConfigSyncMode, source []ConfigEntry, overrides map[string]string, known map[string]bool, owned map[string]string) (ConfigPlan, error) {
	p := ConfigPlan{Owned: map[string]string{}}
	wanted := make(map[string]bool)
	kept := make(map[string]bool) // excluded now: leave what is there, ours or not
	for _, e := range source {
		excluded, err := f.excluded(e.Name)
		if err != nil {
			return ConfigPlan{}, err
		}
		if excluded {
			kept[e.Name] = true
			if e.Source == ConfigSourceDynamicTopic {
				p.Skipped = append(p.Skipped, ConfigSkip{e.Name, ConfigSkipExcluded})
			}
			continue
		}
		if !copyable(e) {
			continue
		}
		if e.Source == ConfigSourceDefault {
			if mode == ConfigSyncMirror {
				if _, has := overrides[e.Name]; has || overrides == nil {
					p.Ops = append(p.Ops, ConfigOp{Name: e.Name, Delete: true})
				}
				wanted[e.Name] = true
			}
			continue
		}
		if known != nil && !known[e.Name] {
			p.Skipped = append(p.Skipped, ConfigSkip{e.Name, ConfigSkipUnknownTarget})
			continue
		}
		wanted[e.Name] = true
		before, ours := owned[e.Name]
		if current, has := overrides[e.Name]; has && current == *e.Value {
			if ours {
				p.Owned[e.Name] = before
				if before != current {
					p.Owned[e.Name] = current
				}
			}
			continue
		}
		p.Ops = append(p.Ops, ConfigOp{Name: e.Name, Value: *e.Value})
		p.Owned[e.Name] = *e.Value
	}
	for name, value := range owned {
		if wanted[name] {
			continue
		}
		if kept[name] {
			p.Owned[name] = value
			continue
		}
		current, has := overrides[name]
		if overrides == nil || has && current == value {
			p.Ops = append(p.Ops, ConfigOp{Name: name, Delete: true})
		}
	}
	sort.Slice(p.Ops, func(i, j int) bool { return p.Ops[i].Name < p.Ops[j].Name })
	sort.Slice(p.Skipped, func(i, j int) bool { return p.Skipped[i].Name < p.Skipped[j].Name })
	return p, nil
}

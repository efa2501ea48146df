package flows

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

// What a flow may hold.
const (
	maxPatterns      = 8192
	maxPatternChars  = 1024
	maxInterval      = 31536000 * time.Second
	maxTasks         = 1024
	maxSeparator     = 8
	maxReplication   = 32767
	defaultSeparator = "."
	// minRate gives each of the most tasks that a flow can have a share of one byte: a share of 0 would be no limit.
	minRate = maxTasks
	maxRate = 1<<53 - 1 // what JSON's readers keep exactly
)

// normaliseOptions makes lists that hold nothing equal to empty lists, as they come back from the store.
func normaliseOptions(o Options) Options {
	for _, l := range []*[]string{&o.Topics, &o.TopicExcludeList, &o.Groups, &o.GroupExcludeList, &o.ConfigPropertiesExclude} {
		if *l == nil {
			*l = []string{}
		}
	}
	return o
}

func validatePolicy(f *fieldErrors, class, separator string) {
	f.oneOf("/replicationPolicyClass", class, DefaultPolicyClass, IdentityPolicyClass)
	if separator == "" || len(separator) > maxSeparator || !legalTopicChars(separator) {
		f.addf("/replicationPolicySeparator", "must be 1 to %d of the characters that topic names may have: letters, digits, '.', '_', '-'", maxSeparator)
	}
}

func validateOptions(f *fieldErrors, o Options) {
	validatePatterns(f, "/topics", o.Topics)
	validatePatterns(f, "/topicExcludeList", o.TopicExcludeList)
	validatePatterns(f, "/groups", o.Groups)
	validatePatterns(f, "/groupExcludeList", o.GroupExcludeList)
	validatePatterns(f, "/configPropertiesExclude", o.ConfigPropertiesExclude)
	for _, i := range []struct {
		pointer string
		value   time.Duration
	}{
		{"/syncInterval", o.SyncInterval},
		{"/emitHeartbeatsInterval", o.EmitHeartbeatsInterval},
		{"/emitCheckpointsInterval", o.EmitCheckpointsInterval},
		{"/refreshTopicsInterval", o.RefreshTopicsInterval},
		{"/refreshGroupsInterval", o.RefreshGroupsInterval},
	} {
		if i.value < time.Second || i.value > maxInterval || i.value%time.Second != 0 {
			f.addf(i.pointer, "must be whole seconds from 1 to %d", int64(maxInterval/time.Second))
		}
	}
	if o.TasksMax < 1 || o.TasksMax > maxTasks {
		f.addf("/tasksMax", "must be 1 to %d", maxTasks)
	}
	if o.ReplicationFactor != -1 && (o.ReplicationFactor < 1 || o.ReplicationFactor > maxReplication) {
		f.addf("/replicationFactor", "must be -1 (the target's default) or 1 to %d", maxReplication)
	}
	f.oneOf("/offsetSyncsTopicLocation", o.OffsetSyncsTopicLocation, "source", "target")
	if o.OffsetLagMax < 0 {
		f.addf("/offsetLagMax", "must not be negative")
	}
	f.oneOf("/isolationLevel", o.IsolationLevel, "read_committed", "read_uncommitted")
	f.oneOf("/topicConfigSyncMode", o.TopicConfigSyncMode, "incremental", "mirror")
	validateStart(f, o)
	if o.SyncTopicACLs {
		f.addf("/syncTopicAcls", "true is not built yet; leave it out or send false")
	}
	if r := o.MaxBytesPerSecond; r != nil && (*r < minRate || *r > maxRate) {
		f.addf("/maxBytesPerSecond", "must be null (no limit) or %d to %d", minRate, int64(maxRate))
	}
}

func validateStart(f *fieldErrors, o Options) {
	if !f.oneOf("/startPosition", string(o.StartPosition), string(StartEarliest), string(StartLatest), string(StartTimestamp)) {
		return
	}
	switch {
	case o.StartPosition == StartTimestamp && o.StartTimestamp == nil:
		f.addf("/startTimestamp", "is required with startPosition timestamp")
	case o.StartPosition != StartTimestamp && o.StartTimestamp != nil:
		f.addf("/startTimestamp", "has no meaning with startPosition %s", o.StartPosition)
	case o.StartTimestamp != nil && (o.StartTimestamp.UnixMilli() < 0 || o.StartTimestamp.Year() > 9999):
		f.addf("/startTimestamp", "must be between the years 1970 and 9999")
	}
}

func validatePatterns(f *fieldErrors, pointer string, list []string) {
	if len(list) > maxPatterns {
		f.addf(pointer, "must have at most %d entries", maxPatterns)
		return
	}
	for i, entry := range list {
		if msg := checkPattern(entry); msg != "" {
			f.addf(pointer+"/"+strconv.Itoa(i), "%s", msg)
		}
	}
}

// checkPattern answers what is wrong with a pattern, "" when nothing is.
func checkPattern(entry string) string {
	if n := utf8.RuneCountInString(entry); n < 1 || n > maxPatternChars {
		return fmt.Sprintf("must be 1 to %d characters long", maxPatternChars)
	}
	if !utf8.ValidString(entry) {
		return "must be valid UTF-8"
	}
	for _, r := range entry {
		if r == 0 {
			return "must not contain NUL"
		}
	}
	if _, err := javaregex.Compile(entry); err != nil {
		return "is not a pattern that can be used: " + err.Error()
	}
	return ""
}

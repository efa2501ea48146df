package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

func TestWhenNothingMatchesTheMessageNamesTopicsThatTheSourceHas(t *testing.T) {
	t.Parallel()
	w := fakes(t, "examples")
	f := run(t, settings(w.name, w.src, w.tgt, "nothing-like-this", "out-.*"))
	c := f.untilCondition(report.NoTopicsMatched)
	require.Contains(t, c.Message, "no topics at all")
	require.Contains(t, c.Remedy, "DESCRIBE")
	require.NotContains(t, c.Remedy, "excludedTopics")

	for _, name := range []string{"g", "c", "e", "d", "b", "a", "__internal", "x.checkpoints.internal"} {
		w.create(w.srcAdm, name, 1, nil)
	}
	st := f.until("the topics are named", func(st report.Status) bool {
		c := condition(st, report.NoTopicsMatched)
		return c != nil && strings.Contains(c.Message, "the source has e.g. a, b, c, d, e")
	})
	c = *condition(st, report.NoTopicsMatched)
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, c.Evidence["example_topics"])
	require.NotContains(t, c.Remedy, "excludedTopics", "what does not match is not listed there")
}

func TestWhenEverythingIsExcludedTheRemedyPointsToTheList(t *testing.T) {
	t.Parallel()
	w := fakes(t, "allout")
	w.create(w.srcAdm, "orders", 1, nil)
	cfg := settings(w.name, w.src, w.tgt, ".*")
	cfg.TopicExcludeList = []string{"or.*"}
	c := run(t, cfg).untilCondition(report.NoTopicsMatched)
	require.Contains(t, c.Message, "the source has e.g. orders")
	require.Contains(t, c.Remedy, "excludedTopics")
}

func TestATopicForWhichAPatternRunsOutOfTimeIsNamed(t *testing.T) {
	t.Parallel()
	w := fakes(t, "slow")
	const slow = `(a|aa)+b`
	name := strings.Repeat("a", 60)
	w.create(w.srcAdm, name, 1, nil)
	w.create(w.srcAdm, "ok", 1, nil)
	f := run(t, settings(w.name, w.src, w.tgt, "ok", slow))
	c := f.untilCondition(report.TopicUndecided)
	require.Equal(t, report.Warning, c.Severity)
	require.Equal(t, report.Subject{Topic: name, Partition: -1}, c.Subject)
	require.Contains(t, c.Message, name)
	require.Contains(t, c.Message, slow)
	require.Equal(t, slow, c.Evidence["pattern"])
	f.untilState(report.Running)
	_, err := w.srcAdm.DeleteTopics(w.ctx(), name)
	require.NoError(t, err)
	f.until("the topic is not undecided any more", func(st report.Status) bool { return condition(st, report.TopicUndecided) == nil })
}

func TestAnUndecidedTopicIsNotShownAsSuchOnceItIsDecided(t *testing.T) {
	t.Parallel()
	task, _, _ := idle(t)
	p, err := javaregex.Compile(`(a|aa)+b`, javaregex.WithMatchTimeLimit(time.Millisecond))
	require.NoError(t, err)
	_, undecided := mm2.NewTopicFilter([]mm2.Matcher{p}, nil).Match(strings.Repeat("a", 60))
	require.Error(t, undecided)
	d := topics.Discovery{Existing: 1, Selection: topics.Selection{Matched: 1, Undecided: map[string]error{"a": undecided, "b": errors.New("another reason")}}}
	task.reportSelection(d)
	require.Len(t, conditionsOf(task, report.TopicUndecided), 2)
	delete(d.Undecided, "a")
	task.reportSelection(d)
	left := conditionsOf(task, report.TopicUndecided)
	require.Len(t, left, 1)
	require.Equal(t, "b", left[0].Subject.Topic)
}

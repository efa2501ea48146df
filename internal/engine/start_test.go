package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

func mapOf(t *testing.T, runs ...[3]int64) *mm2.OffsetMap {
	t.Helper()
	m := mm2.NewOffsetMap(0)
	for _, r := range runs {
		require.NoError(t, m.AddRun(r[0], r[1], r[2]))
	}
	return m
}

func TestWhereAPartitionStarts(t *testing.T) {
	t.Parallel()
	one, two := [16]byte{1}, [16]byte{2}
	entry := func(position, next int64, m *mm2.OffsetMap) state.Entry {
		return state.Entry{SourceTopic: "t", SourceTopicID: one, TargetTopicID: one, Position: position, TargetNext: next, Map: m}
	}
	tests := []struct {
		name       string
		in         startInput
		position   int64
		codes      []string
		from, to   int64 // a group's source offset and where it goes on
		untranslat bool
	}{
		{
			name: "without an entry at the beginning, whatever retention left", position: 40, from: 40, to: 7,
			in: startInput{sourceID: one, targetID: one, logStart: 40, logEnd: 90, targetEnd: 7},
		},
		{
			name: "at the stored position", position: 60, from: 50, to: 50,
			in: startInput{sourceID: one, targetID: one, logEnd: 90, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "B17: at the log start when retention overtook, and the gap is told", position: 80, codes: []string{report.OffsetsLost}, from: 70, to: 60,
			in: startInput{sourceID: one, targetID: one, logStart: 80, logEnd: 90, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "B18: at the beginning of a topic made anew, with a new map", position: 0, codes: []string{report.TopicRecreated}, from: 0, to: 60,
			in: startInput{sourceID: two, targetID: one, logEnd: 90, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "B20, B21: at the end of a source that lost its tail", position: 50, codes: []string{report.SourceTruncated}, from: 50, to: 60,
			in: startInput{sourceID: one, targetID: one, logEnd: 50, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "B43: a target topic made anew begins with the stored position", position: 60, codes: []string{report.TargetDataLost}, from: 60, to: 0,
			in: startInput{sourceID: one, targetID: two, logEnd: 90, targetEnd: 0, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "B44: a target that lost its tail keeps the rest of the map", position: 60, codes: []string{report.TargetDataLost}, from: 20, to: 20,
			in: startInput{sourceID: one, targetID: one, logEnd: 90, targetEnd: 30, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "two misfortunes are told both", position: 80, codes: []string{report.OffsetsLost, report.TargetDataLost}, from: 80, to: 0,
			in: startInput{sourceID: one, targetID: two, logStart: 80, logEnd: 90, targetEnd: 0, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "MM2's position is taken over without a map", position: 60, from: 60, to: 61,
			in: startInput{
				sourceID: one, targetID: one, logEnd: 90, targetEnd: 61, hasEntry: true,
				entry: state.Entry{SourceTopic: "t", Position: 60, TargetNext: -1},
			},
		},
		{
			name: "brokers without topic ids are judged by offsets alone", position: 60, from: 10, to: 10,
			in: startInput{logEnd: 90, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
		{
			name: "nothing was acknowledged yet, so a target made anew lost nothing", position: 5, from: 5, to: 0,
			in: startInput{sourceID: one, targetID: two, logEnd: 90, targetEnd: 0, hasEntry: true, entry: entry(5, -1, nil)},
		},
		{
			name: "an emptied log has lost what was not mirrored", position: 90, codes: []string{report.OffsetsLost}, from: 90, to: 60,
			in: startInput{sourceID: one, targetID: one, logStart: 90, logEnd: 90, targetEnd: 60, hasEntry: true, entry: entry(60, 60, mapOf(t, [3]int64{0, 0, 60}))},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.topic, tt.in.remote = "t", "a.t"
			d := decideStart(tt.in)
			require.Equal(t, tt.position, d.position)
			var codes []string
			for _, n := range d.notices {
				codes = append(codes, n.event.Code)
				require.NotEmpty(t, n.event.Message)
				require.NotEmpty(t, n.remedy)
				require.Equal(t, "a.t", n.event.Evidence["remote_topic"])
			}
			require.Equal(t, tt.codes, codes)
			tr := d.offsets.Translate(tt.from, d.position)
			require.True(t, tr.OK)
			require.Equal(t, tt.to, tr.Offset)
		})
	}
}

func TestAPointIsReliedOnOnlyWhereTheSourceStillHasWhatWasCopied(t *testing.T) {
	t.Parallel()
	one := [16]byte{1}
	good := func() startInput {
		return startInput{
			sourceID: one, targetID: one, logEnd: 90, targetEnd: 75, countable: true, hasEntry: true, entry: state.Entry{
				SourceTopic: "t", SourceTopicID: one, TargetTopicID: one, Position: 60, TargetNext: 65, Map: mapOf(t, [3]int64{0, 5, 60}),
				Producer: &state.Producer{ID: 7, Epoch: 2, Sequence: 30, Target: 65},
			},
		}
	}
	require.Equal(t, &mirror.Point{Source: 60, Target: 65, ProducerID: 7, Epoch: 2, Sequence: 30}, decideStart(good()).point)
	for name, change := range map[string]func(*startInput){
		"nothing is stored":                       func(in *startInput) { in.hasEntry = false },
		"no producer was":                         func(in *startInput) { in.entry.Producer = nil },
		"the topic is compacted":                  func(in *startInput) { in.countable = false },
		"retention passed the position":           func(in *startInput) { in.logStart = 61 },
		"the source lost its end":                 func(in *startInput) { in.logEnd = 50 },
		"the source's topic was made anew":        func(in *startInput) { in.sourceID = [16]byte{2} },
		"the target's topic was made anew":        func(in *startInput) { in.targetID = [16]byte{2} },
		"the target lost what it had before":      func(in *startInput) { in.targetEnd = 64 },
		"the stored producer is an adopted one's": func(in *startInput) { in.entry = state.Entry{SourceTopic: "t", Position: 60, TargetNext: -1} },
	} {
		in := good()
		change(&in)
		d := decideStart(in)
		require.Equal(t, &mirror.Point{Source: d.position, Target: in.targetEnd, ProducerID: -1}, d.point, name)
	}
	require.Nil(t, decideStart(startInput{logStart: 3, logEnd: 90, targetEnd: -1}).point)
}

func TestTheStateOfATaskIsWhatWasObserved(t *testing.T) {
	t.Parallel()
	flow := func(code string, s report.Severity) report.Condition {
		return report.Condition{Code: code, Severity: s, Subject: report.Flow}
	}
	part := func(code string, s report.Severity) report.Condition {
		return report.Condition{Code: code, Severity: s, Subject: report.Subject{Topic: "t"}}
	}
	tests := []struct {
		name           string
		conds          []report.Condition
		ready          bool
		running, total int
		want           report.State
	}{
		{name: "starting", want: report.Starting},
		{name: "all moves", ready: true, running: 3, total: 3, want: report.Running},
		{name: "no cluster, nothing moves", conds: []report.Condition{flow("SOURCE_UNREACHABLE", report.Error)}, running: 3, total: 3, ready: true, want: report.Failed},
		{name: "no cluster from the start", conds: []report.Condition{flow("TARGET_AUTH_FAILED", report.Error)}, want: report.Failed},
		{name: "a refused topic stops itself", conds: []report.Condition{part("SOURCE_FORBIDDEN", report.Error)}, ready: true, running: 2, total: 3, want: report.Degraded},
		{name: "every partition stopped", conds: []report.Condition{part(report.RecordTooLarge, report.Error)}, ready: true, total: 1, want: report.Failed},
		{name: "a topic of the target is missing, which is not the target", conds: []report.Condition{part(report.TargetTopicMissing, report.Error)}, ready: true, running: 1, total: 2, want: report.Degraded},
		{name: "what has happened does not degrade", conds: []report.Condition{part(report.OffsetsLost, report.Warning)}, ready: true, running: 1, total: 1, want: report.Running},
		{name: "nothing selected", conds: []report.Condition{flow(report.NoTopicsMatched, report.Warning)}, ready: true, want: report.Degraded},
		{name: "nothing for this task", ready: true, want: report.Running},
		{name: "the positions cannot be read", conds: []report.Condition{flow(report.StateFailed, report.Error)}, want: report.Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, stateOf(tt.conds, tt.ready, tt.running, tt.total))
		})
	}
}

func TestPartitionsStayWithTheirTaskAndSpread(t *testing.T) {
	t.Parallel()
	count := make([]int, 4)
	for p := range int32(400) {
		n := taskOf("orders", p, 4)
		require.Equal(t, n, taskOf("orders", p, 4))
		count[n]++
	}
	for n, c := range count {
		require.Greaterf(t, c, 50, "task %d", n)
	}
	require.Zero(t, taskOf("orders", 7, 1))
}

func TestTriesOfAPartitionGrowApart(t *testing.T) {
	t.Parallel()
	p := newPartition(mirror.TP{Topic: "t"}, "a.t")
	now := time.Now()
	p.backOff(now)
	require.True(t, p.notBefore.IsZero(), "the first decision comes at once")
	last := time.Duration(0)
	for range 12 {
		p.backOff(now)
		wait := p.notBefore.Sub(now)
		require.GreaterOrEqual(t, wait, last)
		require.LessOrEqual(t, wait, 30*time.Second)
		last = wait
	}
	require.Equal(t, 30*time.Second, last)
}

func TestEveryReasonToStopHasARule(t *testing.T) {
	t.Parallel()
	for r := mirror.StopOutOfRange; r <= mirror.StopTargetUnavailable; r++ {
		rule, ok := stopRules[r]
		require.Truef(t, ok, "reason %d", r)
		require.Truef(t, rule.redecide || rule.code != "", "reason %d shows nowhere", r)
		require.True(t, rule.code == "" || rule.remedy != "")
	}
}

func TestAConfigurationIsRefusedByMember(t *testing.T) {
	t.Parallel()
	good := func() Config {
		c := settings("x", "127.0.0.1:9092", "127.0.0.1:9093", ".*")
		c.Sink = newSink()
		return c
	}
	c := good()
	require.NoError(t, c.validate())
	for member, spoil := range map[string]func(*Config){
		"Identity.FlowID":         func(c *Config) { c.Identity.FlowID = "" },
		"Identity.Task":           func(c *Config) { c.Identity.Task = 1 },
		"SourceAlias":             func(c *Config) { c.SourceAlias = "a b" },
		"TargetAlias":             func(c *Config) { c.TargetAlias = c.SourceAlias },
		"Separator":               func(c *Config) { c.Separator = "" },
		"Sink":                    func(c *Config) { c.Sink = nil },
		"ReplicationFactor":       func(c *Config) { c.ReplicationFactor = 0 },
		"StartTimestamp":          func(c *Config) { c.StartPosition = StartTimestamp },
		"StartPosition":           func(c *Config) { c.StartPosition = "middle" },
		"RefreshTopicsInterval":   func(c *Config) { c.RefreshTopicsInterval = -1 },
		"Source.Credentials":      func(c *Config) { c.Source.Credentials = nil },
		"Topics[0]":               func(c *Config) { c.Topics = []string{"["} },
		"TopicExcludeList[1]":     func(c *Config) { c.TopicExcludeList = []string{"a", "*"} },
		"ConfigPropertiesExclude": func(c *Config) { c.ConfigPropertiesExclude = []string{"("} },
	} {
		c := good()
		spoil(&c)
		_, err := New(c)
		require.ErrorContains(t, err, "Config."+member)
	}
}

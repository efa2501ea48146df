package flows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var instant = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(seconds int) time.Time { return instant.Add(-time.Duration(seconds) * time.Second) }

// held is a task whose holder reports a state.
func held(task int, state FlowState, since int, topics ...TopicStatus) TaskState {
	return TaskState{
		Task: task, Owner: "w", Epoch: 3, Held: true, Since: ago(100), ReportEpoch: 3,
		Report: &TaskStatus{State: state, Since: ago(since), ObservedAt: ago(task + 1), Topics: topics},
	}
}

func free(task, since int) TaskState { return TaskState{Task: task, Since: ago(since)} }

func TestStatesOfTasksMakeOneState(t *testing.T) {
	t.Parallel()
	starting := TaskState{Owner: "w", Epoch: 4, Held: true, Since: ago(7), ReportEpoch: 3, Report: &TaskStatus{State: StateRunning, Since: ago(50), ObservedAt: ago(20)}}
	dead := held(0, StateRunning, 50)
	dead.Held, dead.Since = false, ago(8)
	for _, c := range []struct {
		name     string
		disabled bool
		tasks    []TaskState
		state    FlowState
		since    time.Time
		noWorker bool
	}{
		{"running", false, []TaskState{held(0, StateRunning, 5)}, StateRunning, ago(5), false},
		{"all running since the last began", false, []TaskState{held(0, StateRunning, 5), held(1, StateRunning, 3)}, StateRunning, ago(3), false},
		{"nobody took it", false, []TaskState{free(0, 9)}, StatePending, ago(9), true},
		{"its worker died", false, []TaskState{dead}, StatePending, ago(8), true},
		{"nobody took any", false, []TaskState{free(0, 9), free(1, 11)}, StatePending, ago(11), true},
		{"taken, nothing reported under this term", false, []TaskState{starting}, StateStarting, ago(7), false},
		{"one failed", false, []TaskState{held(0, StateRunning, 5), held(1, StateFailed, 4)}, StateDegraded, ago(4), false},
		{"one degraded", false, []TaskState{held(0, StateRunning, 5), held(1, StateDegraded, 4)}, StateDegraded, ago(4), false},
		{"all failed", false, []TaskState{held(0, StateFailed, 6), held(1, StateFailed, 4)}, StateFailed, ago(6), false},
		{"one starting", false, []TaskState{held(0, StateRunning, 6), held(1, StateStarting, 4)}, StateStarting, ago(4), false},
		{"one without a worker", false, []TaskState{held(0, StateRunning, 6), free(1, 4)}, StateDegraded, ago(4), true},
		{"all that run failed", false, []TaskState{held(0, StateFailed, 6), free(1, 4)}, StateFailed, ago(6), true},
		{"disabled and given up", true, []TaskState{free(0, 9)}, StateStopped, ago(9), false},
		{"disabled and its worker dead", true, []TaskState{dead}, StateStopped, ago(8), false},
		{"disabled and still running", true, []TaskState{held(0, StateRunning, 5)}, StateRunning, ago(5), false},
		{"disabled and drained", true, []TaskState{held(0, StateStopped, 5)}, StateStopped, ago(5), false},
		{"a task above the limit that is still held", false, []TaskState{held(0, StateRunning, 5), held(1, StateRunning, 4), held(5, StateRunning, 2)}, StateRunning, ago(2), false},
		{"a task above the limit that is not", false, []TaskState{held(0, StateRunning, 5), held(1, StateRunning, 4), free(5, 2)}, StateRunning, ago(4), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := MergeStatus(FlowTasks{Flow: Flow{Options: Options{Enabled: !c.disabled, TasksMax: 2}}, Tasks: c.tasks, Now: instant, AliveWorkers: 1})
			require.Equal(t, c.state, s.State)
			require.Equal(t, c.since, s.Since)
			if !c.noWorker {
				require.Empty(t, s.Conditions)
				return
			}
			require.Len(t, s.Conditions, 1)
			require.Equal(t, "NO_WORKER", s.Conditions[0].Code)
			require.Equal(t, SeverityError, s.Conditions[0].Severity)
			require.NotEmpty(t, s.Conditions[0].Remedy)
		})
	}
}

func TestRecordLagIsUnknownUnlessEveryTaskSeesItsPartitions(t *testing.T) {
	t.Parallel()
	lag := func(n int64) TopicStatus {
		return TopicStatus{Name: "z", Partitions: []PartitionStatus{{RecordLag: n, Partition: int32(n)}, {RecordLag: -1, Partition: 99}}}
	}
	given := held(1, StateRunning, 5, lag(4))
	given.Held = false
	earlier := held(1, StateRunning, 5, lag(4))
	earlier.ReportEpoch--
	silent := held(1, StateRunning, 5)
	silent.Report = nil
	for _, c := range []struct {
		name     string
		disabled bool
		tasks    []TaskState
		lag      int64 // -1: not known
	}{
		{"every task sees its partitions", false, []TaskState{held(0, StateRunning, 5, lag(3)), held(1, StateDegraded, 5, lag(4))}, 7},
		{"a task that runs has no partitions", false, []TaskState{held(0, StateRunning, 5, lag(3)), held(1, StateRunning, 5)}, 3},
		{"nothing is selected", false, []TaskState{held(0, StateRunning, 5)}, 0},
		{"a task failed after it had looked", false, []TaskState{held(0, StateRunning, 5, lag(3)), held(1, StateFailed, 5, lag(4))}, 7},
		{"a task failed before it looked", false, []TaskState{held(0, StateRunning, 5, lag(3)), held(1, StateFailed, 5)}, -1},
		{"a task has not looked yet", false, []TaskState{held(0, StateRunning, 5, lag(3)), held(1, StateStarting, 5)}, -1},
		{"a task has reported nothing", false, []TaskState{held(0, StateRunning, 5, lag(3)), silent}, -1},
		{"a task has reported to its last holder only", false, []TaskState{held(0, StateRunning, 5, lag(3)), earlier}, -1},
		{"a task has no worker", false, []TaskState{held(0, StateRunning, 5, lag(3)), free(1, 5)}, -1},
		{"a task has lost its worker", false, []TaskState{held(0, StateRunning, 5, lag(3)), given}, -1},
		{"no task has a worker", false, []TaskState{free(0, 5), free(1, 5)}, -1},
		{"the flow is disabled", true, []TaskState{given}, -1},
		{"there is no task", false, nil, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := MergeStatus(FlowTasks{Flow: Flow{Options: Options{Enabled: !c.disabled, TasksMax: 2}}, Tasks: c.tasks, Now: instant})
			if c.lag < 0 {
				require.Nil(t, s.RecordLag)
				return
			}
			require.Equal(t, &c.lag, s.RecordLag)
		})
	}
}

func TestReportsOfTasksAreJoined(t *testing.T) {
	t.Parallel()
	part := func(n int32, lag int64) PartitionStatus {
		return PartitionStatus{Partition: n, RecordLag: lag, State: "RUNNING"}
	}
	a := held(0, StateRunning, 5,
		TopicStatus{Name: "z", RemoteName: "s.z", Partitions: []PartitionStatus{part(2, 1)}},
		TopicStatus{Name: "a", RemoteName: "s.a", Partitions: []PartitionStatus{part(0, 2)}})
	b := held(1, StateRunning, 5, TopicStatus{Name: "z", RemoteName: "s.z", Partitions: []PartitionStatus{part(0, 3), part(1, -1)}})
	gone := held(2, StateRunning, 5, TopicStatus{Name: "z", RemoteName: "s.z", Partitions: []PartitionStatus{part(1, 90), part(3, 10)}})
	gone.Held = false
	two := int32(2)
	a.Report.Conditions = []Condition{
		{Code: "W", Severity: SeverityWarning, Since: ago(1)},
		{Code: "E", Severity: SeverityError, Since: ago(5), Subject: Subject{Topic: "z", Partition: &two}},
	}
	b.Report.Conditions = []Condition{{Code: "W", Severity: SeverityWarning, Since: ago(9)}, {Code: "E", Severity: SeverityError, Subject: Subject{Topic: "z"}}}
	a.Report.Groups = []GroupStatus{{Group: "g", State: "Empty", Topics: []GroupTopicStatus{{Topic: "z", Partition: 2}}}}
	b.Report.Groups = []GroupStatus{{Group: "f"}, {Group: "g", Topics: []GroupTopicStatus{{Topic: "z", Partition: 0}, {Topic: "z", Partition: 2}}}}
	a.Report.ExcludedTopics = []ExcludedTopic{{Name: "y"}, {Name: "b"}}
	b.Report.ExcludedTopics = []ExcludedTopic{{Name: "b"}}
	s := MergeStatus(FlowTasks{Flow: Flow{Options: Options{Enabled: true, TasksMax: 3}}, Tasks: []TaskState{a, b, gone}, Now: instant})

	require.Equal(t, ago(2), s.ObservedAt, "the oldest observation that counts")
	require.Equal(t, []string{"a", "z"}, []string{s.Topics[0].Name, s.Topics[1].Name})
	waiting := part(3, 10)
	waiting.State = "WAITING"
	require.Equal(t, []PartitionStatus{part(0, 3), part(1, -1), part(2, 1), waiting}, s.Topics[1].Partitions, "a live report wins")
	require.Nil(t, s.RecordLag, "nobody looks at the partitions of a task without a worker")
	var codes []string
	for _, c := range s.Conditions {
		codes = append(codes, c.Code)
	}
	require.Equal(t, []string{"E", "E", "NO_WORKER", "W"}, codes)
	require.Equal(t, ago(9), s.Conditions[3].Since)
	require.Equal(t, []string{"f", "g"}, []string{s.Groups[0].Group, s.Groups[1].Group})
	require.Len(t, s.Groups[1].Topics, 2)
	require.Equal(t, []ExcludedTopic{{Name: "b"}, {Name: "y"}}, s.ExcludedTopics)
	require.Len(t, s.Tasks, 2)
	require.Len(t, a.Report.Groups[0].Topics, 1, "reports are not changed")
	require.Equal(t, "RUNNING", gone.Report.Topics[0].Partitions[0].State)
}

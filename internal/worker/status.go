package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
)

var flowStates = map[report.State]flows.FlowState{
	report.Starting: flows.StateStarting,
	report.Running:  flows.StateRunning,
	report.Degraded: flows.StateDegraded,
	report.Failed:   flows.StateFailed,
	report.Stopped:  flows.StateStopped,
}

var flowSeverities = map[report.Severity]flows.Severity{
	report.Error:   flows.SeverityError,
	report.Warning: flows.SeverityWarning,
	report.Info:    flows.SeverityInfo,
}

func toSubject(s report.Subject) flows.Subject {
	out := flows.Subject{Topic: s.Topic, Group: s.Group}
	if s.Partition >= 0 {
		p := s.Partition
		out.Partition = &p
	}
	return out
}

// translated remembers the topics of an engine's last status and what they were translated to: engines hand out again what
// has not changed (engine.Sink), and then neither side of it is made or compared anew.
type translated struct {
	mu     sync.Mutex
	topics []report.Topic
	as     []flows.TopicStatus
}

// same tells whether two slices are one and the same.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// to answers the topics' translation.
func (l *translated) to(topics []report.Topic) []flows.TopicStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if same(topics, l.topics) {
		return l.as
	}
	var out []flows.TopicStatus
	if len(topics) > 0 {
		out = make([]flows.TopicStatus, len(topics))
	}
	for i, t := range topics {
		if i < len(l.topics) && l.topics[i].Name == t.Name && l.topics[i].RemoteName == t.RemoteName && same(t.Partitions, l.topics[i].Partitions) {
			out[i] = l.as[i]
			continue
		}
		out[i] = toTopicStatus(t)
	}
	l.topics, l.as = topics, out
	return out
}

func toTopicStatus(t report.Topic) flows.TopicStatus {
	topic := flows.TopicStatus{Name: t.Name, RemoteName: t.RemoteName, Partitions: make([]flows.PartitionStatus, 0, len(t.Partitions))}
	for _, p := range t.Partitions {
		topic.Partitions = append(topic.Partitions, flows.PartitionStatus{
			Partition: p.Partition, LogStartOffset: p.LogStart, LogEndOffset: p.LogEnd, Position: p.Position,
			TargetLogEndOffset: p.TargetEnd, RecordLag: p.Lag, State: p.State,
		})
	}
	return topic
}

// toTaskStatus translates what an engine reported. Maps are copied where the
// engine might go on using them.
func toTaskStatus(s report.Status, last *translated) flows.TaskStatus {
	out := flows.TaskStatus{State: flowStates[s.State], Since: s.Since, ObservedAt: s.ObservedAt, Topics: last.to(s.Topics)}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, flows.Condition{
			Code: c.Code, Severity: flowSeverities[c.Severity], Since: c.Since, Subject: toSubject(c.Subject),
			Message: c.Message, Evidence: maps.Clone(c.Evidence), Remedy: c.Remedy,
		})
	}
	for _, e := range s.Excluded {
		out.ExcludedTopics = append(out.ExcludedTopics, flows.ExcludedTopic{Name: e.Name, Reason: e.Reason})
	}
	for _, g := range s.Groups {
		group := flows.GroupStatus{Group: g.Group, State: g.State, Topics: make([]flows.GroupTopicStatus, 0, len(g.Offsets))}
		for _, o := range g.Offsets {
			t := flows.GroupTopicStatus{
				Topic: o.Topic, Partition: o.Partition, SourceOffset: o.SourceOffset, Exact: o.Exact, Bound: o.Bound, Reason: o.Reason,
			}
			if o.TargetOffset >= 0 {
				target := o.TargetOffset
				t.TargetOffset = &target
			}
			group.Topics = append(group.Topics, t)
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// toEvent translates an event of an engine.
func toEvent(e report.Event, worker string, key flows.LeaseKey) (flows.Event, error) {
	out := flows.Event{
		FlowID: key.FlowID, At: e.At, Code: e.Code, Subject: toSubject(e.Subject), Message: e.Message,
		Worker: worker, TaskEpoch: key.Epoch,
	}
	if e.Evidence != nil {
		raw, err := json.Marshal(e.Evidence)
		if err != nil {
			return flows.Event{}, fmt.Errorf("encode the evidence of event %s: %w", e.Code, err)
		}
		out.Evidence = raw
	}
	return out, nil
}

// sameStatus compares all but the time of observation.
func sameStatus(a, b flows.TaskStatus) bool {
	a.ObservedAt, b.ObservedAt = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// sameHealth compares what people wait for: the state and the conditions' codes.
func sameHealth(a, b flows.TaskStatus) bool {
	if a.State != b.State || len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for i := range a.Conditions {
		if a.Conditions[i].Code != b.Conditions[i].Code {
			return false
		}
	}
	return true
}

package flows

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MergeStatus makes one status of a flow's tasks. A report counts as observed only while the lease lasts under which it
// was made; older ones lend their positions and nothing else, so that nothing looks alive that is not.
func MergeStatus(t FlowTasks) FlowStatus {
	m := newMerger()
	held := 0
	for _, task := range t.Tasks {
		if !task.Held && (!t.Flow.Enabled || task.Task >= t.Flow.TasksMax) {
			// Nobody runs it and nobody should; its last positions are still worth showing.
			m.remember(task)
			continue
		}
		if task.Held {
			held++
		}
		m.add(task)
	}
	out := &m.out
	switch {
	case held == 0 && !t.Flow.Enabled:
		out.State, out.Since, out.Conditions = StateStopped, m.stoppedSince(t), nil
	case held == 0:
		out.State = StatePending
		out.Since = m.waitingSince
		out.Conditions = append(out.Conditions, noWorker(t, m.waitingSince, m.waiting))
	default:
		out.State, out.Since = m.state()
		if m.waiting > 0 {
			out.Conditions = append(out.Conditions, noWorker(t, m.waitingSince, m.waiting))
		}
	}
	if m.observed.IsZero() {
		m.observed = m.last
	}
	out.ObservedAt = cmp.Or(m.observed, t.Now)
	out.Conditions = mergeConditions(out.Conditions)
	sortTopics(out.Topics)
	if held > 0 && m.waiting == 0 && !m.blind {
		lag := int64(0)
		for _, topic := range out.Topics {
			for _, p := range topic.Partitions {
				lag += max(0, p.RecordLag)
			}
		}
		out.RecordLag = &lag
	}
	sortGroups(out.Groups)
	slices.SortFunc(out.ExcludedTopics, func(a, b ExcludedTopic) int { return cmp.Compare(a.Name, b.Name) })
	return *out
}

func noWorker(t FlowTasks, since time.Time, waiting int) Condition {
	c := Condition{
		Code: ConditionNoWorker, Severity: SeverityError, Since: since,
		Evidence: map[string]any{"aliveWorkers": t.AliveWorkers, "waitingTasks": waiting},
	}
	if t.AliveWorkers == 0 {
		c.Message = "no worker is alive"
		c.Remedy = "Start mirrorflow-worker with this server's database, or see its log for why it does not register."
		return c
	}
	c.Message = fmt.Sprintf("%d of %d tasks wait for a worker; %d workers are alive", waiting, t.Flow.TasksMax, t.AliveWorkers)
	c.Remedy = "A worker takes waiting tasks within seconds. If this lasts, see the workers' logs for why they take none, or start another."
	return c
}

// merger gathers tasks one by one.
type merger struct {
	out          FlowStatus
	states       []TaskStatus // of tasks that are held
	blind        bool         // the holder of a task has not looked at its partitions
	waiting      int
	waitingSince time.Time // the earliest
	observed     time.Time // the oldest report that counts
	last         time.Time // the newest that does not
	// Where things stand in out, since there may be very many.
	topicAt     map[string]int
	partitionAt map[topicPartition]int
	excludedAt  map[string]bool
	groupAt     map[string]int
	offsetAt    map[groupOffset]bool
}

type topicPartition struct {
	topic     string
	partition int32
}

type groupOffset struct {
	group string
	topicPartition
}

func newMerger() *merger {
	return &merger{
		out: FlowStatus{Tasks: []TaskAssignment{}}, topicAt: map[string]int{}, partitionAt: map[topicPartition]int{},
		excludedAt: map[string]bool{}, groupAt: map[string]int{}, offsetAt: map[groupOffset]bool{},
	}
}

func (m *merger) add(task TaskState) {
	if !task.Held {
		m.waiting++
		if m.waitingSince.IsZero() || task.Since.Before(m.waitingSince) {
			m.waitingSince = task.Since
		}
		m.remember(task)
		return
	}
	m.out.Tasks = append(m.out.Tasks, TaskAssignment{Task: task.Task, Worker: task.Owner, Epoch: task.Epoch})
	if task.Report == nil || task.ReportEpoch != task.Epoch {
		m.blind = true
		m.states = append(m.states, TaskStatus{State: StateStarting, Since: task.Since})
		m.remember(task)
		return
	}
	r := *task.Report
	m.states = append(m.states, r)
	if r.State != StateRunning && r.State != StateDegraded && len(r.Topics) == 0 {
		m.blind = true // a task that runs and has no topics has none, others do not know theirs
	}
	if m.observed.IsZero() || r.ObservedAt.Before(m.observed) {
		m.observed = r.ObservedAt
	}
	m.out.Conditions = append(m.out.Conditions, r.Conditions...)
	m.topics(r.Topics, false)
	m.excluded(r.ExcludedTopics)
	m.groups(r.Groups)
}

// remember takes over the positions of a report that no longer counts.
func (m *merger) remember(task TaskState) {
	if task.Report == nil {
		return
	}
	if task.Report.ObservedAt.After(m.last) {
		m.last = task.Report.ObservedAt
	}
	m.topics(task.Report.Topics, true)
	m.excluded(task.Report.ExcludedTopics)
	m.groups(task.Report.Groups)
}

func (m *merger) topics(topics []TopicStatus, stale bool) {
	for _, topic := range topics {
		i, ok := m.topicAt[topic.Name]
		if !ok {
			i = len(m.out.Topics)
			m.topicAt[topic.Name] = i
			m.out.Topics = append(m.out.Topics, TopicStatus{Name: topic.Name, RemoteName: topic.RemoteName, Partitions: []PartitionStatus{}})
		}
		into := &m.out.Topics[i]
		for _, p := range topic.Partitions {
			if stale {
				p.State = "WAITING"
			}
			key := topicPartition{topic.Name, p.Partition}
			at, ok := m.partitionAt[key]
			switch {
			case !ok:
				m.partitionAt[key] = len(into.Partitions)
				into.Partitions = append(into.Partitions, p)
			case !stale:
				// A partition that moved between tasks: the live report is right.
				into.Partitions[at] = p
			}
		}
	}
}

func (m *merger) excluded(topics []ExcludedTopic) {
	for _, t := range topics {
		if !m.excludedAt[t.Name] {
			m.excludedAt[t.Name] = true
			m.out.ExcludedTopics = append(m.out.ExcludedTopics, t)
		}
	}
}

func (m *merger) groups(groups []GroupStatus) {
	for _, g := range groups {
		i, ok := m.groupAt[g.Group]
		if !ok {
			i = len(m.out.Groups)
			m.groupAt[g.Group] = i
			m.out.Groups = append(m.out.Groups, GroupStatus{Group: g.Group, State: g.State, Topics: []GroupTopicStatus{}})
		}
		into := &m.out.Groups[i]
		for _, t := range g.Topics {
			key := groupOffset{g.Group, topicPartition{t.Topic, t.Partition}}
			if !m.offsetAt[key] {
				m.offsetAt[key] = true
				into.Topics = append(into.Topics, t)
			}
		}
	}
}

// state merges the states of held tasks, at least one of them.
func (m *merger) state() (FlowState, time.Time) {
	first := func(states ...FlowState) (since time.Time, n int) {
		for _, s := range m.states {
			if slices.Contains(states, s.State) {
				n++
				if since.IsZero() || s.Since.Before(since) {
					since = s.Since
				}
			}
		}
		return since, n
	}
	if since, n := first(StateFailed); n == len(m.states) {
		return StateFailed, since
	}
	if since, n := first(StateFailed, StateDegraded); n > 0 {
		return StateDegraded, since
	}
	if since, n := first(StateStarting, StatePending); n > 0 {
		return StateStarting, since
	}
	if m.waiting > 0 {
		return StateDegraded, m.waitingSince
	}
	if since, n := first(StateStopped); n == len(m.states) {
		return StateStopped, since
	}
	var last time.Time
	for _, s := range m.states {
		if s.Since.After(last) {
			last = s.Since
		}
	}
	return StateRunning, last
}

// stoppedSince is when the last task was given up.
func (m *merger) stoppedSince(t FlowTasks) time.Time {
	var last time.Time
	for _, task := range t.Tasks {
		if task.Since.After(last) {
			last = task.Since
		}
	}
	return cmp.Or(last, t.Flow.UpdatedAt)
}

// mergeConditions joins equal conditions of several tasks (the earliest stays) and puts the worst first.
func mergeConditions(list []Condition) []Condition {
	out := make([]Condition, 0, len(list))
	at := map[string]int{}
	for _, c := range list {
		key := c.Code + "\x00" + subjectKey(c.Subject)
		i, ok := at[key]
		switch {
		case !ok:
			at[key] = len(out)
			out = append(out, c)
		case c.Since.Before(out[i].Since):
			out[i] = c
		}
	}
	rank := map[Severity]int{SeverityError: 0, SeverityWarning: 1, SeverityInfo: 2}
	slices.SortStableFunc(out, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), cmp.Compare(a.Code, b.Code),
			cmp.Compare(subjectKey(a.Subject), subjectKey(b.Subject)))
	})
	return out
}

func subjectKey(s Subject) string {
	partition := ""
	if s.Partition != nil {
		partition = fmt.Sprintf("%010d", *s.Partition)
	}
	return s.Topic + "\x00" + partition + "\x00" + s.Group
}

func sortTopics(topics []TopicStatus) {
	slices.SortFunc(topics, func(a, b TopicStatus) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range topics {
		slices.SortFunc(t.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	}
}

func sortGroups(groups []GroupStatus) {
	slices.SortFunc(groups, func(a, b GroupStatus) int { return cmp.Compare(a.Group, b.Group) })
	for _, g := range groups {
		slices.SortFunc(g.Topics, func(a, b GroupTopicStatus) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
}

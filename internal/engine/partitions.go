package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// States of a partition as shown in the status.
const (
	partWaiting = "WAITING" // the path does not have it: not given yet, or taken back for a new decision
	partRunning = "RUNNING"
	partFailed  = "FAILED"
)

// partition is one source partition of this task, from the moment its topic is selected until it is not any more.
type partition struct {
	tp     mirror.TP
	remote string

	mu            sync.Mutex
	state         string
	sourceTopicID [16]byte
	targetTopicID [16]byte
	position      int64         // -1: not decided
	targetNext    int64         // -1: nothing acknowledged yet
	point         *mirror.Point // what belongs to position; nil: not known
	offsets       *mm2.OffsetMap
	// changed grows with whatever a saved entry holds; saved is its value when the last save was taken.
	changed, saved uint64

	logStart, highWatermark, lastStable, targetEnd int64     // -1: unknown
	lastTimestamp                                  int64     // ms, of the last record mirrored; 0: none
	seen                                           time.Time // when the path told the source's ends last

	// stuckSince is when the position was first seen standing at the last stable offset below the high watermark.
	stuckSince time.Time
	stuckAt    int64

	// redecide asks the next refresh for a new start; notBefore holds it back after failures.
	redecide  bool
	notBefore time.Time
	tries     int

	// deciding is set while a start is decided: what the last assignment still tells does not count any more.
	deciding bool
	// calmSince is when the partition began to run, or had its last notice; zero while it does not run.
	calmSince time.Time
}

func newPartition(tp mirror.TP, remote string) *partition {
	return &partition{
		tp: tp, remote: remote, state: partWaiting, position: -1, targetNext: -1,
		logStart: -1, highWatermark: -1, lastStable: -1, targetEnd: -1, redecide: true,
	}
}

func (p *partition) subject() report.Subject {
	return report.Subject{Topic: p.tp.Topic, Partition: p.tp.Partition}
}

func (p *partition) key() state.Key {
	return state.Key{RemoteTopic: p.remote, Partition: p.tp.Partition}
}

// touch marks the entry as changed. p.mu is held.
func (p *partition) touch() { p.changed++ }

// lag is max(0, end - max(position, log start)); 0 while the end is not known. p.mu is held.
func (p *partition) lag() int64 {
	if p.highWatermark < 0 {
		return 0
	}
	return max(0, p.highWatermark-max(p.position, p.logStart, 0))
}

// report is the partition as the status shows it.
func (p *partition) report() report.Partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return report.Partition{
		Partition: p.tp.Partition, LogStart: p.logStart, LogEnd: p.highWatermark, Position: p.position, TargetEnd: p.targetEnd,
		Lag: p.lag(), State: p.state,
	}
}

// backOff takes the partition back for a new decision, later with each try that brought no progress. p.mu is held.
func (p *partition) backOff(now time.Time) {
	p.redecide = true
	if p.tries > 0 {
		p.notBefore = now.Add(min(30*time.Second, 200*time.Millisecond<<min(p.tries, 8)))
	}
	p.tries++
}

// isLate tells whether the path's news of the partition come too late: it was taken back.
func (p *partition) isLate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deciding || p.state == partWaiting
}

// registry holds the partitions of the task. Safe for concurrent use.
type registry struct {
	mu      sync.RWMutex
	m       map[mirror.TP]*partition
	ordered []*partition // what all answers; nil: something came or went since
}

func newRegistry() *registry { return &registry{m: map[mirror.TP]*partition{}} }

func (r *registry) get(tp mirror.TP) *partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.m[tp]
}

func (r *registry) add(p *partition) {
	r.mu.Lock()
	r.m[p.tp], r.ordered = p, nil
	r.mu.Unlock()
}

func (r *registry) remove(tp mirror.TP) {
	r.mu.Lock()
	delete(r.m, tp)
	r.ordered = nil
	r.mu.Unlock()
}

func (r *registry) len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.m)
}

// all returns the partitions ordered by topic and number. The slice is others' too and must not be changed.
func (r *registry) all() []*partition {
	r.mu.RLock()
	out := r.ordered
	r.mu.RUnlock()
	if out != nil {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out = make([]*partition, 0, len(r.m))
	for _, p := range r.m {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *partition) int {
		if c := strings.Compare(a.tp.Topic, b.tp.Topic); c != 0 {
			return c
		}
		return int(a.tp.Partition - b.tp.Partition)
	})
	r.ordered = out
	return out
}

// taskOf maps a partition to a task by a hash of its name, so that a new topic moves nothing.
func taskOf(topic string, partition int32, tasks int) int {
	if tasks == 1 {
		return 0
	}
	return int(mm2.Murmur2([]byte(fmt.Sprintf("%s-%d", topic, partition))) % uint32(tasks))
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/internal/dev/childproc"
)

// Task says what a mirror shall do.
type Task struct {
	Source, Target string   // bootstrap servers
	Topics         []string // names; every one of them and nothing else
	Pattern        string   // instead of names, a pattern of topics, some of which may come later
	Codec          dataset.Codec
	Partitions     int32 // of all topics
}

// patterns are what the mirror is told to copy.
func (t Task) patterns() []string {
	if t.Pattern != "" {
		return []string{t.Pattern}
	}
	out := make([]string, len(t.Topics))
	for i, name := range t.Topics {
		out[i] = strings.ReplaceAll(name, ".", `\.`)
	}
	return out
}

// Engine is a contestant.
type Engine interface {
	// Name is how it is called in results.
	Name() string
	// Prepare does what an operator has done before the mirror's process starts. Every Prepare begins with no state of
	// the runs before.
	Prepare(ctx context.Context, task Task) (Prepared, error)
}

// Prepared can be started, and started again after it was stopped.
type Prepared interface {
	// Start starts the mirror's process and returns at once.
	Start(ctx context.Context) (*Mirror, error)
	// Remote is the name that a topic has on the target.
	Remote(topic string) string
	// Close removes what Prepare left outside of the brokers. The mirror must have been stopped.
	Close(ctx context.Context) error
}

// Mirror is a running mirror.
type Mirror struct {
	process *childproc.Process
	Begun   time.Time // just before the process was started
	log     string
}

// startMirror starts cmd with its output appended to the file log.
func startMirror(cmd *exec.Cmd, log string) (*Mirror, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the mirror's log: %w", err)
	}
	// The child has its own copy of the descriptor.
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	m := &Mirror{Begun: time.Now(), log: log}
	if m.process, err = childproc.Start(cmd); err != nil {
		return nil, err
	}
	return m, nil
}

// Pid is the process id.
func (m *Mirror) Pid() int { return m.process.Pid() }

// Done is closed when the process has ended.
func (m *Mirror) Done() <-chan struct{} { return m.process.Done() }

// Stop ends the process with SIGTERM, or after half a minute with SIGKILL, which is an error.
func (m *Mirror) Stop(ctx context.Context) error {
	select {
	case <-m.process.Done():
		return nil
	default:
		return m.process.Stop(ctx, syscall.SIGTERM, 30*time.Second)
	}
}

// Kill ends the process with SIGKILL.
func (m *Mirror) Kill() error { return m.process.Kill() }

// LogTail returns the last lines of the mirror's output.
func (m *Mirror) LogTail(lines int) string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// The names of the contestants.
const (
	MM2         = "mm2"
	MM2Tuned    = "mm2-tuned"
	Ours        = "ours"
	OursRecords = "ours-records"
)

// EngineNames are all contestants, in the order of the first round.
var EngineNames = []string{MM2, MM2Tuned, Ours, OursRecords}

// Engine returns the contestant of that name.
func (l *Lab) Engine(name string) (Engine, error) {
	switch name {
	case MM2, MM2Tuned:
		return &mm2{lab: l, tuned: name == MM2Tuned}, nil
	case Ours:
		return &ours{lab: l, name: name, dataPath: "batches"}, nil
	case OursRecords:
		return &ours{lab: l, name: name, dataPath: "records"}, nil
	default:
		return nil, errors.New("there is no contestant " + name + "; known: " + strings.Join(EngineNames, ", "))
	}
}

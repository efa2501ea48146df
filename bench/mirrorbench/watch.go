package main

import (
	"syscall"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/procfs"
	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

// Places in Sample.CPU.
const (
	mirrorCPU = iota
	sourceCPU
	targetCPU
)

// watcher reads the processor time of a mirror and of the brokers.
type watcher struct {
	begun     time.Time
	trees     [3]*procfs.Tree
	refreshed time.Time
}

func newWatch(l *lab.Lab, m *lab.Mirror) *watcher {
	return &watcher{
		begun: m.Begun, refreshed: time.Now(),
		trees: [3]*procfs.Tree{procfs.NewTree(m.Pid()), procfs.NewTree(l.Source.Pid()), procfs.NewTree(l.Target.Pid())},
	}
}

// sample is what can be seen now, with the records that were on the target just before.
func (w *watcher) sample(records int64) (stats.Sample, error) {
	if time.Since(w.refreshed) > time.Second {
		w.trees[mirrorCPU].Refresh()
		w.refreshed = time.Now()
	}
	s := stats.Sample{At: time.Since(w.begun), Records: records}
	for _, t := range w.trees {
		d, err := t.CPU()
		if err != nil {
			return s, err
		}
		s.CPU = append(s.CPU, d)
	}
	return s, nil
}

// syncDisks writes out what the kernel holds back.
func syncDisks() { syscall.Sync() }

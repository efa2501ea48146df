package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/mirrorflow/mirrorflow/bench/internal/results"
	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// machine tells where this runs.
func machine(ctx context.Context) (results.Machine, error) {
	m := results.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	m.CPU = field(info, "model name")
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	kb, err := strconv.ParseInt(strings.TrimSuffix(field(memory, "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return m, fmt.Errorf("read the size of memory: %w", err)
	}
	m.MemoryMB = kb >> 10
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, err
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	java, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return m, fmt.Errorf("ask for Java's version: %w", err)
	}
	// The second line names the build; before it there may be a line about options from the environment.
	for line := range strings.Lines(string(java)) {
		if strings.Contains(line, "Runtime Environment") {
			m.Java = strings.TrimSpace(line)
		}
	}
	for version, into := range map[kafkaproc.Version]*string{kafkaproc.V39: &m.Source, kafkaproc.V43: &m.Target} {
		libs, err := kafkaproc.Libs(ctx, version, nil)
		if err != nil {
			return m, err
		}
		*into = filepath.Base(filepath.Dir(libs))
	}
	m.MM2 = m.Target
	return m, nil
}

// field is the first value of a "name: value" file.
func field(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// commit names the commit that the working tree is at, with "-dirty" when files differ from it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

// Package proctest runs this module's commands as real processes, so that tests can kill them.
//
// It owns building a command once per test process, starting it, its output and its end. It must be imported by tests
// only. Nothing that it starts outlives the test process, even when that is killed. Start with Start.
package proctest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/childproc"
)

// Root is the module's root folder.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := root()
	require.NoError(tb, err)
	return dir
}

func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
	}
}

type built struct {
	once sync.Once
	path string
	err  error
}

var (
	buildsMu sync.Mutex
	builds   = map[string]*built{}
)

// Build returns the path of a command's binary, which it builds from the present source, once per test process. pkg is the
// command's folder from the module's root, such as "cmd/worker".
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	buildsMu.Lock()
	b := builds[pkg]
	if b == nil {
		b = &built{}
		builds[pkg] = b
	}
	buildsMu.Unlock()
	b.once.Do(func() { b.path, b.err = build(pkg) })
	require.NoError(tb, b.err, "build %s", pkg)
	return b.path
}

// build leaves the binary in the cache: a place per module folder and command, so that nothing piles up. The rename makes
// it safe for test processes that build at the same time, from the same source.
func build(pkg string) (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	cache := os.Getenv("MIRRORFLOW_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(base, "mirrorflow")
	}
	sum := sha256.Sum256([]byte(dir))
	bin := filepath.Join(cache, "test-bin", hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(bin, path.Base(pkg))
	half := fmt.Sprintf("%s.%d", target, os.Getpid())
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", half, "./"+pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(half, target); err != nil {
		return "", errors.Join(err, os.Remove(half))
	}
	return target, nil
}

// Options of Start.
type Options struct {
	// Pkg is the command's folder from the module's root; it is built. Path is a ready program instead.
	Pkg, Path string
	Args      []string
	// Env is added to the environment of the test process, from which variables that begin with MIRRORFLOW_ are removed,
	// except MIRRORFLOW_CACHE.
	Env map[string]string
	// Dir is the working directory; default a temporary one.
	Dir string
	// Grace is how long the process may take to end at SIGTERM when the test ends; default 20 s.
	Grace time.Duration
}

// Process is a running or ended command. Its methods may be called from any goroutine.
type Process struct {
	name  string
	child *childproc.Process
	grace time.Duration
	out   *output
	read  chan struct{} // closed when all of the output was read
}

// drained waits, once the process has ended, for what it wrote last, which may still be in the pipe; for a second at most,
// since a grandchild may keep the pipe open.
func (p *Process) drained() {
	select {
	case <-p.read:
	case <-time.After(time.Second):
	}
}

// Start starts a command that ends, at the latest, with the test. When the test fails, the end of the command's output is
// in the test's.
func Start(tb testing.TB, o Options) *Process {
	tb.Helper()
	if o.Path == "" {
		o.Path = Build(tb, o.Pkg)
	}
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	if o.Grace == 0 {
		o.Grace = 20 * time.Second
	}
	cmd := exec.CommandContext(context.Background(), o.Path, o.Args...)
	cmd.Dir = o.Dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MIRRORFLOW_") || strings.HasPrefix(kv, "MIRRORFLOW_CACHE=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	for k, v := range o.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	p := &Process{name: filepath.Base(o.Path), grace: o.Grace, out: &output{changed: make(chan struct{})}, read: make(chan struct{})}
	// A pipe of our own instead of a writer in cmd: Wait would else hang on as long as a grandchild has it open.
	reader, writer, err := os.Pipe()
	require.NoError(tb, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	p.child, err = childproc.Start(cmd)
	closeErr := writer.Close()
	if err != nil {
		_ = reader.Close()
		require.NoError(tb, err)
	}
	require.NoError(tb, closeErr)
	go func() {
		defer close(p.read)
		// An error here is the pipe's end.
		_, _ = io.Copy(p.out, reader)
	}()
	tb.Cleanup(func() {
		if p.Running() {
			if err := p.child.Stop(context.Background(), syscall.SIGTERM, p.grace); err != nil {
				tb.Errorf("end %s: %v", p.name, err)
			}
		}
		p.drained()
		_ = reader.Close()
		<-p.read
		if tb.Failed() {
			tb.Logf("end of the output of %s (pid %d):\n%s", p.name, p.Pid(), tail(p.Output(), 80))
		}
	})
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.child.Pid() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.child.Done():
		return false
	default:
		return true
	}
}

// Output is what the process wrote so far, stdout and stderr together.
func (p *Process) Output() string { return p.out.String() }

// WaitMatch waits until the output matches the pattern and returns the match with its groups. It fails the test when the
// process ends before, or after the timeout.
func (p *Process) WaitMatch(tb testing.TB, pattern string, timeout time.Duration) []string {
	tb.Helper()
	re := regexp.MustCompile(pattern)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		text, changed := p.out.look()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-changed:
		case <-p.child.Done():
			p.drained()
			if m := re.FindStringSubmatch(p.Output()); m != nil {
				return m
			}
			require.FailNowf(tb, "the process ended", "%s ended (%v) before its output matched %q:\n%s", p.name, p.child.Err(), pattern, tail(p.Output(), 40))
		case <-timer.C:
			require.FailNowf(tb, "no match", "the output of %s did not match %q within %s:\n%s", p.name, pattern, timeout, tail(text, 40))
		}
	}
}

// Kill9 ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill9(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, p.child.Kill())
}

// Stop sends SIGTERM and waits for the end. It fails the test when the process takes longer than Options.Grace or does not
// exit with status 0.
func (p *Process) Stop(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, p.child.Stop(context.Background(), syscall.SIGTERM, p.grace))
	require.NoError(tb, p.child.Err(), "%s after SIGTERM", p.name)
}

// Signal sends a signal: SIGSTOP and SIGCONT freeze and thaw the process.
func (p *Process) Signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	require.NoError(tb, p.child.Signal(sig))
}

// ExitErr waits for the process to end by itself and returns how it did: nil for status 0, else an *exec.ExitError.
func (p *Process) ExitErr(tb testing.TB, timeout time.Duration) error {
	tb.Helper()
	select {
	case <-p.child.Done():
		p.drained() // so that Output has all of it
		return p.child.Err()
	case <-time.After(timeout):
		require.FailNowf(tb, "still running", "%s did not end within %s", p.name, timeout)
		return nil
	}
}

// output collects what a process writes.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{} // closed and replaced by every write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.buf.Write(b)
}

func (o *output) look() (string, chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.changed
}

func (o *output) String() string {
	text, _ := o.look()
	return text
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Package pgproc runs a private Postgres server as a child process, for tests, the demo and make run.
//
// It owns finding the programs, initdb, start, stop and restart. It must never touch a server or a data directory that it
// was not given, and is no part of the product. Start with Start.
package pgproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/deploy/postgres"
	"github.com/mirrorflow/mirrorflow/internal/dev/childproc"
	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
)

// Superuser is the name of the only role of a new server. It needs no password: the server listens on 127.0.0.1 alone.
const Superuser = "postgres"

// Config describes a server.
type Config struct {
	// Dir is the folder for data and log; required. It is made when missing, and data found there are used again. When
	// the caller is root, the server runs as user postgres, since it refuses to run as root, and owns the data in Dir.
	Dir string
	// Port on 127.0.0.1; 0 picks a free one.
	Port int
	// Durable keeps fsync on. Off by default: a machine crash may then lose the data, a killed server does not.
	Durable bool
	// Settings are added to the server's configuration, such as max_connections.
	Settings map[string]string
	// StartTimeout bounds initdb and start, each; default 60 s.
	StartTimeout time.Duration
	// Progress gets what an installation prints; nil discards it.
	Progress io.Writer
}

// Server is a private Postgres server. Its methods must not be called at the same time as each other.
type Server struct {
	cfg     Config
	bin     string
	cred    *syscall.Credential
	process *childproc.Process
}

// BinDir returns the folder of a Postgres server's programs, version 15 or later. As root on a Debian-like system it
// installs them when they are missing, with apt's output on progress. The error says what to install.
func BinDir(ctx context.Context, progress io.Writer) (string, error) {
	script, err := postgres.Files.ReadFile("ensure.sh")
	if err != nil {
		return "", fmt.Errorf("read ensure.sh: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", string(script))
	cmd.Stderr = &said
	if progress != nil {
		cmd.Stderr = io.MultiWriter(&said, progress)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find Postgres: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Start makes the data directory when it is missing, starts the server and waits until it answers queries.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("pgproc: Config.Dir is required")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = time.Minute
	}
	if cfg.Port == 0 {
		if cfg.Port, err = freeport.One(); err != nil {
			return nil, err
		}
	}
	bin, err := BinDir(ctx, cfg.Progress)
	if err != nil {
		return nil, err
	}
	cred, err := credential()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, bin: bin, cred: cred}
	if err := s.prepareDir(); err != nil {
		return nil, err
	}
	if err := s.initdb(ctx); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// credential is nil for an ordinary user; root gets that of a user who may run the server.
func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("a Postgres server refuses to run as root, and there is no user postgres or nobody to run it as")
}

func (s *Server) dataDir() string { return filepath.Join(s.cfg.Dir, "data") }

// LogFile is the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.cfg.Dir, "postgres.log") }

func (s *Server) prepareDir() error {
	for _, dir := range []string{s.cfg.Dir, s.dataDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the server's folder: %w", err)
		}
	}
	if s.cred == nil {
		return nil
	}
	if err := os.Chown(s.dataDir(), int(s.cred.Uid), int(s.cred.Gid)); err != nil {
		return fmt.Errorf("give the data directory to the server's user: %w", err)
	}
	return nil
}

// command makes a command of the server's programs that runs as its user and finds the data directory at the path returned.
//
// When root lends the server another user, that user may not be able to walk to the directory (temporary folders are for
// their owner alone). So the child inherits it open, and names it by its descriptor; the directory itself is its own.
func (s *Server) command(ctx context.Context, name string) (cmd *exec.Cmd, data string, release func(), err error) {
	cmd = exec.CommandContext(ctx, filepath.Join(s.bin, name))
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	if s.cred == nil {
		return cmd, s.dataDir(), func() {}, nil
	}
	dir, err := os.Open(s.dataDir())
	if err != nil {
		return nil, "", nil, fmt.Errorf("open the data directory: %w", err)
	}
	cmd.ExtraFiles = []*os.File{dir}
	return cmd, "/proc/self/fd/3", func() { _ = dir.Close() }, nil
}

func (s *Server) initdb(ctx context.Context) error {
	// PG_VERSION is among the first files that initdb writes, postgresql.conf's neighbour postgresql.auto.conf among the
	// last; a folder without the latter is what an interrupted initdb left behind.
	if _, err := os.Stat(filepath.Join(s.dataDir(), "postgresql.auto.conf")); err == nil {
		return nil
	}
	if err := os.RemoveAll(s.dataDir()); err != nil {
		return fmt.Errorf("clear an unfinished data directory: %w", err)
	}
	if err := s.prepareDir(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	cmd, data, release, err := s.command(ctx, "initdb")
	if err != nil {
		return err
	}
	defer release()
	cmd.Args = append(cmd.Args, "-D", data, "-U", Superuser, "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if err := s.clearLock(ctx); err != nil {
		return err
	}
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.cfg.Port),
		"unix_socket_directories": "",
		"max_connections":         "200",
		"shared_buffers":          "64MB",
		"timezone":                "UTC",
		"log_line_prefix":         "%m [%p] %d ",
	}
	if !s.cfg.Durable {
		settings["fsync"] = "off"
		settings["synchronous_commit"] = "off"
		settings["full_page_writes"] = "off"
	}
	for k, v := range s.cfg.Settings {
		settings[k] = v
	}
	// Not the caller's ctx: the server outlives the call that started it, and is ended by Stop, Kill or our death.
	cmd, data, release, err := s.command(context.WithoutCancel(ctx), "postgres")
	if err != nil {
		return err
	}
	defer release()
	cmd.Args = append(cmd.Args, "-D", data)
	for k, v := range settings {
		cmd.Args = append(cmd.Args, "-c", k+"="+v)
	}
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	// The child has its own copy of the descriptor.
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	process, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	s.process = process
	if err := s.waitReady(ctx); err != nil {
		return errors.Join(err, process.Kill())
	}
	return nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(ctx, s.DSN("postgres"))
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("the server ended while starting: %w; end of its log:\n%s", s.process.Err(), s.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w; end of its log:\n%s", err, s.LogTail(20))
		case <-tick.C:
		}
	}
}

func ping(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// DSN is the connection URL of a database of this server.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", Superuser, s.cfg.Port, database)
}

// Port is the server's port on 127.0.0.1. It stays the same across Restart.
func (s *Server) Port() int { return s.cfg.Port }

// Done is closed when the running server process has ended; Restart brings a new channel.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop ends the server's sessions and the server ("fast" shutdown). Data stay.
func (s *Server) Stop(ctx context.Context) error {
	return s.process.Stop(ctx, syscall.SIGINT, 30*time.Second)
}

// Kill ends the server as a crash would. It waits until the server's port can be used again.
func (s *Server) Kill(ctx context.Context) error {
	if err := s.process.Kill(); err != nil {
		return err
	}
	return s.waitGone(ctx)
}

// clearLock removes the lock file of a server that was killed, once none of its processes lives. Postgres would do it by
// itself, but takes a process that nobody has reaped yet, or another one with the same number, for its predecessor.
func (s *Server) clearLock(ctx context.Context) error {
	if err := s.waitGone(ctx); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.dataDir(), "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a killed server's lock file: %w", err)
	}
	return nil
}

// waitGone waits for the sessions' processes, which notice the death of their parent by themselves. A new server refuses
// to start while one of them holds the shared memory.
func (s *Server) waitGone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := processesIn(s.dataDir())
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes of a Postgres server use %s: %w", n, s.dataDir(), ctx.Err())
		case <-tick.C:
		}
	}
}

// processesIn counts the processes whose working directory is dir, as every Postgres process has its data directory.
func processesIn(dir string) (int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, link := range links {
		// Processes that ended meanwhile, or that belong to others, cannot be read; they are not ours.
		if target, err := os.Readlink(link); err == nil && target == dir {
			n++
		}
	}
	return n, nil
}

// Restart starts a stopped or killed server again, and stops a running one before, on the same port and data.
func (s *Server) Restart(ctx context.Context) error {
	select {
	case <-s.process.Done():
	default:
		if err := s.Stop(ctx); err != nil {
			return err
		}
	}
	return s.start(ctx)
}

// LogTail returns the last lines of the server's log.
func (s *Server) LogTail(lines int) string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

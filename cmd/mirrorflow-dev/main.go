package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/mirrorflow/mirrorflow/internal/dev/data"
	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/dev/pgproc"
)

const usage = `usage:
  mirrorflow-dev kafka --version 3.9|4.3 --dir DIR [--port P] [--cluster-id ID]
  mirrorflow-dev postgres --dir DIR [--port P]
  mirrorflow-dev free-port [N]
  mirrorflow-dev produce|commit|group|topics|count|wait|compare --help
`

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	err := run(os.Args[1:], os.Stdout, os.Stderr, signals)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "mirrorflow-dev:", err)
		os.Exit(1)
	}
}

// server is what both kinds of servers can do.
type server struct {
	ready   string
	done    <-chan struct{}
	stop    func(context.Context) error
	kill    func() error
	logTail func(lines int) string
}

func run(args []string, stdout, stderr io.Writer, signals <-chan os.Signal) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch args[0] {
	case "kafka":
		return foreground(ctx, cancel, stdout, signals, func() (*server, error) { return startKafka(ctx, args[1:], stderr) })
	case "postgres":
		return foreground(ctx, cancel, stdout, signals, func() (*server, error) { return startPostgres(ctx, args[1:], stderr) })
	case "free-port":
		return freePorts(args[1:], stdout)
	default:
		if slices.Contains(data.Names, args[0]) {
			return data.Run(ctx, args)
		}
		fmt.Fprint(stderr, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
}

func freePorts(args []string, stdout io.Writer) error {
	n := 1
	if len(args) > 0 {
		var err error
		if n, err = strconv.Atoi(args[0]); err != nil || n < 1 || len(args) > 1 {
			return fmt.Errorf("free-port takes one number of ports, at least 1")
		}
	}
	ports, err := freeport.Take(n)
	if err != nil {
		return err
	}
	for _, p := range ports {
		fmt.Fprintln(stdout, p)
	}
	return nil
}

func flags(name string, stderr io.Writer) (set *flag.FlagSet, dir *string, port *int) {
	set = flag.NewFlagSet("mirrorflow-dev "+name, flag.ContinueOnError)
	set.SetOutput(stderr)
	dir = set.String("dir", "", "folder for data and logs (required; kept)")
	port = set.Int("port", 0, "port on 127.0.0.1 (default: a free one)")
	return set, dir, port
}

func startKafka(ctx context.Context, args []string, stderr io.Writer) (*server, error) {
	set, dir, port := flags("kafka", stderr)
	version := set.String("version", string(kafkaproc.V43), "3.9 or 4.3")
	clusterID := set.String("cluster-id", "", "cluster id for new data (default: a random one)")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if *dir == "" {
		return nil, errors.New("--dir is required: a folder for the broker's data and logs")
	}
	if err := claim(ctx, *dir, *port); err != nil {
		return nil, err
	}
	c, err := kafkaproc.Start(ctx, kafkaproc.Config{
		Version: kafkaproc.Version(*version), Dir: *dir, ClusterID: *clusterID,
		Listeners: []kafkaproc.Listener{{Name: "PLAINTEXT", Port: *port}}, Progress: stderr,
	})
	if err != nil {
		return nil, err
	}
	node := c.Nodes()[0]
	return &server{
		ready: fmt.Sprintf("ready kafka %s bootstrap %s cluster %s log %s", *version, c.Bootstrap(), c.ClusterID(), node.LogFile()),
		done:  node.Done(), stop: c.Stop, kill: c.Kill, logTail: node.LogTail,
	}, nil
}

// claim makes sure that nobody else uses the folder, for as long as this process lives, and that the port is free: a
// second broker on the data of a running one destroys both.
func claim(ctx context.Context, dir string, port int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "mirrorflow-dev.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the folder's lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("another mirrorflow-dev runs a broker in %s; stop it or choose another --dir", dir)
	}
	held = append(held, lock)
	if port == 0 {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d cannot be used (choose another --port, or leave it out for a free one): %w", port, err)
	}
	return l.Close()
}

// held keeps locks open until the process ends.
var held []*os.File

func startPostgres(ctx context.Context, args []string, stderr io.Writer) (*server, error) {
	set, dir, port := flags("postgres", stderr)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	s, err := pgproc.Start(ctx, pgproc.Config{Dir: *dir, Port: *port, Durable: true, Progress: stderr})
	if err != nil {
		return nil, err
	}
	return &server{
		ready: fmt.Sprintf("ready postgres %s log %s", s.DSN("postgres"), s.LogFile()),
		done:  s.Done(), stop: s.Stop, kill: func() error { return s.Kill(context.WithoutCancel(ctx)) }, logTail: s.LogTail,
	}, nil
}

// foreground starts a server and keeps it until a signal comes or it ends by itself.
func foreground(ctx context.Context, cancel context.CancelFunc, stdout io.Writer, signals <-chan os.Signal, start func() (*server, error)) error {
	type started struct {
		server *server
		err    error
	}
	result := make(chan started, 1)
	go func() {
		s, err := start()
		result <- started{s, err}
	}()
	var s *server
	select {
	case r := <-result:
		if r.err != nil {
			return r.err
		}
		s = r.server
	case <-signals:
		// A signal while it starts: the start gives up and leaves nothing behind.
		cancel()
		if r := <-result; r.err == nil {
			return r.server.kill()
		}
		return nil
	}
	fmt.Fprintln(stdout, s.ready)
	select {
	case <-s.done:
		return fmt.Errorf("the server ended by itself; end of its log:\n%s", s.logTail(40))
	case <-signals:
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-signals:
		// Stop's context ends, upon which it kills.
		cancel()
		if err := <-stopped; err != nil {
			fmt.Fprintln(stdout, "killed:", err)
		}
		return nil
	}
}

package kafkaproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/dev/childproc"
)

// Node is one broker of a Cluster. Its methods must not be called at the same time as each other.
type Node struct {
	id         int
	dir        string
	internal   string
	controller string            // node 1 only
	addrs      map[string]string // by listener
	advertised map[string]string
	cluster    *Cluster
	process    *childproc.Process
	wanted     bool // started and not stopped or killed by us
}

// ID is the node's id, from 1.
func (n *Node) ID() int { return n.id }

// Addr is the address that the named listener of this node is bound to.
func (n *Node) Addr(listener string) string { return n.addrs[listener] }

// LogFile is the path of the broker's log.
func (n *Node) LogFile() string { return filepath.Join(n.dir, "broker.log") }

// DataDir is the folder of the broker's logs, one folder per partition.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// Pid is the process id of the broker that was started last. It panics when none was.
func (n *Node) Pid() int { return n.process.Pid() }

func (n *Node) configFile() string { return filepath.Join(n.dir, "server.properties") }

// Done is closed when the running broker process has ended; a restart brings a new channel.
func (n *Node) Done() <-chan struct{} { return n.process.Done() }

// Running says whether the broker process runs.
func (n *Node) Running() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.Done():
		return false
	default:
		return true
	}
}

// format prepares the data directory, once.
func (n *Node) format(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(n.DataDir(), "meta.properties")); err == nil {
		return nil
	}
	args := []string{"format", "-t", n.cluster.id, "-c", n.configFile()}
	for _, u := range n.cluster.cfg.SCRAMUsers {
		for _, mechanism := range []string{MechanismSCRAM256, MechanismSCRAM512} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%q,password=%q]", mechanism, u.Name, u.Password))
		}
	}
	cmd, err := JavaCommand(ctx, n.cluster.cfg.Version, n.loggingFlags(), "kafka.tools.StorageTool", args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format the storage of node %d: %w: %s", n.id, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loggingFlags name the logging configuration that writeLogging wrote; each version reads one of the two.
func (n *Node) loggingFlags() []string {
	return []string{
		"-Dlog4j.configuration=file:" + filepath.Join(n.dir, "log4j.properties"),
		"-Dlog4j2.configurationFile=" + filepath.Join(n.dir, "log4j2.properties"),
	}
}

const log4j1 = `log4j.rootLogger=INFO, stdout
log4j.logger.org.apache.kafka.common.config.AbstractConfig=WARN
log4j.logger.kafka.server.KafkaConfig=WARN
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
`

const log4j2 = `status=warn
appender.stdout.type=Console
appender.stdout.name=STDOUT
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.stdout.ref=STDOUT
logger.config.name=org.apache.kafka.common.config.AbstractConfig
logger.config.level=warn
logger.kafkaconfig.name=kafka.server.KafkaConfig
logger.kafkaconfig.level=warn
`

func (n *Node) writeFiles(props map[string]string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of node %d: %w", n.id, err)
	}
	for name, text := range map[string][]byte{
		"server.properties": encodeProperties(props),
		"log4j.properties":  []byte(log4j1),
		"log4j2.properties": []byte(log4j2),
	} {
		// Passwords may stand in there.
		if err := os.WriteFile(filepath.Join(n.dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write %s of node %d: %w", name, n.id, err)
		}
	}
	return nil
}

// start starts the broker process, without waiting for it to serve.
func (n *Node) start(ctx context.Context) error {
	if n.Running() {
		return fmt.Errorf("node %d runs already", n.id)
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of node %d: %w", n.id, err)
	}
	// The child has its own copy of the descriptor.
	defer func() { _ = log.Close() }()
	cfg := n.cluster.cfg
	flags := append([]string{fmt.Sprintf("-Xmx%dm", cfg.HeapMB)}, n.loggingFlags()...)
	if cfg.OAuth != nil {
		// From 4.0 on, a broker talks to the token endpoints listed here only.
		flags = append(flags, "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="+cfg.OAuth.JWKSURL)
	}
	switch {
	case cfg.writeArchive != "":
		flags = append(flags, "-XX:ArchiveClassesAtExit="+cfg.writeArchive)
	case cfg.archive != "":
		flags = append(flags, "-XX:SharedArchiveFile="+cfg.archive)
	}
	flags = append(flags, cfg.JVMFlags...)
	// Not the caller's ctx: the broker outlives the call that started it, and is ended by Stop, Kill or our death.
	cmd, err := JavaCommand(context.WithoutCancel(ctx), cfg.Version, flags, "kafka.Kafka", n.configFile())
	if err != nil {
		return err
	}
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	if n.process, err = childproc.Start(cmd); err != nil {
		return err
	}
	n.wanted = true
	return nil
}

// Stop shuts the broker down cleanly. Its data stay.
func (n *Node) Stop(ctx context.Context) error {
	n.wanted = false
	if !n.Running() {
		return nil
	}
	return n.process.Stop(ctx, syscall.SIGTERM, 40*time.Second)
}

// Kill ends the broker with SIGKILL.
func (n *Node) Kill() error {
	n.wanted = false
	if !n.Running() {
		return nil
	}
	return n.process.Kill()
}

// Signal sends sig to the broker: SIGSTOP and SIGCONT freeze and thaw it.
func (n *Node) Signal(sig syscall.Signal) error {
	if n.process == nil {
		return errors.New("the node was never started")
	}
	return n.process.Signal(sig)
}

// LogTail returns the last lines of the broker's log.
func (n *Node) LogTail(lines int) string {
	return n.tail(lines, func(string) bool { return true })
}

// LogProblems returns the last lines of the broker's log that are no mere information, stack traces included.
func (n *Node) LogProblems(lines int) string {
	return n.tail(lines, func(line string) bool {
		return !strings.Contains(line, "] INFO ") && !strings.Contains(line, "] DEBUG ")
	})
}

func (n *Node) tail(lines int, keep func(string) bool) string {
	text, err := os.ReadFile(n.LogFile())
	if err != nil {
		return err.Error()
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if keep(line) {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "\n")
}

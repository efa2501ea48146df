// Package kafkatest gives tests real Kafka brokers, and what is needed to fill, read and compare topics on them.
//
// It must be imported by tests only, and it never skips: without Java or the jars the test fails with what to install.
// Start with Start, or with Run and Shared for a cluster that all tests of a package use.
package kafkatest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// The versions that can be run.
const (
	V39 = kafkaproc.V39
	V43 = kafkaproc.V43
)

// Options describe a cluster.
type Options struct {
	// Version; default V43.
	Version kafkaproc.Version
	// Nodes; default 1.
	Nodes int
	// Listeners; default one plaintext listener named PLAINTEXT. See the constructors in security.go.
	Listeners []kafkaproc.Listener
	// PKI makes the brokers' certificate; required by TLS listeners.
	PKI *PKI
	// PlainUsers are the users of PLAIN listeners with their passwords.
	PlainUsers map[string]string
	// SCRAMUsers exist from the start, for SCRAM-SHA-256 and -512; more can be added with AddSCRAMUser.
	SCRAMUsers []kafkaproc.SCRAMUser
	// OAuth says how OAUTHBEARER listeners check tokens.
	OAuth *kafkaproc.OAuth
	// Props override broker settings.
	Props map[string]string
	// JVMFlags are added to the broker's.
	JVMFlags []string
	// HeapMB is the broker's -Xmx; default 512.
	HeapMB int
}

// Cluster is a real Kafka cluster of one test, or of one test process. Stop, Kill and Restart must not be called at the
// same time as each other.
type Cluster struct {
	proc *kafkaproc.Cluster
	pki  *PKI
	dir  string
}

// Start starts a cluster that ends with the test. When the test fails, the end of the brokers' logs is in its output.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	c, err := start(context.Background(), opts)
	require.NoError(tb, err, "start Kafka for the test")
	tb.Cleanup(func() {
		if tb.Failed() {
			c.logProblems(tb)
		}
		if err := c.close(); err != nil {
			tb.Errorf("end Kafka: %v", err)
		}
	})
	return c
}

// StartAll starts several clusters at the same time, in the order of opts.
func StartAll(tb testing.TB, opts ...Options) []*Cluster {
	tb.Helper()
	clusters := make([]*Cluster, len(opts))
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for i, o := range opts {
		wg.Go(func() { clusters[i], errs[i] = start(context.Background(), o) })
	}
	wg.Wait()
	tb.Cleanup(func() {
		for _, c := range clusters {
			if c == nil {
				continue
			}
			if tb.Failed() {
				c.logProblems(tb)
			}
			if err := c.close(); err != nil {
				tb.Errorf("end Kafka: %v", err)
			}
		}
	})
	for _, err := range errs {
		require.NoError(tb, err, "start Kafka for the test")
	}
	return clusters
}

func start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Version == "" {
		opts.Version = V43
	}
	dir, err := os.MkdirTemp("", "mirrorflow-kafkatest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, pki: opts.PKI}
	cfg := kafkaproc.Config{
		Version: opts.Version, Dir: dir, Nodes: opts.Nodes, Listeners: opts.Listeners, PlainUsers: opts.PlainUsers,
		SCRAMUsers: opts.SCRAMUsers, OAuth: opts.OAuth, Props: opts.Props, JVMFlags: opts.JVMFlags, HeapMB: opts.HeapMB,
		Progress: os.Stderr,
	}
	if opts.PKI != nil {
		if cfg.TLS, err = opts.PKI.brokerFiles(dir); err != nil {
			return nil, err
		}
	}
	if c.proc, err = kafkaproc.Start(ctx, cfg); err != nil {
		if removeErr := os.RemoveAll(dir); removeErr != nil {
			err = fmt.Errorf("%w (and its folder stays: %w)", err, removeErr)
		}
		return nil, err
	}
	return c, nil
}

// close ends the cluster the fast way; nobody needs its data any more.
func (c *Cluster) close() error {
	if err := c.proc.Kill(); err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}

// Bootstrap is the address of the first listener on the first node.
func (c *Cluster) Bootstrap() string { return c.proc.Bootstrap() }

// Bootstraps are the addresses of the named listener, one per node.
func (c *Cluster) Bootstraps(listener string) []string { return c.proc.Bootstraps(listener) }

// AdminBootstraps are the addresses of a plaintext listener that every cluster has beside the asked ones, for the test's
// own clients: never secured, never behind a proxy.
func (c *Cluster) AdminBootstraps() []string { return c.proc.AdminBootstraps() }

// ClusterID is the cluster's id.
func (c *Cluster) ClusterID() string { return c.proc.ClusterID() }

// Version is the brokers' version.
func (c *Cluster) Version() kafkaproc.Version { return c.proc.Version() }

// Nodes are the brokers, to stop, kill or freeze single ones; StartNodes of Proc starts them again.
func (c *Cluster) Nodes() []*kafkaproc.Node { return c.proc.Nodes() }

// Proc is the cluster below, for what this type does not offer.
func (c *Cluster) Proc() *kafkaproc.Cluster { return c.proc }

// PKI made the brokers' certificates; nil without TLS listeners.
func (c *Cluster) PKI() *PKI { return c.pki }

// Stop shuts the brokers down cleanly; their data stay.
func (c *Cluster) Stop(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, c.proc.Stop(context.Background()))
}

// Kill ends the brokers with SIGKILL; their data stay.
func (c *Cluster) Kill(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, c.proc.Kill())
}

// Restart starts the brokers again on the same ports and data, stopping those that run before, and waits until they serve.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, c.proc.Restart(context.Background()))
}

// logProblems puts what matters of the brokers' logs into the output of a failed test.
func (c *Cluster) logProblems(tb testing.TB) {
	tb.Helper()
	for _, n := range c.Nodes() {
		tb.Logf("Kafka %s, node %d: warnings and errors:\n%s\nlast lines:\n%s", c.Version(), n.ID(), n.LogProblems(60), n.LogTail(8))
	}
}

// Logs returns the last lines of each broker's log.
func (c *Cluster) Logs(lines int) string {
	out := ""
	for _, n := range c.Nodes() {
		out += fmt.Sprintf("--- node %d\n%s\n", n.ID(), n.LogTail(lines))
	}
	return out
}

// Client returns a client of the cluster's plaintext admin listener that is closed when the test ends. opts come after
// the defaults and win.
func Client(tb testing.TB, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	all := append([]kgo.Opt{kgo.SeedBrokers(c.AdminBootstraps()...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)
	client, err := kgo.NewClient(all...)
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client
}

// Admin returns an admin client of the cluster that is closed when the test ends.
func Admin(tb testing.TB, c *Cluster) *kadm.Client {
	tb.Helper()
	return kadm.NewClient(Client(tb, c))
}

// sharedClusters are those of Shared, while Run runs.
var sharedClusters struct {
	mu      sync.Mutex
	running bool
	entries map[kafkaproc.Version]*sharedEntry
}

type sharedEntry struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Run runs m's tests with Shared available and returns the exit code for os.Exit. m is a *testing.M, or what wraps one.
func Run(m interface{ Run() int }) int {
	s := &sharedClusters
	s.mu.Lock()
	s.running, s.entries = true, map[kafkaproc.Version]*sharedEntry{}
	s.mu.Unlock()
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	for version, e := range s.entries {
		if e.cluster == nil {
			continue
		}
		if err := e.cluster.close(); err != nil {
			fmt.Fprintf(os.Stderr, "kafkatest: end Kafka %s: %v\n", version, err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared returns the process's plaintext cluster of a version, which the first call starts and the end of Run ends. Tests
// that use it name their topics after themselves (see UniqueName), and leave the brokers running.
func Shared(tb testing.TB, version kafkaproc.Version) *Cluster {
	tb.Helper()
	s := &sharedClusters
	s.mu.Lock()
	if !s.running {
		s.mu.Unlock()
		require.FailNow(tb, "kafkatest.Shared works within kafkatest.Run only: call it in TestMain")
	}
	e := s.entries[version]
	if e == nil {
		e = &sharedEntry{}
		s.entries[version] = e
	}
	s.mu.Unlock()
	e.once.Do(func() { e.cluster, e.err = start(context.Background(), Options{Version: version}) })
	require.NoError(tb, e.err, "start Kafka for the tests")
	return e.cluster
}

package kafkaproc

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
)

// errEnded is what is wrong with a broker that ended by itself, with whatever exit status.
var errEnded = errors.New("the process ended")

// Cluster is a running Kafka cluster. Its methods must not be called at the same time as each other.
type Cluster struct {
	cfg   Config
	id    string
	nodes []*Node
}

// Start formats the storage when Dir holds none, starts the brokers and waits until all of them are in the cluster's
// metadata and answer. On an error nothing is left running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	// Before the clock of StartTimeout runs, since a download may take minutes.
	libs, err := Libs(ctx, cfg.Version, cfg.Progress)
	if err != nil {
		return nil, err
	}
	if cfg.writeArchive == "" {
		cfg.archive = classArchive(ctx, cfg, libs)
	}
	c := &Cluster{cfg: cfg}
	if err := c.layOut(); err != nil {
		return nil, err
	}
	if err := c.chooseID(); err != nil {
		return nil, err
	}
	voter := "1@" + c.nodes[0].controller
	for _, n := range c.nodes {
		if err := n.writeFiles(cfg.properties(n.id, c.nodes, voter)); err != nil {
			return nil, err
		}
	}
	formatCtx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	group, formatCtx := errgroup.WithContext(formatCtx)
	for _, n := range c.nodes {
		group.Go(func() error { return n.format(formatCtx) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := c.StartNodes(ctx, c.nodes...); err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// layOut gives every node its folder and addresses.
func (c *Cluster) layOut() error {
	for id := 1; id <= c.cfg.Nodes; id++ {
		ports, err := freeport.Take(2)
		if err != nil {
			return err
		}
		n := &Node{
			id: id, cluster: c, dir: filepath.Join(c.cfg.Dir, "node-"+strconv.Itoa(id)),
			internal: loopback(ports[0]), controller: loopback(ports[1]),
			addrs: map[string]string{}, advertised: map[string]string{},
		}
		for _, l := range c.cfg.Listeners {
			port := l.Port
			if port == 0 || id > 1 {
				if port, err = freeport.One(); err != nil {
					return err
				}
			}
			addr := loopback(port)
			n.addrs[l.Name], n.advertised[l.Name] = addr, addr
			if l.Advertise != nil {
				if n.advertised[l.Name], err = l.Advertise(id, addr); err != nil {
					return fmt.Errorf("advertise %s of node %d: %w", l.Name, id, err)
				}
			}
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// chooseID takes the id of existing data, else the configured one, else a new one.
func (c *Cluster) chooseID() error {
	text, err := os.ReadFile(filepath.Join(c.nodes[0].DataDir(), "meta.properties"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "cluster.id="); ok {
				c.id = id
			}
		}
		if c.id == "" || c.cfg.ClusterID != "" && c.cfg.ClusterID != c.id {
			return fmt.Errorf("the data in %s belong to cluster %q, not %q", c.cfg.Dir, c.id, c.cfg.ClusterID)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the cluster's id: %w", err)
	}
	if c.id = c.cfg.ClusterID; c.id == "" {
		c.id = NewClusterID()
	}
	return nil
}

// NewClusterID returns a random cluster id.
func NewClusterID() string {
	var raw [16]byte
	for {
		if _, err := rand.Read(raw[:]); err != nil {
			panic(fmt.Sprintf("kafkaproc: no randomness: %v", err))
		}
		// A leading dash would look like an option to the storage tool.
		if id := base64.RawURLEncoding.EncodeToString(raw[:]); id[0] != '-' {
			return id
		}
	}
}

// ClusterID is the cluster's id.
func (c *Cluster) ClusterID() string { return c.id }

// Version is the version the brokers run.
func (c *Cluster) Version() Version { return c.cfg.Version }

// Nodes are the cluster's nodes, the first with id 1.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Bootstrap is the advertised address of the first listener on the first node.
func (c *Cluster) Bootstrap() string { return c.nodes[0].advertised[c.cfg.Listeners[0].Name] }

// Bootstraps are the advertised addresses of the named listener, one per node; it panics on an unknown name.
func (c *Cluster) Bootstraps(listener string) []string {
	var all []string
	for _, n := range c.nodes {
		addr, ok := n.advertised[listener]
		if !ok {
			panic(fmt.Sprintf("kafkaproc: no listener %q", listener))
		}
		all = append(all, addr)
	}
	return all
}

// AdminBootstraps are the addresses of a plaintext listener that every cluster has beside the configured ones. It is
// never proxied, so it works while another listener is secured, cut or stalled.
func (c *Cluster) AdminBootstraps() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.internal)
	}
	return all
}

// StartNodes starts stopped or killed nodes again, on their ports and data, and waits until they serve.
func (c *Cluster) StartNodes(ctx context.Context, nodes ...*Node) error {
	for _, n := range nodes {
		if err := n.start(ctx); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady waits, StartTimeout at most, until every running node is in the metadata and answers requests.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.AdminBootstraps()...), kgo.DialTimeout(time.Second),
		kgo.RetryTimeout(time.Second), kgo.RequestRetries(0), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	if err != nil {
		return fmt.Errorf("make a client for the readiness check: %w", err)
	}
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.ready(ctx, client)
		if err == nil {
			return nil
		}
		for _, n := range c.nodes {
			if n.wanted && !n.Running() {
				return fmt.Errorf("node %d ended while starting: %w; end of its log:\n%s", n.id, errors.Join(errEnded, n.process.Err()), n.LogTail(40))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready after %s: %w; end of the log:\n%s", c.cfg.StartTimeout, err, c.nodes[0].LogTail(40))
		case <-tick.C:
		}
	}
}

// ready asks each running node for the cluster's metadata: its brokers must be the running ones, with a controller.
func (c *Cluster) ready(ctx context.Context, client *kgo.Client) error {
	running := 0
	for _, n := range c.nodes {
		if n.Running() {
			running++
		}
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	for i, n := range c.nodes {
		if !n.Running() {
			continue
		}
		// Through the seed, since a broker's id is not known to a client before the first metadata.
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		response, err := client.SeedBrokers()[i].Request(ctx, request)
		cancel()
		if err != nil {
			return fmt.Errorf("ask node %d for metadata: %w", n.id, err)
		}
		metadata, ok := response.(*kmsg.MetadataResponse)
		if ok && metadata.ClusterID != nil && *metadata.ClusterID != c.id {
			return fmt.Errorf("another cluster, %s, answers at the address of node %d", *metadata.ClusterID, n.id)
		}
		if !ok || len(metadata.Brokers) < running || metadata.ControllerID < 0 {
			return fmt.Errorf("node %d does not see all of the cluster yet", n.id)
		}
	}
	return nil
}

// Stop shuts all brokers down cleanly, those that are no controller first. Data stay.
func (c *Cluster) Stop(ctx context.Context) error {
	var errs []error
	for i := len(c.nodes) - 1; i >= 0; i-- {
		errs = append(errs, c.nodes[i].Stop(ctx))
	}
	return errors.Join(errs...)
}

// Kill ends all brokers with SIGKILL. Data stay.
func (c *Cluster) Kill() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// Restart stops what runs and starts all nodes again, on the same ports and data, and waits until they serve.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.StartNodes(ctx, c.nodes...)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/delayproxy"
	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// Broker is a cluster of one broker.
type Broker struct {
	Cluster *kafkaproc.Cluster
	Client  *kgo.Client
	// Far is another address of the same broker, behind Line; clients that come that way are told to stay on it.
	Far  string
	Line *delayproxy.Proxy
}

// serverFlags are what Kafka's own start scripts give to a JVM. kafkaproc's default is meant for short-lived processes
// (no second compiler tier, serial collector) and is undone by the first ones.
var serverFlags = []string{
	"-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
	"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15",
}

const farListener = "FAR"

func startBroker(ctx context.Context, version kafkaproc.Version, dir string, heapMB int) (*Broker, error) {
	b := &Broker{}
	cluster, err := kafkaproc.Start(ctx, kafkaproc.Config{
		Version: version, Dir: dir, HeapMB: heapMB, StartTimeout: 3 * time.Minute,
		JVMFlags: append([]string{fmt.Sprintf("-Xms%dm", heapMB)}, serverFlags...),
		Listeners: []kafkaproc.Listener{{Name: "PLAINTEXT"}, {Name: farListener, Advertise: func(_ int, addr string) (string, error) {
			line, err := delayproxy.New(addr)
			if err != nil {
				return "", err
			}
			b.Line, b.Far = line, line.Addr()
			return b.Far, nil
		}}},
		Props: map[string]string{
			// Deleted topics leave the disk before the next run instead of within it.
			"log.segment.delete.delay.ms": "500", "file.delete.delay.ms": "500",
			// The defaults of Kafka, instead of those for short tests.
			"log.cleaner.backoff.ms": "15000", "broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000",
			"num.network.threads": "3", "num.io.threads": "8", "background.threads": "10",
		},
	})
	if err != nil {
		if b.Line != nil {
			b.Line.Close()
		}
		return nil, fmt.Errorf("start Kafka %s: %w", version, err)
	}
	b.Cluster = cluster
	if b.Client, err = dataset.Client(cluster.Bootstrap()); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// Bootstrap is the broker's plain address.
func (b *Broker) Bootstrap() string { return b.Cluster.Bootstrap() }

// Pid is the broker's process.
func (b *Broker) Pid() int { return b.Cluster.Nodes()[0].Pid() }

func (b *Broker) close(ctx context.Context) error {
	if b.Client != nil {
		b.Client.Close()
	}
	err := b.Cluster.Stop(ctx)
	b.Line.Close()
	return err
}

// LogBytes is the size of a topic's .log files.
func (b *Broker) LogBytes(topic string) (int64, error) {
	return logBytes(b.Cluster.Nodes()[0].DataDir(), topic)
}

// DeleteTopics deletes all topics but the broker's own and those to keep, and waits until they have left the disk.
func (b *Broker) DeleteTopics(ctx context.Context, keep ...string) error {
	adm := kadm.NewClient(b.Client)
	list, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	kept := map[string]bool{}
	for _, k := range keep {
		kept[k] = true
	}
	var doomed []string
	for name := range list {
		if !kept[name] && !strings.HasPrefix(name, "__") {
			doomed = append(doomed, name)
		}
	}
	for len(doomed) > 0 {
		some := doomed[:min(100, len(doomed))]
		answers, err := adm.DeleteTopics(ctx, some...)
		if err != nil {
			return fmt.Errorf("delete topics: %w", err)
		}
		for _, a := range answers.Sorted() {
			if a.Err != nil && !errors.Is(a.Err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("delete topic %s: %w", a.Topic, a.Err)
			}
		}
		doomed = doomed[len(some):]
	}
	return b.waitOffDisk(ctx)
}

// waitOffDisk waits until the folders of deleted partitions are gone.
func (b *Broker) waitOffDisk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		gone, err := filepath.Glob(filepath.Join(b.Cluster.Nodes()[0].DataDir(), "*-delete"))
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d deleted partitions are still on disk: %w", len(gone), ctx.Err())
		}
	}
}

// CreateTopics makes topics with the same number of partitions and waits for their leaders.
func (b *Broker) CreateTopics(ctx context.Context, partitions int32, names ...string) error {
	all := map[string]int32{}
	for rest := names; len(rest) > 0; {
		some := rest[:min(100, len(rest))]
		rest = rest[len(some):]
		answers, err := kadm.NewClient(b.Client).CreateTopics(ctx, partitions, 1, nil, some...)
		if err != nil {
			return fmt.Errorf("create topics: %w", err)
		}
		for _, a := range answers.Sorted() {
			if a.Err != nil {
				return fmt.Errorf("create topic %s: %w", a.Topic, a.Err)
			}
			all[a.Topic] = partitions
		}
	}
	return dataset.WaitLeaders(ctx, b.Client, all)
}

// Commit stores offsets for a group without members.
func (b *Broker) Commit(ctx context.Context, group, topic string, partitions int32, at int64) error {
	offsets := kadm.Offsets{}
	for p := range partitions {
		offsets.Add(kadm.Offset{Topic: topic, Partition: p, At: at, LeaderEpoch: -1})
	}
	if err := kadm.NewClient(b.Client).CommitAllOffsets(ctx, group, offsets); err != nil {
		return fmt.Errorf("commit for group %s: %w", group, err)
	}
	return nil
}

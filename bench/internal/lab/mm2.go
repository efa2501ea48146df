package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// mm2 is MirrorMaker 2 of Kafka 4.3 in dedicated mode.
type mm2 struct {
	lab   *Lab
	tuned bool
}

func (e *mm2) Name() string {
	if e.tuned {
		return MM2Tuned
	}
	return MM2
}

// mm2Properties is the configuration. Untuned, everything is at its default except what a cluster of one broker demands
// (replication factors), what both engines do (consumer groups' offsets) and what neither can do without an authorizer
// (ACLs). Tuned, it follows the best published advice; see bench/README.md.
func mm2Properties(task Task, source, target string, tuned bool) map[string]string {
	flow := source + "->" + target
	p := map[string]string{
		"clusters":                              source + ", " + target,
		source + ".bootstrap.servers":           task.Source,
		target + ".bootstrap.servers":           task.Target,
		flow + ".enabled":                       "true",
		flow + ".topics":                        strings.Join(task.patterns(), ", "),
		target + "->" + source + ".enabled":     "false",
		"sync.group.offsets.enabled":            "true",
		"sync.topic.acls.enabled":               "false",
		"replication.factor":                    "1",
		"checkpoints.topic.replication.factor":  "1",
		"heartbeats.topic.replication.factor":   "1",
		"offset-syncs.topic.replication.factor": "1",
		"offset.storage.replication.factor":     "1",
		"status.storage.replication.factor":     "1",
		"config.storage.replication.factor":     "1",
	}
	if !tuned {
		return p
	}
	p["tasks.max"] = strconv.Itoa(int(min(max(task.Partitions*int32(max(len(task.Topics), 1)), 1), 8)))
	producer := map[string]string{
		"batch.size": "1048576", "linger.ms": "20", "compression.type": string(task.Codec),
		"max.in.flight.requests.per.connection": "5", "enable.idempotence": "true",
		"max.request.size": "8388608", "buffer.memory": "134217728",
	}
	for k, v := range producer {
		p[flow+".producer.override."+k] = v
	}
	p[source+".consumer.max.poll.records"] = "20000"
	p[source+".consumer.fetch.max.bytes"] = "52428800"
	return p
}

// mm2Heap are the flags of connect-mirror-maker.sh for the default, and 1 GB for the tuned one.
func mm2Heap(tuned bool) []string {
	if tuned {
		return []string{"-Xms1g", "-Xmx1g"}
	}
	return []string{"-Xms256m", "-Xmx2g"}
}

const mm2Logging = `status=warn
appender.stdout.type=Console
appender.stdout.name=STDOUT
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %X{connector.context}%m (%c:%L)%n
rootLogger.level=info
rootLogger.appenderRef.stdout.ref=STDOUT
`

func (e *mm2) Prepare(_ context.Context, task Task) (Prepared, error) {
	n := e.lab.next()
	p := &preparedMM2{lab: e.lab, tuned: e.tuned, source: fmt.Sprintf("s%d", n), target: fmt.Sprintf("t%d", n)}
	p.dir = filepath.Join(e.lab.dir, fmt.Sprintf("run-%03d-%s", n, e.Name()))
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make MirrorMaker's folder: %w", err)
	}
	var text strings.Builder
	props := mm2Properties(task, p.source, p.target, e.tuned)
	for _, k := range slices.Sorted(maps.Keys(props)) {
		text.WriteString(k + " = " + strings.ReplaceAll(props[k], `\`, `\\`) + "\n")
	}
	for name, text := range map[string]string{"mm2.properties": text.String(), "log4j2.properties": mm2Logging} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return p, nil
}

type preparedMM2 struct {
	lab            *Lab
	tuned          bool
	source, target string
	dir            string
}

func (p *preparedMM2) Start(ctx context.Context) (*Mirror, error) {
	flags := append(slices.Clone(serverFlags), mm2Heap(p.tuned)...)
	flags = append(flags, "-Dlog4j2.configurationFile="+filepath.Join(p.dir, "log4j2.properties"))
	// Not the caller's ctx: the mirror is ended by Stop, Kill or our death.
	cmd, err := kafkaproc.JavaCommand(context.WithoutCancel(ctx), kafkaproc.V43, flags,
		"org.apache.kafka.connect.mirror.MirrorMaker", filepath.Join(p.dir, "mm2.properties"))
	if err != nil {
		return nil, err
	}
	cmd.Dir = p.dir
	return startMirror(cmd, filepath.Join(p.dir, "mirror.log"))
}

func (p *preparedMM2) Remote(topic string) string { return p.source + "." + topic }

func (p *preparedMM2) Close(context.Context) error { return nil }

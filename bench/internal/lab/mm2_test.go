package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
)

func task() Task {
	return Task{Source: "127.0.0.1:1", Target: "127.0.0.1:2", Topics: []string{"orders.eu", "bills"}, Codec: dataset.LZ4, Partitions: 16}
}

func TestMM2AtDefaultsChangesNothingThatActsOnSpeed(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]string{
		"clusters": "a, b", "a.bootstrap.servers": "127.0.0.1:1", "b.bootstrap.servers": "127.0.0.1:2",
		"a->b.enabled": "true", "a->b.topics": `orders\.eu, bills`, "b->a.enabled": "false",
		"sync.group.offsets.enabled": "true", "sync.topic.acls.enabled": "false",
		"replication.factor": "1", "checkpoints.topic.replication.factor": "1", "heartbeats.topic.replication.factor": "1",
		"offset-syncs.topic.replication.factor": "1", "offset.storage.replication.factor": "1",
		"status.storage.replication.factor": "1", "config.storage.replication.factor": "1",
	}, mm2Properties(task(), "a", "b", false))
	require.Equal(t, []string{"-Xms256m", "-Xmx2g"}, mm2Heap(false))
}

func TestTunedMM2FollowsTheAdvice(t *testing.T) {
	t.Parallel()
	tuned, plain := mm2Properties(task(), "a", "b", true), mm2Properties(task(), "a", "b", false)
	for k, v := range plain {
		require.Equal(t, v, tuned[k], k)
		delete(tuned, k)
	}
	require.Equal(t, map[string]string{
		"tasks.max":                                                    "8",
		"a->b.producer.override.batch.size":                            "1048576",
		"a->b.producer.override.linger.ms":                             "20",
		"a->b.producer.override.compression.type":                      "lz4",
		"a->b.producer.override.max.in.flight.requests.per.connection": "5",
		"a->b.producer.override.enable.idempotence":                    "true",
		"a->b.producer.override.max.request.size":                      "8388608",
		"a->b.producer.override.buffer.memory":                         "134217728",
		"a.consumer.max.poll.records":                                  "20000",
		"a.consumer.fetch.max.bytes":                                   "52428800",
	}, tuned)
	require.Equal(t, []string{"-Xms1g", "-Xmx1g"}, mm2Heap(true))
	one := task()
	one.Topics, one.Partitions = one.Topics[:1], 1
	require.Equal(t, "1", mm2Properties(one, "a", "b", true)["tasks.max"], "no more tasks than partitions")
}

func TestTheDocumentedSettingsAreTheOnesUsed(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	plain := mm2Properties(task(), "a", "b", false)
	for k, v := range mm2Properties(task(), "a", "b", true) {
		if plain[k] == v {
			continue
		}
		name := k[strings.LastIndex(k, "override.")+1:]
		name = strings.TrimPrefix(strings.TrimPrefix(name, "verride."), "a.consumer.")
		if name == "compression.type" || name == "tasks.max" {
			continue // depend on the case
		}
		require.Contains(t, string(readme), "`"+name+"="+v+"`")
	}
	for _, f := range append(append(mm2Heap(false), mm2Heap(true)...), serverFlags...) {
		require.Contains(t, string(readme), f)
	}
}

func TestOnlyTheTopicsOwnLogsAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{
		"orders-0/0.log": 10, "orders-0/5.log": 5, "orders-1/0.log": 1, "orders-1/0.index": 100,
		"orders-eu-0/0.log": 1000, "orders-2.abc-delete/0.log": 1000,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	got, err := logBytes(dir, "orders")
	require.NoError(t, err)
	require.EqualValues(t, 16, got)
}

func TestAWorkFolderOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, freshDir(dir), "empty")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	require.NoError(t, freshDir(dir), "its own")
	require.NoFileExists(t, filepath.Join(dir, "data"))
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "letters"), nil, 0o600))
	require.ErrorContains(t, freshDir(foreign), "not made by this program")
	require.FileExists(t, filepath.Join(foreign, "letters"))
}

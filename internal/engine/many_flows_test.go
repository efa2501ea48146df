package engine

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// connectionsTo counts the open connections of this process to a port of this host.
func connectionsTo(tb testing.TB, address string) int {
	tb.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(tb, err)
	port, err := strconv.ParseUint(text, 10, 16)
	require.NoError(tb, err)
	ours := map[string]bool{}
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(tb, err)
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			ours[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	n := 0
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(tb, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 9 && fields[3] == "01" && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", port)) && ours[fields[9]] {
				n++
			}
		}
		require.NoError(tb, f.Close())
	}
	return n
}

// residentMiB is the process' memory.
func residentMiB(tb testing.TB) int {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(tb, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			require.NoError(tb, err)
			return kib >> 10
		}
	}
	require.Fail(tb, "no VmRSS")
	return 0
}

// Two hundred flows between two pairs of clusters, in one process, cost a few connections and their partitions. Not
// parallel: nothing else of the process has connections meanwhile.
func TestTwoHundredIdleFlowsShareAFewConnections(t *testing.T) {
	const perPair, partitions = 100, 2
	brokers := [2]*kafkatest.Cluster{kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)}
	name := strings.ToLower(kafkatest.UniqueName(t))
	topic := func(pair, i int) string { return fmt.Sprintf("%s-%d-%03d", name, pair, i) }
	producers := [2]*kgo.Client{}
	for pair, b := range brokers {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer cl.Close()
		producers[pair] = cl
		var names []string
		for i := range perPair {
			names = append(names, topic(pair, i))
		}
		made, err := kadm.NewClient(cl).CreateTopics(t.Context(), partitions, 1, nil, names...)
		require.NoError(t, err)
		require.NoError(t, made.Error())
	}
	before, began := residentMiB(t), time.Now()
	h := hub.New(hub.Config{ClientID: "worker"})
	defer h.Close()
	var flows []*flow
	for i := range perPair {
		for pair, b := range brokers {
			cfg := settings(fmt.Sprintf("%s-%d", name, pair), b.Bootstrap(), brokers[1-pair].Bootstrap(), topic(pair, i))
			cfg.Identity.FlowID += fmt.Sprint("-", i)
			cfg.Hub, cfg.PassThrough, cfg.EmitHeartbeats = h, true, true
			cfg.Source.Key, cfg.Target.Key = b.Bootstrap(), brokers[1-pair].Bootstrap()
			cfg.RefreshTopicsInterval, cfg.EmitCheckpointsInterval, cfg.RefreshGroupsInterval = time.Minute, time.Minute, time.Minute
			cfg.SyncInterval, cfg.EmitHeartbeatsInterval = time.Minute, time.Second
			flows = append(flows, run(t, cfg))
		}
	}
	defer func() {
		var ends sync.WaitGroup
		for _, f := range flows {
			ends.Go(func() {
				f.over = true
				f.stop(context.Canceled)
				<-f.done
			})
		}
		ends.Wait()
	}()
	for _, f := range flows {
		f.untilState(report.Running)
	}
	t.Logf("all run after %s", time.Since(began).Round(time.Millisecond))

	// They are idle, not asleep: a record of each pair arrives.
	for pair := range brokers {
		r := &kgo.Record{Topic: topic(pair, 7), Partition: 1, Value: []byte("v")}
		require.NoError(t, producers[pair].ProduceSync(t.Context(), r).FirstErr())
		flows[2*7+pair].untilPosition(topic(pair, 7), 1)
		producers[pair].Close()
	}
	runtime.GC()
	for _, b := range brokers {
		n := connectionsTo(t, b.Bootstrap())
		t.Logf("%d connections to a broker that is a source of %d flows and a target of %d", n, perPair, perPair)
		require.Positive(t, n)
		require.LessOrEqual(t, n, 16)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d flows: %d MiB resident, %d before them; %d MiB of heap, %d goroutines", len(flows), residentMiB(t), before, m.HeapInuse>>20, runtime.NumGoroutine())
}

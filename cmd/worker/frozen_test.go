package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// copying makes a flow of one topic between two clusters that answer.
func copying(t *testing.T, db *store.Store, sealer flows.Sealer, source, target *kafkatest.Cluster, topic string) (holder func() (string, error)) {
	t.Helper()
	p, err := db.EnsureDefaultProject(t.Context())
	require.NoError(t, err)
	m := flows.NewManager(flows.ManagerConfig{Store: db, Sealer: sealer, CheckTimeout: 100 * time.Millisecond})
	mm, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{Engine: flows.EngineKafkaMirrorMaker}, true)
	require.NoError(t, err)
	var ends []uuid.UUID
	for _, c := range []*kafkatest.Cluster{source, target} {
		s, err := m.CreateService(t.Context(), p.ID, flows.ServiceInput{
			Engine: flows.EngineKafka, BootstrapServers: []string{c.Bootstrap()}, Security: flows.Security{Protocol: "PLAINTEXT"},
		}, true)
		require.NoError(t, err)
		i, err := m.CreateIntegration(t.Context(), p.ID, flows.IntegrationInput{SourceServiceID: s.ID, DestinationServiceID: mm.ID})
		require.NoError(t, err)
		ends = append(ends, i.ID)
	}
	in := flows.FlowInput{SourceIntegration: ends[0], TargetIntegration: ends[1], Options: flows.DefaultOptions()}
	in.Enabled, in.Topics = true, []string{topic}
	f, err := m.CreateFlow(t.Context(), p.ID, in)
	require.NoError(t, err)
	return func() (string, error) {
		st, err := m.FlowStatus(t.Context(), p.ID, f.ID)
		if err != nil || len(st.Tasks) != 1 {
			return "", errors.Join(errors.New("no task runs"), err)
		}
		return st.Tasks[0].Worker, nil
	}
}

func TestI5_B93_AFrozenWorkerWritesNothingBehindItsSuccessor(t *testing.T) {
	t.Parallel()
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	topic := kafkatest.UniqueName(t)
	const partitions = 3
	kafkatest.CreateTopic(t, source, topic, partitions, nil)
	url, db := database(t)
	sealer, keys := keyFile(t)
	holder := copying(t, db, sealer, source, target, topic)
	first, address := start(t, url, "first", keys)
	waitReady(t, address)

	var filling sync.WaitGroup
	stop := make(chan struct{})
	next := uint64(1)
	filling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 3 * 50, Partitions: partitions, FirstID: next, Plain: true})
			}
		}
	})
	ended := sync.OnceFunc(func() { close(stop); filling.Wait() })
	t.Cleanup(ended)
	admin := kafkatest.Admin(t, target)
	remote := ""
	written := func() (n int64, err error) {
		if remote == "" {
			all, err := admin.ListTopics(t.Context())
			if err != nil {
				return 0, err
			}
			for _, name := range all.Names() {
				if strings.HasSuffix(name, "."+topic) {
					remote = name
				}
			}
			if remote == "" {
				return 0, errors.New("no copy")
			}
		}
		listed, err := admin.ListEndOffsets(t.Context(), remote)
		if err := errors.Join(err, listed.Error()); err != nil {
			return 0, err
		}
		for _, o := range listed.Offsets()[remote] {
			n += o.At
		}
		return n, nil
	}
	reach := func(what string, least int64) int64 {
		n := int64(0)
		wait.For(t, 40*time.Second, what, func() (err error) {
			if n, err = written(); err == nil && n < least {
				err = fmt.Errorf("%d of %d records", n, least)
			}
			return err
		})
		return n
	}
	reach("copying by the first", 2000)
	second, address := start(t, url, "second", keys)
	waitReady(t, address)
	first.Signal(t, syscall.SIGSTOP)
	wait.For(t, leaseTTL+10*time.Second, "the second worker", func() error {
		by, err := holder()
		if err == nil && by != "second" {
			err = errors.New("held by " + by)
		}
		return err
	})
	n, err := written()
	require.NoError(t, err)
	n = reach("copying by the second", n+2000)
	first.Signal(t, syscall.SIGCONT)
	first.WaitMatch(t, `"msg":"lease lost, task stopped"`, 10*time.Second)
	reach("copying on", n+2000)
	ended()
	var last uint64
	var copied map[int32][]kafkatest.Record
	wait.For(t, 30*time.Second, "the last record", func() error {
		last = 0
		copied = kafkatest.ReadAll(t, target, remote, kafkatest.ReadCommitted)
		for _, records := range copied {
			last = max(last, id(records[len(records)-1]))
		}
		if last != next-1 {
			return fmt.Errorf("at %d of %d", last, next-1)
		}
		return nil
	})
	for p, records := range copied {
		back := 0
		for i := 1; i < len(records); i++ {
			if id(records[i]) <= id(records[i-1]) {
				back++
			}
		}
		require.LessOrEqual(t, back, 1, "partition %d goes back once, where the second worker began", p)
	}
	first.Stop(t)
	second.Stop(t)
}

func id(r kafkatest.Record) uint64 {
	for _, h := range r.Headers {
		if h.Key == kafkatest.IDHeader {
			return binary.BigEndian.Uint64(h.Value)
		}
	}
	return 0
}

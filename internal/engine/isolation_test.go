package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// fakes are two clusters in the process. With acls, the flow's user may do only what they allow.
func fakes(t *testing.T, name string, acls ...map[string][]kfake.ACL) *world {
	t.Helper()
	w := &world{tb: t, name: name}
	client := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}
	addr := map[string]string{}
	for _, side := range []string{sideSource, sideTarget} {
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID(name + "-" + side)}
		if len(acls) > 0 {
			opts = append(opts, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
				kfake.User("PLAIN", "mirror", "mirror", acls[0][side]...))
		}
		c, err := kfake.NewCluster(opts...)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		addr[side] = c.ListenAddrs()[0]
		w.targetCluster = c
	}
	if len(acls) > 0 {
		client = append(client, kgo.SASL(plain.Auth{User: "admin", Pass: "admin"}.AsMechanism()))
	}
	w.src, w.tgt = addr[sideSource], addr[sideTarget]
	make := func(addr string) *kgo.Client {
		cl, err := kgo.NewClient(append(client, kgo.SeedBrokers(addr))...)
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	w.srcCl, w.tgtCl = make(w.src), make(w.tgt)
	w.srcAdm, w.tgtAdm = kadm.NewClient(w.srcCl), kadm.NewClient(w.tgtCl)
	return w
}

func allow(allowed bool, resource kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) []kfake.ACL {
	var out []kfake.ACL
	for _, op := range ops {
		a := kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: allowed}
		out = append(out, a)
	}
	return out
}

func join(lists ...[]kfake.ACL) (out []kfake.ACL) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func TestB94_TopicsThatAreRefusedStopThemselvesOnly(t *testing.T) {
	t.Parallel()
	topic, cluster := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeCluster
	w := fakes(t, "b94", map[string][]kfake.ACL{
		// B85: read-only rights on the source are enough.
		sideSource: join(
			allow(true, topic, "*", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
			allow(false, topic, "noread", kmsg.ACLOperationRead),
			allow(true, cluster, "kafka-cluster", kmsg.ACLOperationDescribe)),
		sideTarget: join(
			allow(true, topic, "*", kmsg.ACLOperationAll),
			allow(true, cluster, "kafka-cluster", kmsg.ACLOperationDescribe, kmsg.ACLOperationIdempotentWrite),
			allow(false, topic, "b94.src.nowrite", kmsg.ACLOperationWrite),
			allow(false, topic, "b94.src.nocreate", kmsg.ACLOperationCreate),
			allow(false, topic, "b94.src.nogrowth", kmsg.ACLOperationAlter)),
	})
	for _, name := range []string{"fine", "noread", "nowrite", "nocreate", "nogrowth"} {
		w.create(w.srcAdm, name, 2, nil)
		w.produce(w.srcCl, name, 0, 0, 20)
		w.produce(w.srcCl, name, 1, 0, 20)
	}
	w.create(w.tgtAdm, w.remote("nogrowth"), 1, nil)
	cfg := settings("b94", w.src, w.tgt, ".*")
	user := kafka.Security{Protocol: "SASL_PLAINTEXT", SASL: kafka.SASL{Mechanism: "PLAIN", Username: "mirror", Password: "mirror"}}
	cfg.Source.Credentials, cfg.Target.Credentials = kafka.NewCredentials(user), kafka.NewCredentials(user)
	f := run(t, cfg)
	f.untilPosition("fine", 40)
	for topic, code := range map[string]string{
		"noread": "SOURCE_FORBIDDEN", "nowrite": "TARGET_FORBIDDEN", "nocreate": report.TopicCreateFailed, "nogrowth": report.TargetPartitions,
	} {
		st := f.until(topic+" shows "+code, func(st report.Status) bool {
			for _, c := range st.Conditions {
				if c.Code == code && c.Subject.Topic == topic && c.Remedy != "" {
					return true
				}
			}
			return false
		})
		require.NotEqual(t, report.Failed, st.State)
	}
	f.untilPosition("nogrowth", 20) // partition 0; 1 does not exist on the target
	f.untilState(report.Degraded)
	w.produce(w.srcCl, "fine", 0, 20, 20)
	f.untilPosition("fine", 60)
	require.Equal(t, want(0, 0, 40), w.read(w.tgtAdm, w.tgt, w.remote("fine"), 0))
	f.drain()
}

func TestALossThatCannotBeRecordedHoldsThePartitionBack(t *testing.T) {
	t.Parallel()
	w := real(t, "record")
	topic, other := w.topic("t"), w.topic("other")
	for _, name := range []string{topic, other} {
		w.create(w.srcAdm, name, 1, nil)
		w.produce(w.srcCl, name, 0, 0, 10)
	}
	cfg := settings(w.name, w.src, w.tgt, w.topic(".*"))
	f := run(t, cfg)
	f.untilPosition(topic, 10)
	f.untilPosition(other, 10)
	f.drain()
	w.produce(w.srcCl, topic, 0, 10, 20)
	w.produce(w.srcCl, other, 0, 10, 20)
	w.deleteBefore(topic, 0, 15)
	silent := newSink()
	silent.refuse = errors.New("no database")
	cfg.Sink = silent
	f = run(t, cfg)
	f.untilPosition(other, 30)
	p := f.sink.status().Topics
	for _, tp := range p {
		if tp.Name == topic {
			require.NotEqual(t, partRunning, tp.Partitions[0].State)
		}
	}
	silent.mu.Lock()
	silent.refuse = nil
	silent.mu.Unlock()
	f.untilPosition(topic, 30)
	require.Len(t, silent.eventsOf(report.OffsetsLost), 1)
	require.Equal(t, append(want(0, 0, 10), want(0, 15, 15)...), w.read(w.tgtAdm, w.tgt, w.remote(topic), 0))
}

func TestB44_AClusterThatTookTheTargetsPlaceGetsNothing(t *testing.T) {
	t.Parallel()
	w := fakes(t, "b44r")
	topic := w.topic("t")
	w.create(w.srcAdm, topic, 1, nil)
	w.produce(w.srcCl, topic, 0, 0, 10)
	port, err := strconv.Atoi(w.tgt[strings.LastIndex(w.tgt, ":")+1:])
	require.NoError(t, err)
	cfg := settings(w.name, w.src, w.tgt, topic)
	f := run(t, cfg)
	f.untilPosition(topic, 10)
	w.targetCluster.Close()
	other, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ClusterID("other"))
	require.NoError(t, err)
	defer other.Close()
	w.produce(w.srcCl, topic, 0, 10, 10)
	c := f.untilCondition("TARGET_CLUSTER_CHANGED")
	require.Equal(t, "other", c.Evidence["found_cluster_id"])
	f.untilState(report.Failed)
	adm := kadm.NewClient(w.tgtCl)
	eventually(t, "the other cluster answers", func() bool { _, err := adm.ListTopics(w.ctx()); return err == nil })
	ts, err := adm.ListTopics(w.ctx())
	require.NoError(t, err)
	require.False(t, ts.Has(w.remote(topic)), "%v", ts.Names())
	require.EqualValues(t, 10, f.sink.status().Topics[0].Partitions[0].Position)
}

func TestAClusterThatTookTheSourcesPlaceIsNotShownAsUnreachable(t *testing.T) {
	t.Parallel()
	w := fakes(t, "placed")
	topic := w.topic("t")
	first, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("first"), kfake.SeedTopics(1, topic))
	require.NoError(t, err)
	defer first.Close()
	address := first.ListenAddrs()[0]
	port, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
	require.NoError(t, err)
	cfg := settings(w.name, address, w.tgt, topic)
	cfg.GroupExcludeList, cfg.SyncGroupOffsets = nil, true
	cfg.Groups = []string{".*"}
	f := run(t, cfg)
	f.untilState(report.Running)
	first.Close()
	f.untilCondition("SOURCE_UNREACHABLE")
	// All that work with the source have noticed, those among them that will have nothing to do with its successor.
	eventually(t, "the path has noticed", func() bool {
		f.task.source.mu.Lock()
		defer f.task.source.mu.Unlock()
		return len(f.task.source.failing) > 1
	})
	other, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ClusterID("other"))
	require.NoError(t, err)
	defer other.Close()
	f.untilCondition("SOURCE_CLUSTER_CHANGED")
	f.until("only the change is shown", func(st report.Status) bool {
		return condition(st, "SOURCE_CLUSTER_CHANGED") != nil && condition(st, "SOURCE_UNREACHABLE") == nil
	})
}

func TestAStopDoesNotWaitForATargetThatIsAway(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(map[bool]string{false: "drained", true: "lease lost"}[lost], func(t *testing.T) {
			t.Parallel()
			w := fakes(t, "stop"+strconv.FormatBool(lost))
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 1, nil)
			w.produce(w.srcCl, topic, 0, 0, 10)
			f := run(t, settings(w.name, w.src, w.tgt, topic))
			f.untilPosition(topic, 10)
			w.targetCluster.Close()
			w.produce(w.srcCl, topic, 0, 10, 10)
			f.untilState(report.Failed)
			began := time.Now()
			f.over = true
			if lost {
				// While it drains already, with all the time in the world.
				drained := make(chan error, 1)
				go func() { drained <- f.task.Drain(context.Background()) }()
				f.stop(ErrLeaseLost)
				require.ErrorIs(t, <-f.done, ErrLeaseLost)
				require.Less(t, time.Since(began), 5*time.Second)
				<-drained
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.Error(t, f.task.Drain(ctx))
			require.Error(t, <-f.done)
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

package groups

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestB64ZeroIsSyncedAndWhatWasNeverCommittedIsNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 50, 1: 0})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 50, 1: 0}, w.committed(g))
	require.Len(t, w.checkpoints(), 2)
	require.Empty(t, w.board.List())
	require.Equal(t, []report.Group{{Group: g, State: "Empty", Offsets: []report.GroupOffset{
		{Topic: w.topic, Partition: 0, SourceOffset: 50, TargetOffset: 50, Exact: true},
		{Topic: w.topic, Partition: 1, SourceOffset: 0, TargetOffset: 0, Exact: true},
	}}}, r.Groups())
}

func TestB63CommitsCarryTheMetadataAndNoLeaderEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: w.topic, Partition: 2, At: 7, LeaderEpoch: 5, Metadata: "häh"})
	require.NoError(t, w.from.CommitAllOffsets(t.Context(), g, offsets))
	require.NoError(t, w.room().SyncOnce(t.Context()))
	got, err := w.to.FetchOffsets(t.Context(), g)
	require.NoError(t, err)
	o, ok := got.Lookup(w.remote, 2)
	require.True(t, ok)
	require.EqualValues(t, 7, o.At)
	require.EqualValues(t, -1, o.LeaderEpoch)
	require.Equal(t, "häh", o.Metadata)
	require.Equal(t, "häh", w.checkpoints()[0].Metadata)
}

func TestB54PartitionsWithoutAMappingGetNoCommitAndTheOthersDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	delete(w.translator.by, partition{w.topic, 1})
	w.translator.set(w.topic, 0, -40)
	w.commit(g, map[int32]int64{0: 100, 1: 100})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 60}, w.committed(g))
	o, ok := shown(r, g, 1)
	require.True(t, ok)
	require.EqualValues(t, -1, o.TargetOffset)
	require.Equal(t, "nothing is mirrored yet", o.Reason)
}

func TestB59AClampedOffsetIsCommittedAndFollowsTheCopy(t *testing.T) {
	t.Parallel()
	// The interval is out of reach: what is committed later is due to the copy.
	w := newWorld(t, func(c *Config) { c.SyncInterval = time.Hour })
	g := w.group("g")
	w.translator.ack(w.topic, 0, 10)
	w.commit(g, map[int32]int64{0: 100})
	r, _ := w.run()
	wait.For(t, 15*time.Second, "the clamped offset", func() error { return w.want(g, map[int32]int64{0: 10}) })
	o, _ := shown(r, g, 0)
	require.False(t, o.Exact)
	require.EqualValues(t, 90, o.Bound)
	w.translator.ack(w.topic, 0, 1000)
	wait.For(t, 15*time.Second, "the exact offset", func() error { return w.want(g, map[int32]int64{0: 100}) })
}

func TestTheFirstCommitWaitsForTheMappingAndNotForTheInterval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.SyncInterval = time.Hour })
	g := w.group("g")
	delete(w.translator.by, partition{w.topic, 0})
	w.commit(g, map[int32]int64{0: 5})
	r, _ := w.run()
	wait.For(t, 15*time.Second, "the group in the status", func() error {
		if _, ok := shown(r, g, 0); !ok {
			return errors.New("not there")
		}
		return nil
	})
	require.Empty(t, w.committed(g))
	w.translator.set(w.topic, 0, 3)
	wait.For(t, 15*time.Second, "the first commit", func() error { return w.want(g, map[int32]int64{0: 8}) })
}

func TestB60AGroupActiveOnTheTargetIsLeftAloneUntilItIsEmpty(t *testing.T) {
	t.Parallel()
	testActiveGroup(t, nil)
}

func TestB71AGroupOfTheNewProtocolCountsAsActive(t *testing.T) {
	t.Parallel()
	testActiveGroup(t, func(ctx context.Context) context.Context {
		// How the client library is told to use KIP-848.
		return context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:revive,staticcheck // the library's key is a string
	})
}

func testActiveGroup(t *testing.T, protocol func(context.Context) context.Context) {
	w := newWorld(t)
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 3, 1: 3, 2: 3})
	ctx := t.Context()
	if protocol != nil {
		ctx = protocol(ctx)
	}
	consumer := kafkatest.Client(t, w.target, kgo.WithContext(ctx), kgo.ConsumerGroup(g), kgo.ConsumeTopics(w.remote), kgo.DisableAutoCommit())
	polling, stop := context.WithCancel(t.Context())
	defer stop()
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for polling.Err() == nil {
			consumer.PollFetches(polling)
		}
	}()
	wait.For(t, 30*time.Second, "the consumer to be a member", func() error {
		if protocol != nil {
			d, err := w.to.DescribeConsumerGroups(t.Context(), g)
			if err != nil {
				return err
			}
			if d[g].State != "Stable" || len(d[g].Members) == 0 {
				return fmt.Errorf("state %q", d[g].State)
			}
			return nil
		}
		d, err := w.to.DescribeGroups(t.Context(), g)
		if err != nil {
			return err
		}
		if d[g].State != "Stable" {
			return fmt.Errorf("state %q", d[g].State)
		}
		return nil
	})
	_, _ = w.run()
	wait.For(t, 15*time.Second, "the condition", func() error {
		if _, ok := w.condition(report.GroupActiveOnTarget, g); !ok {
			return errors.New("not set")
		}
		return nil
	})
	c, _ := w.condition(report.GroupActiveOnTarget, g)
	require.Equal(t, report.Info, c.Severity)
	require.Empty(t, w.committed(g))
	_, failed := w.condition(report.GroupSyncFailed, g)
	require.False(t, failed, "it is not an error")

	stop()
	<-polled
	consumer.CloseAllowingRebalance()
	wait.For(t, 60*time.Second, "the sync to go on", func() error { return w.want(g, map[int32]int64{0: 3, 1: 3, 2: 3}) })
	_, still := w.condition(report.GroupActiveOnTarget, g)
	require.False(t, still)
}

func TestACommitThatTheBrokerRefusesForMembersIsNoError(t *testing.T) {
	t.Parallel()
	// The race between describe and commit: the group is active by the time of the commit.
	w := newWorld(t)
	g := w.group("g")
	consumer := kafkatest.Client(t, w.target, kgo.ConsumerGroup(g), kgo.ConsumeTopics(w.remote), kgo.DisableAutoCommit())
	polling, stop := context.WithCancel(t.Context())
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for polling.Err() == nil {
			consumer.PollFetches(polling)
		}
	}()
	defer func() { stop(); <-polled }()
	r := w.room()
	wait.For(t, 30*time.Second, "the broker to refuse", func() error {
		err := r.commitAll(t.Context(), map[string]wants{g: {mm2.TopicPartition{Topic: w.remote, Partition: 0}: want{offset: 1}}})
		require.NoError(t, err)
		if _, ok := w.condition(report.GroupActiveOnTarget, g); !ok {
			return errors.New("still accepted")
		}
		return nil
	})
	require.Len(t, w.board.List(), 1)
}

func TestB62AGroupSetBackOnTheSourceStaysAheadOnTheTargetAndTheStatusTells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 100})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	w.commit(g, map[int32]int64{0: 10})
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 100}, w.committed(g))
	cps := w.checkpoints()
	require.EqualValues(t, 10, cps[len(cps)-1].Downstream, "the checkpoint goes back with the source")
	o, _ := shown(r, g, 0)
	require.EqualValues(t, 10, o.TargetOffset)
	require.Contains(t, o.Reason, "at 100 already")
	require.Empty(t, w.board.List())
}

func TestB74ADeletedSourceGroupIsForgottenHereAndKeptThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 100})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	_, err := w.from.DeleteGroups(t.Context(), g)
	require.NoError(t, err)
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Empty(t, r.Groups())
	require.Equal(t, map[int32]int64{0: 100}, w.committed(g))
	written := len(w.checkpoints())
	require.Equal(t, 1, written, "no tombstone")

	w.commit(g, map[int32]int64{0: 5})
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 100}, w.committed(g))
	o, _ := shown(r, g, 0)
	require.Contains(t, o.Reason, "at 100 already")
}

func TestB66GroupsWithoutMembersAndGroupsOfLateTopicsAreSynced(t *testing.T) {
	t.Parallel()
	accepted := map[string]bool{}
	w := newWorld(t, func(c *Config) { c.TopicFilter = func(topic string) bool { return accepted[topic] } })
	late := w.group("late")
	w.commit(late, map[int32]int64{0: 1})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Empty(t, r.Groups(), "no offset on a topic of the flow")
	accepted[w.topic] = true
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 1}, w.committed(late))

	// A consumer that assigns partitions itself and commits: no members, no protocol.
	manual := kafkatest.Client(t, w.source, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {1: kgo.NewOffset().AtStart()}}))
	var offsets kadm.Offsets
	offsets.AddOffset(w.topic, 1, 4, -1)
	require.NoError(t, kadm.NewClient(manual).CommitAllOffsets(t.Context(), w.group("manual"), offsets))
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{1: 4}, w.committed(w.group("manual")))
}

func TestB75GroupsThatTheListsExcludeStayAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.GroupFilter = mm2.NewGroupFilter([]mm2.Matcher{prefixed(w.prefix)}, []mm2.Matcher{prefixed(w.group("console-consumer-"))})
	w.commit(w.group("console-consumer-1"), map[int32]int64{0: 1})
	w.commit(w.group("kept"), map[int32]int64{0: 1})
	r := w.room()
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Len(t, r.Groups(), 1)
	listed, err := w.to.ListGroups(t.Context())
	require.NoError(t, err)
	for _, g := range listed.Groups() {
		require.False(t, strings.HasPrefix(g, w.group("console-")), g)
	}
}

func TestB58ARestartDoesNotRepeatOrSetBackCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	last := int64(0)
	for restart := range 5 {
		_, stop := w.run()
		for range 3 {
			last += 25
			w.commit(g, map[int32]int64{0: last})
			wait.For(t, 15*time.Second, fmt.Sprintf("checkpoint and commit of %d in run %d", last, restart), func() error {
				cps := w.checkpoints()
				if len(cps) == 0 || cps[len(cps)-1].Upstream != last {
					return fmt.Errorf("%d checkpoints", len(cps))
				}
				return w.want(g, map[int32]int64{0: last})
			})
		}
		stop()
	}
	cps := w.checkpoints()
	require.Len(t, cps, 15, "each once, none again after a restart")
	for i := 1; i < len(cps); i++ {
		require.Greater(t, cps[i].Downstream, cps[i-1].Downstream)
	}
}

func TestB79TheDelayFromSourceToTargetStaysBelowTwoIntervals(t *testing.T) {
	t.Parallel()
	// Checkpoints far apart: they must not hold the commits back.
	w := newWorld(t, func(c *Config) { c.SyncInterval, c.CheckpointInterval = 2*time.Second, time.Minute })
	g := w.group("g")
	w.commit(g, map[int32]int64{0: 1})
	_, _ = w.run()
	wait.For(t, 15*time.Second, "the first commit", func() error { return w.want(g, map[int32]int64{0: 1}) })
	for i := int64(2); i < 6; i++ {
		began := time.Now()
		w.commit(g, map[int32]int64{0: i})
		wait.For(t, 10*time.Second, "the next commit", func() error { return w.want(g, map[int32]int64{0: i}) })
		require.Less(t, time.Since(began), 2*w.cfg.SyncInterval)
	}
}

func TestACommitThatOnePartitionCannotTakeReachesTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	other := w.topic + "-unmade"
	kafkatest.CreateTopic(t, w.source, other, 1, nil)
	w.cfg.TopicFilter = func(string) bool { return true }
	w.translator.set(other, 0, 0)
	kafkatest.Commit(t, w.source, g, other, map[int32]int64{0: 1})
	w.commit(g, map[int32]int64{0: 9})
	r := w.room()
	require.Error(t, r.SyncOnce(t.Context()))
	require.Equal(t, map[int32]int64{0: 9}, w.committed(g))
	c, ok := w.condition(report.GroupSyncFailed, g)
	require.True(t, ok)
	require.Contains(t, c.Message, "1 of 2 partitions")
	require.Contains(t, c.Message, other)
	require.NotEmpty(t, c.Remedy)
	kafkatest.CreateTopic(t, w.target, w.cfg.Policy.FormatRemoteTopic(w.alias, other), 1, nil)
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Empty(t, w.board.List(), "it ends by itself")
}

func TestCheckpointsAreReadByMM2sFormatter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.group("g")
	w.translator.set(w.topic, 1, -2)
	w.commit(g, map[int32]int64{1: 12})
	require.NoError(t, w.room().SyncOnce(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, err := kafkaproc.JavaCommand(ctx, kafkatest.V43, nil, "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", w.target.AdminBootstraps()[0], "--topic", w.cfg.Policy.CheckpointsTopic(w.alias), "--from-beginning",
		"--max-messages", "1", "--timeout-ms", "30000", "--formatter", "org.apache.kafka.connect.mirror.formatters.CheckpointFormatter")
	require.NoError(t, err)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("console consumer: %s", exit.Stderr)
	}
	require.NoError(t, err)
	require.Contains(t, string(out), fmt.Sprintf("Checkpoint{consumerGroupId=%s, topicPartition=%s-1, upstreamOffset=12, downstreamOffset=10, metadata=}", g, w.remote))
	configs, err := w.to.DescribeTopicConfigs(t.Context(), w.cfg.Policy.CheckpointsTopic(w.alias))
	require.NoError(t, err)
	for _, c := range configs[0].Configs {
		if c.Key == "cleanup.policy" {
			require.Equal(t, "compact", c.MaybeValue())
		}
	}
}

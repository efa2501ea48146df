package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// fakeWorld is a flow's groups between two fake clusters, whose answers can be bent.
type fakeWorld struct {
	source, target *kfake.Cluster
	from, to       *kadm.Client
	board          *report.Board
	cfg            Config
}

const fakeTopic = "orders"

func newFakeWorld(t *testing.T) *fakeWorld {
	t.Helper()
	make := func(topic string) (*kfake.Cluster, *kgo.Client) {
		c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(2, topic))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.RetryTimeout(200*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return c, client
	}
	policy, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	w := &fakeWorld{board: report.NewBoard(time.Now)}
	var source, target *kgo.Client
	w.source, source = make(fakeTopic)
	w.target, target = make(policy.FormatRemoteTopic(sourceAlias, fakeTopic))
	w.from, w.to = kadm.NewClient(source), kadm.NewClient(target)
	w.cfg = Config{
		Source: source, Target: target, Policy: policy, SourceAlias: sourceAlias, TargetAlias: targetAlias,
		GroupFilter: mm2.NewGroupFilter([]mm2.Matcher{prefixed("")}, nil), TopicFilter: func(topic string) bool { return topic == fakeTopic },
		Translator:       &shift{by: map[partition]int64{{fakeTopic, 0}: 0, {fakeTopic, 1}: 0}, acked: map[partition]int64{}},
		SyncGroupOffsets: true, SyncInterval: 200 * time.Millisecond, CheckpointInterval: 200 * time.Millisecond,
		RefreshInterval: 200 * time.Millisecond, ReplicationFactor: -1, Board: w.board, Logger: slog.New(slog.DiscardHandler),
	}
	return w
}

func (w *fakeWorld) commit(t *testing.T, group, topic string, at int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, at, -1)
	require.NoError(t, w.from.CommitAllOffsets(t.Context(), group, offsets))
}

func (w *fakeWorld) committed(t *testing.T, group string) int64 {
	t.Helper()
	got, err := w.to.FetchOffsets(t.Context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	require.NoError(t, err)
	o, ok := got.Lookup(w.cfg.Policy.FormatRemoteTopic(sourceAlias, fakeTopic), 0)
	if !ok {
		return -1
	}
	return o.At
}

func (w *fakeWorld) run(t *testing.T) *Room {
	t.Helper()
	r, err := New(w.cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return r
}

func TestB68LostCoordinatorsShowInTheStatusAndTheSyncComesBack(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	w.commit(t, "g", fakeTopic, 1)
	r := w.run(t)
	wait.For(t, 10*time.Second, "the first commit", func() error {
		if at := w.committed(t, "g"); at != 1 {
			return fmt.Errorf("at %d", at)
		}
		return nil
	})
	w.commit(t, "g", fakeTopic, 2)
	var away atomic.Bool
	away.Store(true)
	w.source.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.source.KeepControl()
		if !away.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range req.(*kmsg.OffsetFetchRequest).Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = g.Group, kerr.NotCoordinator.Code
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	wait.For(t, 20*time.Second, "the condition", func() error {
		if len(w.board.List()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	c := w.board.List()[0]
	require.Equal(t, report.GroupSyncFailed, c.Code)
	require.Equal(t, "g", c.Subject.Group)
	require.Equal(t, report.Warning, c.Severity)
	require.Equal(t, "NOT_COORDINATOR", c.Evidence["error"])
	require.Len(t, r.Groups(), 1, "the group stays in the status with what was last known")
	require.EqualValues(t, 1, w.committed(t, "g"))
	away.Store(false)
	wait.For(t, 10*time.Second, "the sync to come back", func() error {
		if at := w.committed(t, "g"); at != 2 || len(w.board.List()) > 0 {
			return fmt.Errorf("at %d with %v", at, w.board.List())
		}
		return nil
	})
}

func TestB68AClusterThatIsAwayIsOneCondition(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	for i := range 20 {
		w.commit(t, fmt.Sprintf("g%d", i), fakeTopic, 1)
	}
	r, err := New(w.cfg)
	require.NoError(t, err)
	require.NoError(t, r.SyncOnce(t.Context()))
	require.Len(t, r.Groups(), 20)
	w.source.Close()
	require.Error(t, r.SyncOnce(t.Context()))
	require.Len(t, w.board.List(), 1)
	c := w.board.List()[0]
	require.Equal(t, report.Flow, c.Subject)
	require.Contains(t, c.Message, "source")
	require.Len(t, r.Groups(), 20, "nothing is taken for deleted")
}

func TestAGroupThatMayNotBeReadKeepsNobodyElseBack(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	w.commit(t, "open", fakeTopic, 1)
	w.commit(t, "closed", fakeTopic, 1)
	// The target lets us describe and commit for one group only.
	w.target.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.target.KeepControl()
		commit := req.(*kmsg.OffsetCommitRequest)
		if commit.Group != "closed" {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range commit.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.GroupAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	r, err := New(w.cfg)
	require.NoError(t, err)
	require.Error(t, r.SyncOnce(t.Context()))
	require.EqualValues(t, 1, w.committed(t, "open"))
	require.EqualValues(t, -1, w.committed(t, "closed"))
	require.Len(t, w.board.List(), 1)
	c := w.board.List()[0]
	require.Equal(t, "closed", c.Subject.Group)
	require.Equal(t, report.Error, c.Severity)
	require.Contains(t, c.Remedy, "Grant")
}

func TestB67GroupsThatDoNotMatterCostOneListAndAFewFetches(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	const others = 2200
	for i := range 3 {
		w.commit(t, fmt.Sprintf("g%d", i), fakeTopic, 1)
	}
	// The others exist in the list only, which is what a refresh sees of them first; none has an offset that matters.
	var lists, fetches, asked atomic.Int64
	w.source.ControlKey(int16(kmsg.ListGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.source.KeepControl()
		lists.Add(1)
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		if w.source.CurrentNode() != 0 {
			return resp, nil, true
		}
		add := func(name, kind, protocol string) {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.GroupType, g.ProtocolType, g.GroupState = name, kind, protocol, "Empty"
			resp.Groups = append(resp.Groups, g)
		}
		for i := range others {
			add(fmt.Sprintf("other-%d", i), "classic", "consumer")
		}
		for i := range 3 {
			add(fmt.Sprintf("g%d", i), "classic", "")
		}
		// B75: neither Connect's worker groups nor share and streams groups are touched.
		add("connect-workers", "classic", "connect")
		add("shared", "share", "share")
		add("streams", "streams", "streams")
		return resp, nil, true
	})
	w.source.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.source.KeepControl()
		fetches.Add(1)
		names := []string{}
		for _, g := range req.(*kmsg.OffsetFetchRequest).Groups {
			names = append(names, g.Group)
		}
		asked.Add(int64(len(names)))
		for _, never := range []string{"connect-workers", "shared", "streams"} {
			require.NotContains(t, names, never)
		}
		return nil, nil, false
	})
	r, err := New(w.cfg)
	require.NoError(t, err)
	require.NoError(t, r.refresh(t.Context()))
	require.EqualValues(t, 3, lists.Load(), "one request to each broker")
	require.LessOrEqual(t, fetches.Load(), int64(5*3), "batches of 500, split by three coordinators")
	require.EqualValues(t, others+3, asked.Load())
	require.Len(t, r.Groups(), 3)

	// From the second look on, at most a thousand of those that do not matter are looked at.
	fetches.Store(0)
	asked.Store(0)
	require.NoError(t, r.refresh(t.Context()))
	require.EqualValues(t, restPerLook, asked.Load())
	require.LessOrEqual(t, fetches.Load(), int64(2*3))

	fetches.Store(0)
	asked.Store(0)
	require.NoError(t, r.fetch(t.Context(), 0))
	require.EqualValues(t, 3, asked.Load(), "a round asks for the kept groups only")
}

func TestAPartialListDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	for i := range 6 {
		w.commit(t, fmt.Sprintf("g%d", i), fakeTopic, 1)
	}
	r, err := New(w.cfg)
	require.NoError(t, err)
	require.NoError(t, r.SyncOnce(t.Context()))
	var all atomic.Bool
	w.source.ControlKey(int16(kmsg.ListGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.source.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		if !all.Load() && w.source.CurrentNode() == 1 {
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			return resp, nil, true
		}
		return resp, nil, true
	})
	require.Error(t, r.refresh(t.Context()))
	require.Len(t, r.Groups(), 6)
	all.Store(true)
	require.NoError(t, r.refresh(t.Context()))
	require.Empty(t, r.Groups(), "a whole list without them does delete")
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newFakeWorld(t)
	for name, spoil := range map[string]func(*Config){
		"Source":          func(c *Config) { c.Source = nil },
		"Policy":          func(c *Config) { c.Policy = nil },
		"SourceAlias":     func(c *Config) { c.SourceAlias = "" },
		"SyncInterval":    func(c *Config) { c.SyncInterval = 0 },
		"RefreshInterval": func(c *Config) { c.RefreshInterval = 0 },
		"Board":           func(c *Config) { c.Board = nil },
	} {
		cfg := w.cfg
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, name)
	}
	plain, err := kgo.NewClient(kgo.SeedBrokers(w.target.ListenAddrs()...))
	require.NoError(t, err)
	defer plain.Close()
	cfg := w.cfg
	cfg.Target = plain
	_, err = New(cfg)
	require.ErrorContains(t, err, "manual partitioner")
}

func TestTroublesShowTheLatestAndFallBackToWhatIsLeft(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	board := report.NewBoard(func() time.Time { return now })
	tr := newTroubles(board, func() time.Time { return now })
	messages := func() []string {
		var all []string
		for _, c := range board.List() {
			all = append(all, c.Message)
		}
		slices.Sort(all)
		return all
	}
	tr.set("g", phaseRead, false, report.Condition{Message: "read"})
	tr.set("g", phaseWrite, true, report.Condition{Message: "write"})
	require.Equal(t, []string{"read"}, messages(), "what usually passes is kept back at first")
	now = now.Add(grace)
	tr.set("g", phaseWrite, true, report.Condition{Message: "write"})
	require.Equal(t, []string{"write"}, messages())
	tr.clear("g", phaseWrite)
	require.Equal(t, []string{"read"}, messages())
	tr.clear("g", phaseMatch)
	require.Equal(t, []string{"read"}, messages())
	tr.clear("g", phaseRead)
	require.Empty(t, messages())
	tr.set("g", phaseRead, false, report.Condition{Message: "read"})
	tr.forget("g")
	require.Empty(t, messages())
}

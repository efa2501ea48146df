package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// resumeAt is where a group stopped on the source, and how far back it may land on the target, in records.
type resumeAt struct {
	topic string
	slack int
}

// TestThreeTopicsArriveEqualAndGroupsResume is the main claim: 100,000 records on 1, 4 and 12 partitions, with headers,
// null keys and values and old timestamps; plain, transactional with aborts, and compacted with holes.
func TestThreeTopicsArriveEqualAndGroupsResume(t *testing.T) {
	for _, path := range []string{"records", "batches"} {
		t.Run(path, func(t *testing.T) { threeTopics(t, path) })
	}
}

func threeTopics(t *testing.T, path string) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 0)
	s.dataPath = path
	s.startWorker()
	plain, tx, compacted := kafkatest.UniqueName(t)+"-plain", kafkatest.UniqueName(t)+"-tx", kafkatest.UniqueName(t)+"-compacted"

	kafkatest.CreateTopic(t, source, plain, 4, nil)
	kafkatest.Fill(t, source, plain, kafkatest.FillOptions{Records: 70_000, Partitions: 4})
	kafkatest.CreateTopic(t, source, tx, 12, nil)
	_, committed := kafkatest.FillTransactions(t, source, tx, kafkatest.FillOptions{Records: 40_000, Partitions: 12}, 100, 5)
	require.Less(t, committed, 40_000, "some transactions were aborted")
	kafkatest.CreateTopic(t, source, compacted, 1, kafkatest.CompactedConfigs())
	kafkatest.FillCompacted(t, source, compacted, kafkatest.FillOptions{Records: 20_000, Partitions: 1}, 3000)

	// Groups stop in the middle of each topic, on the source, at the offset of a record that is still there.
	resumes := []resumeAt{{plain, 0}, {tx, 101}, {compacted, 101}}
	type stop struct {
		record kafkatest.Record // the next one the group has not read
		rest   int              // records from it to the end
	}
	stops := map[string]map[int32]stop{}
	wanted := map[string]map[int32][]kafkatest.Record{}
	for _, r := range resumes {
		wanted[r.topic] = kafkatest.ReadAll(t, source, r.topic, kafkatest.ReadCommitted)
		stops[r.topic] = map[int32]stop{}
		offsets := map[int32]int64{}
		for p, records := range wanted[r.topic] {
			require.NotEmpty(t, records)
			i := len(records) * (3 + int(p)%5) / 9
			stops[r.topic][p] = stop{records[i], len(records) - i}
			offsets[p] = records[i].Offset
		}
		kafkatest.Commit(t, source, r.topic+"-group", r.topic, offsets)
	}

	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	require.Contains(t, p.sourceAlias, ".", "a generated alias contains the separator")
	flow := p.flow(object{"topics": []string{plain, tx, compacted}})
	s.waitIdle(flow, 120*time.Second)

	total := 0
	for _, r := range resumes {
		got := kafkatest.ReadAll(t, target, p.remote(r.topic), kafkatest.ReadUncommitted)
		kafkatest.RequireEqual(t, wanted[r.topic], got)
		n := 0
		for _, records := range got {
			n += len(records)
		}
		total += n
		t.Logf("%s: %d records in %d partitions equal", r.topic, n, len(got))

		// While records are on their way, a group's offset stands at what has arrived; it follows within a sync.
		worst := 0
		wait.For(t, 30*time.Second, "group offsets of "+r.topic, func() error {
			committed := kafkatest.Committed(t, target, r.topic+"-group", p.remote(r.topic))
			worst = 0
			for part, st := range stops[r.topic] {
				at, ok := committed[part]
				if !ok {
					return fmt.Errorf("none in partition %d", part)
				}
				rest := 0
				for _, rec := range got[part] {
					if rec.Offset >= at {
						rest++
					}
				}
				again := rest - st.rest
				require.GreaterOrEqualf(t, again, 0, "%s-%d: the group would skip %d records", r.topic, part, -again)
				if again > r.slack {
					return fmt.Errorf("%s-%d: the group would read %d records again", r.topic, part, again)
				}
				worst = max(worst, again)
			}
			return nil
		})
		t.Logf("%s: group resumes, at most %d records read again", r.topic, worst)
	}
	t.Logf("%d records in all", total)
	require.GreaterOrEqual(t, total, 100_000)
}

// TestTheFirstRecordArrivesWithinThreeSecondsAndLaterTopicsFromTheirFirstRecord also looks at MM2's topics under an alias
// that contains a dot, and at what the status says of the flow.
func TestTheFirstRecordArrivesWithinThreeSecondsAndLaterTopicsFromTheirFirstRecord(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 2, nil)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2})
	// A heartbeats topic on the source, as a flow in the other direction or MM2 would make it.
	adm := kafkatest.Admin(t, source)
	if ends(t, adm, "heartbeats") == nil {
		kafkatest.CreateTopic(t, source, "heartbeats", 1, map[string]string{"cleanup.policy": "compact"})
	}
	alias := "proj" + topic[len(topic)-4:] + ".kafka-src"
	p := s.bind(s.kafkaService(source.Bootstrap(), alias, nil), s.kafkaService(target.Bootstrap(), "", nil))

	tgt := kafkatest.Admin(t, target)
	hidden := "__" + topic // an internal name, which is never mirrored
	kafkatest.CreateTopic(t, source, hidden, 1, nil)
	begin := time.Now()
	flow := p.flow(object{"topics": []string{"(__)?" + topic + ".*"}, "startPosition": "earliest"})
	wait.For(t, 10*time.Second, "first record", func() error {
		if sum(ends(t, tgt, p.remote(topic))) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	took := time.Since(begin)
	t.Logf("first record on the target %d ms after POST /replications", took.Milliseconds())
	require.LessOrEqual(t, took, 3*time.Second)

	later := topic + "-later"
	kafkatest.CreateTopic(t, source, later, 3, nil)
	kafkatest.Fill(t, source, later, kafkatest.FillOptions{Records: 300, Partitions: 3})
	waitRecords(t, target, p.remote(later), 300, 20*time.Second)
	s.waitIdle(flow, 30*time.Second)
	for _, name := range []string{topic, later} {
		kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, name, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, p.remote(name), kafkatest.ReadUncommitted))
	}

	for _, name := range []string{
		"heartbeats", alias + ".heartbeats", alias + ".checkpoints.internal", "mm2-offset-syncs." + alias + ".internal",
		"mm2-offsets." + alias + ".internal", "mirrorflow-state." + alias + ".internal",
	} {
		wait.For(t, 15*time.Second, "topic "+name, func() error {
			if ends(t, tgt, name) == nil {
				return fmt.Errorf("missing")
			}
			return nil
		})
	}
	wait.For(t, 15*time.Second, "a heartbeat and an offset sync", func() error {
		if h, o := sum(ends(t, tgt, "heartbeats")), sum(ends(t, tgt, "mm2-offset-syncs."+alias+".internal")); h == 0 || o == 0 {
			return fmt.Errorf("%d heartbeats, %d offset syncs", h, o)
		}
		return nil
	})
	st := s.status(flow)
	require.True(t, slices.ContainsFunc(st.ExcludedTopics, func(e struct{ Name, Reason string }) bool { return e.Name == hidden && e.Reason != "" }), "%+v", st.ExcludedTopics)
	require.Nil(t, ends(t, tgt, p.remote(hidden)))
	require.NotEmpty(t, st.Tasks)
	t.Logf("status: %s", pretty(s.want(http.StatusOK, http.MethodGet, "/replications/"+flow+"/status", nil).Body))
}

// TestBothDirectionsWithDottedAliases copies one topic both ways: no loop, growth and config changes followed.
func TestBothDirectionsWithDottedAliases(t *testing.T) {
	a, b := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	suffix := topic[len(topic)-5:]
	for _, c := range []*kafkatest.Cluster{a, b} {
		kafkatest.CreateTopic(t, c, topic, 2, nil)
		kafkatest.Fill(t, c, topic, kafkatest.FillOptions{Records: 200, Partitions: 2})
	}
	sa := s.kafkaService(a.Bootstrap(), "p1"+suffix+".kafka-a", nil)
	sb := s.kafkaService(b.Bootstrap(), "p1"+suffix+".kafka-b", nil)
	there, back := s.bind(sa, sb), s.bind(sb, sa)
	pattern := []string{".*" + topic}
	f1, f2 := there.flow(object{"topics": pattern, "refreshTopicsInterval": 1}), back.flow(object{"topics": pattern, "refreshTopicsInterval": 1})
	waitRecords(t, b, there.remote(topic), 200, 30*time.Second)
	waitRecords(t, a, back.remote(topic), 200, 30*time.Second)

	// Growth with records at once, and a config, on a; both are followed.
	kafkatest.GrowTopic(t, a, topic, 6)
	kafkatest.Fill(t, a, topic, kafkatest.FillOptions{Records: 400, Partitions: 6, FirstID: 1000})
	setConfig(t, a, topic, "retention.ms", "777600000")
	waitRecords(t, b, there.remote(topic), 600, 30*time.Second)
	require.Equal(t, 6, kafkatest.Partitions(t, b, there.remote(topic)))
	wait.For(t, 20*time.Second, "retention.ms on the copy", func() error {
		if v := getConfig(t, b, there.remote(topic), "retention.ms"); v != "777600000" {
			return fmt.Errorf("it is %s", v)
		}
		return nil
	})
	s.waitIdle(f1, 30*time.Second)
	s.waitIdle(f2, 30*time.Second)
	// Several refreshes later there is still exactly one copy each way.
	seen := s.status(f1).ObservedAt
	wait.For(t, 20*time.Second, "five more refreshes", func() error {
		if d := s.status(f1).ObservedAt.Sub(seen); d < 5*time.Second {
			return fmt.Errorf("%s so far", d)
		}
		return nil
	})
	for _, c := range []*kafkatest.Cluster{a, b} {
		var mine []string
		list, err := kafkatest.Admin(t, c).ListTopics(t.Context())
		require.NoError(t, err)
		for _, name := range list.Names() {
			if len(name) > len(topic) && name[len(name)-len(topic):] == topic {
				mine = append(mine, name)
			}
		}
		require.Len(t, mine, 1, "copies on one cluster: %v", mine)
	}
	kafkatest.RequireEqual(t, kafkatest.ReadAll(t, a, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, b, there.remote(topic), kafkatest.ReadUncommitted))
	kafkatest.RequireEqual(t, kafkatest.ReadAll(t, b, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, a, back.remote(topic), kafkatest.ReadUncommitted))
}

// TestTheAPIRefusesWhatCannotRun posts what people get wrong; nothing is stored.
func TestTheAPIRefusesWhatCannotRun(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	src, tgt := s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil)
	p := s.bind(src, tgt)
	again := s.kafkaService(source.Bootstrap(), "", nil)
	same := s.create("/integrations", object{"type": "kafkaMirrorMaker", "sourceServiceId": again["id"], "destinationServiceId": p.mm["id"]}).str("id")
	for name, c := range map[string]struct {
		body    object
		pointer string
	}{
		"a service id where an integration id belongs": {object{"sourceIntegration": src["id"]}, "/sourceIntegration"},
		"source equals target":                         {object{"targetIntegration": p.sourceInt}, "/targetIntegration"},
		"two services on one cluster":                  {object{"targetIntegration": same}, "/targetIntegration"},
		"an unknown integration":                       {object{"targetIntegration": "00000000-0000-4000-8000-000000000000"}, "/targetIntegration"},
		"a bad pattern":                                {object{"topics": []string{"ok", "["}}, "/topics/1"},
		"a bad exclude pattern":                        {object{"topicExcludeList": []string{"*"}}, "/topicExcludeList/0"},
		"a bad group pattern":                          {object{"groups": []string{"("}}, "/groups/0"},
		"an unknown field":                             {object{"topic": "x"}, "/topic"},
		"a wrong type":                                 {object{"syncInterval": "60"}, "/syncInterval"},
		"a negative interval":                          {object{"syncInterval": -1}, "/syncInterval"},
		"a misspelt policy":                            {object{"replicationPolicyClass": "IdentityReplicationPolicy"}, "/replicationPolicyClass"},
		"ACL sync, not built yet":                      {object{"syncTopicAcls": true}, "/syncTopicAcls"},
		"a rate limit below the least":                 {object{"maxBytesPerSecond": 1000}, "/maxBytesPerSecond"},
	} {
		a, err := s.do(http.MethodPost, "/replications", p.body(c.body))
		require.NoError(t, err, name)
		require.Equalf(t, http.StatusBadRequest, a.Status, "%s: %s", name, a.Body)
		require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), name)
		var problem struct {
			Errors []struct{ Pointer, Message string }
		}
		require.NoError(t, json.Unmarshal(a.Body, &problem), name)
		require.Truef(t, slices.ContainsFunc(problem.Errors, func(e struct{ Pointer, Message string }) bool { return e.Pointer == c.pointer && e.Message != "" }), "%s: %s", name, a.Body)
	}
	var list struct{ Items []object }
	s.want(http.StatusOK, http.MethodGet, "/replications", nil).decode(t, &list)
	require.Empty(t, list.Items)

	flow := p.flow(object{"topics": []string{"none-" + kafkatest.UniqueName(t)}})
	for _, path := range []string{"/integrations/" + p.sourceInt, "/services/" + src.str("id"), "/services/" + p.mm.str("id")} {
		a := s.want(http.StatusConflict, http.MethodDelete, path, nil)
		if path[1] == 'i' {
			require.Contains(t, string(a.Body), flow, "the conflict names the flow")
		}
	}
}

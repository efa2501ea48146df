package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/faultnet"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

// TestKillingTheWorkerTenTimesLosesNothing kills the worker that runs the flow with -9 at random moments during a copy of
// 500,000 records: nothing is missing, and nothing is there twice.
func TestKillingTheWorkerTenTimesLosesNothing(t *testing.T) {
	for _, path := range []string{"records", "batches"} {
		t.Run(path, func(t *testing.T) { killTenTimes(t, path) })
	}
}

func killTenTimes(t *testing.T, path string) {
	const records, partitions, kills = 500_000, 6, 10
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 0)
	s.dataPath = path
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, partitions, nil)
	p := s.bind(s.kafkaServiceUnchecked(source.Bootstrap()), s.kafkaServiceUnchecked(target.Bootstrap()))
	flow := p.flow(object{"topics": []string{topic}})
	tgt := kafkatest.Admin(t, target)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	worker := s.startWorker()
	next, chunk := uint64(0), records/(kills+1)
	for k := range kills + 1 {
		n := chunk
		if k == kills {
			n = records - int(next)
		}
		before := sum(ends(t, tgt, p.remote(topic)))
		// Records arrive while the worker copies; it dies when a random share of them is there.
		next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: n, Partitions: partitions, FirstID: next, Plain: true})
		if k == kills {
			break
		}
		goal := before + random.Int64N(int64(chunk))
		wait.For(t, 60*time.Second, fmt.Sprintf("%d records before kill %d", goal, k+1), func() error {
			if got := sum(ends(t, tgt, p.remote(topic))); got < goal {
				return fmt.Errorf("%d so far, %+v", got, s.status(flow).Conditions)
			}
			return nil
		})
		worker.Kill9(t)
		worker = s.startWorker()
	}
	s.waitIdle(flow, 120*time.Second)
	a := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	t.Logf("%d records, killed %d times: %s", records, kills, a)
	require.True(t, a.Exact(), a.String())
	require.Equal(t, records, a.Records)
}

// kafkaServiceUnchecked registers a cluster while no worker runs; it stays PENDING until one has checked.
func (s *system) kafkaServiceUnchecked(bootstrap string) object {
	s.tb.Helper()
	o := s.kafkaService(bootstrap, "", nil)
	require.Equal(s.tb, "PENDING", o.str("status"))
	return o
}

// TestLeasesMoveInTime kills one of two workers, changes a flow, and disables it: other worker within TTL + 2 s, change and
// stop within 2 s. A clean stop of a worker hands over without a duplicate.
func TestLeasesMoveInTime(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, workers := deploy(t, 2)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	extra := topic + "-extra"
	kafkatest.CreateTopic(t, source, extra, 1, nil)
	kafkatest.Fill(t, source, extra, kafkatest.FillOptions{Records: 10, Plain: true})
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}})
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
	waitRecords(t, target, p.remote(topic), 100, 20*time.Second)

	holder := func() int {
		st := s.status(flow)
		require.Len(t, st.Tasks, 1)
		if st.Tasks[0].Worker == "w1" {
			return 0
		}
		return 1
	}
	victim := holder()
	epoch := s.status(flow).Tasks[0].Epoch
	workers[victim].Kill9(t)
	killed := time.Now()
	next = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, FirstID: next, Plain: true})
	wait.For(t, 30*time.Second, "the other worker", func() error {
		st := s.status(flow)
		if len(st.Tasks) != 1 || st.Tasks[0].Epoch <= epoch || st.Tasks[0].Worker == fmt.Sprintf("w%d", victim+1) {
			return fmt.Errorf("tasks %+v", st.Tasks)
		}
		return nil
	})
	moved := time.Since(killed)
	t.Logf("killed worker's task runs elsewhere after %s (TTL %s)", moved, leaseTTL)
	require.LessOrEqual(t, moved, leaseTTL+2*time.Second)
	waitRecords(t, target, p.remote(topic), 200, 20*time.Second)

	changed := time.Now()
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"topics": []string{topic, extra}})
	waitRecords(t, target, p.remote(extra), 10, 20*time.Second)
	t.Logf("a changed flow took effect after %s", time.Since(changed))
	require.LessOrEqual(t, time.Since(changed), 4*time.Second, "2 s to take effect, and the time to make a topic and copy")

	// Records are produced all the time; nothing arrives later than 2 s after the PATCH.
	ctx, cancel := context.WithCancel(t.Context())
	produced := make(chan uint64)
	go func() {
		id := next
		defer func() { produced <- id }()
		for ctx.Err() == nil {
			id = kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 20, FirstID: id, Plain: true})
		}
	}()
	tgt := kafkatest.Admin(t, target)
	waitRecords(t, target, p.remote(topic), 400, 20*time.Second)
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": false})
	<-time.After(2 * time.Second) // the promise is a time: nothing is written later than this
	written := func() []int64 {
		var now []int64
		for _, name := range []string{
			p.remote(topic), "heartbeats", p.sourceAlias + ".checkpoints.internal",
			"mm2-offset-syncs." + p.sourceAlias + ".internal", "mirrorflow-state." + p.sourceAlias + ".internal",
		} {
			now = append(now, sum(ends(t, tgt, name)))
		}
		return now
	}
	atLimit := written()
	s.waitState(flow, "STOPPED", 10*time.Second)
	src := kafkatest.Admin(t, source)
	goal := sum(ends(t, src, topic)) + 500
	wait.For(t, 30*time.Second, "500 more records on the source", func() error {
		if got := sum(ends(t, src, topic)); got < goal {
			return fmt.Errorf("%d of %d", got, goal)
		}
		return nil
	})
	require.Equal(t, atLimit, written(), "a disabled flow writes (records, heartbeats, checkpoints, offset syncs, state)")
	cancel()
	next = <-produced

	// Enabled again, then handed over by a clean stop: nothing twice since the kill.
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": true})
	s.waitState(flow, "RUNNING", 20*time.Second)
	third := s.startWorker()
	_ = third
	workers[1-victim].Stop(t)
	stopped := time.Now()
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, FirstID: next, Plain: true})
	s.waitIdle(flow, 30*time.Second)
	t.Logf("clean stop of a worker: everything copied %s later", time.Since(stopped))
	a := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	t.Logf("after a kill, a disable and a clean hand-over: %s", a)
	require.True(t, a.Exact(), a.String())
}

// TestFourFaultsShowFourConditions makes flows that cannot run, beside one that can: each says why within 10 s, with a
// remedy; the API stays fast and the good flow goes on.
func TestFourFaultsShowFourConditions(t *testing.T) {
	pki := kafkatest.NewPKI(t)
	source := kafkatest.Start(t, kafkatest.SecureOptions(kafkatest.V39, pki, nil, kafkatest.ListenerSCRAM))
	target := kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10, Plain: true})

	security := func(password string) object {
		return object{"protocol": "SASL_PLAINTEXT", "sasl": object{"mechanism": "SCRAM-SHA-512", "username": kafkatest.UserName, "password": password}}
	}
	tgt := s.kafkaService(target.Bootstrap(), "", nil)
	good := s.kafkaService(source.Bootstraps(kafkatest.ListenerSCRAM)[0], "", security(kafkatest.UserPassword))
	force := func(bootstrap, password string) object {
		body := object{"engine": "kafka", "bootstrapServers": []string{bootstrap}, "security": security(password)}
		// Without force the check refuses and nothing is stored.
		a := s.want(http.StatusUnprocessableEntity, http.MethodPost, "/services", body)
		t.Logf("%s", a.Body)
		return s.create("/services?force=true", body)
	}
	goodPair := s.bind(good, tgt)
	goodFlow := goodPair.flow(object{"topics": []string{topic}})
	begin := time.Now()
	refused := s.bind(force(faultnet.RefusedAddr(t), "x"), tgt).flow(object{"topics": []string{topic}})
	web := s.bind(force(faultnet.HTTPServer(t), "x"), tgt).flow(object{"topics": []string{topic}})
	password := s.bind(force(source.Bootstraps(kafkatest.ListenerSCRAM)[0], "wrong-marker-7f3a"), tgt).flow(object{"topics": []string{topic}})
	t.Logf("three refused and forced in %s", time.Since(begin))
	nothing := goodPair.flow(object{"topics": []string{"matches-nothing-at-all"}})
	made := time.Now()
	for flow, code := range map[string]string{refused: "SOURCE_UNREACHABLE", web: "SOURCE_NOT_KAFKA", password: "SOURCE_AUTH_FAILED", nothing: "NO_TOPICS_MATCHED"} {
		wait.For(t, 10*time.Second, code, func() error {
			asked := time.Now()
			st := s.status(flow)
			if took := time.Since(asked); took > time.Second {
				return fmt.Errorf("the API took %s", took)
			}
			if !st.has(code) {
				return fmt.Errorf("state %s, conditions %+v", st.State, st.Conditions)
			}
			return nil
		})
		require.LessOrEqual(t, time.Since(made), 10*time.Second)
		for _, c := range s.status(flow).Conditions {
			require.NotEmpty(t, c.Message)
			require.NotEmpty(t, c.Remedy)
			require.NotContains(t, c.Message, "wrong-marker-7f3a")
			t.Logf("%s: %s — %s", c.Code, c.Message, c.Remedy)
		}
		require.NotEqual(t, "RUNNING", s.status(flow).State)
	}
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 10, FirstID: next, Plain: true})
	waitRecords(t, target, goodPair.remote(topic), 20, 15*time.Second)
	s.waitState(goodFlow, "RUNNING", 10*time.Second)
}

// TestANewPasswordIsTakenWithoutStoppingTheFlow rotates a SCRAM password: new connections use it, the lease stays, nothing
// is copied twice (B86).
func TestANewPasswordIsTakenWithoutStoppingTheFlow(t *testing.T) {
	pki := kafkatest.NewPKI(t)
	source := kafkatest.Start(t, kafkatest.SecureOptions(kafkatest.V39, pki, nil, kafkatest.ListenerSCRAM))
	target := kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
	security := func(password string) object {
		return object{"protocol": "SASL_PLAINTEXT", "sasl": object{"mechanism": "SCRAM-SHA-256", "username": kafkatest.UserName, "password": password}}
	}
	bootstrap := source.Bootstraps(kafkatest.ListenerSCRAM)[0]
	svc := s.kafkaService(bootstrap, "", security(kafkatest.UserPassword))
	p := s.bind(svc, s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}})
	waitRecords(t, target, p.remote(topic), 100, 20*time.Second)
	before := s.status(flow).Tasks[0]

	kafkatest.AddSCRAMUser(t, source, kafkatest.UserName, "the-new-password")
	a := s.want(http.StatusOK, http.MethodPut, "/services/"+svc.str("id"), object{
		"engine": "kafka", "description": svc["description"], "alias": svc["alias"], "bootstrapServers": []string{bootstrap}, "security": security("the-new-password"),
	})
	require.NotContains(t, string(a.Body), "the-new-password")
	// Every connection is made anew: only the new password opens one.
	source.Restart(t)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, FirstID: next, Plain: true})
	waitRecords(t, target, p.remote(topic), 200, 60*time.Second)
	s.waitIdle(flow, 30*time.Second)
	require.Equal(t, before, s.status(flow).Tasks[0], "same worker, same epoch")
	acc := kafkatest.Reconcile(kafkatest.IDs(t, source, topic, kafkatest.ReadCommitted), kafkatest.IDs(t, target, p.remote(topic), kafkatest.ReadUncommitted))
	require.True(t, acc.Exact(), acc.String())
}

// TestRetentionThatOvertakesTheFlowIsAnEvent deletes records ahead of a disabled flow (B17).
func TestRetentionThatOvertakesTheFlowIsAnEvent(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	topic := kafkatest.UniqueName(t)
	kafkatest.CreateTopic(t, source, topic, 1, nil)
	next := kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 100, Plain: true})
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	flow := p.flow(object{"topics": []string{topic}})
	waitRecords(t, target, p.remote(topic), 100, 20*time.Second)
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": false})
	s.waitState(flow, "STOPPED", 10*time.Second)
	kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 400, FirstID: next, Plain: true})
	deleteRecordsBefore(t, source, topic, 0, 300)
	s.want(http.StatusOK, http.MethodPatch, "/replications/"+flow, object{"enabled": true})
	waitRecords(t, target, p.remote(topic), 300, 30*time.Second)
	wait.For(t, 10*time.Second, "the event", func() error {
		var list struct {
			Items []struct {
				Code     string
				Message  string
				Evidence map[string]any
			}
		}
		a := s.want(http.StatusOK, http.MethodGet, "/replications/"+flow+"/events", nil)
		a.decode(t, &list)
		for _, e := range list.Items {
			if e.Code == "OFFSETS_LOST" {
				require.EqualValues(t, 100, e.Evidence["first_missing"])
				require.EqualValues(t, 299, e.Evidence["last_missing"])
				require.EqualValues(t, 200, e.Evidence["count"])
				return nil
			}
		}
		return fmt.Errorf("events: %s", a.Body)
	})
	wait.For(t, 10*time.Second, "the condition", func() error {
		if st := s.status(flow); !st.has("OFFSETS_LOST") {
			return fmt.Errorf("conditions %+v", st.Conditions)
		}
		return nil
	})
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

func TestJobsAreRunAndAnswered(t *testing.T) {
	t.Parallel()
	sealer, opener := keyPair(t, "k1")
	foreign, _ := keyPair(t, "k2")
	good, bad := seal(t, sealer, "hunter2"), seal(t, foreign, "hunter2")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, opener)
		var seen kafka.Security
		b.s.check = func(_ context.Context, c kafka.Cluster) (kafka.Info, *kafka.Problem) {
			if c.BootstrapServers[0] == "broken" {
				return kafka.Info{}, &kafka.Problem{Code: kafka.AuthFailed, Step: kafka.StepAuthenticate, Address: "broken", Message: "no", Remedy: "yes"}
			}
			if c.BootstrapServers[0] == "panics" {
				panic("at the disco")
			}
			seen = c.Credentials.Get() // of one job only: they run at the same time
			return kafka.Info{ClusterID: "c", Version: "3.9"}, nil
		}
		var forgotten engine.Config
		b.s.forget = func(_ context.Context, cfg engine.Config) error {
			if cfg.SourceAlias == "fails" {
				return errors.New("no such luck")
			}
			forgotten = cfg
			return nil
		}
		ids := map[string]uuid.UUID{}
		add := func(name string, kind flows.JobKind, payload any) {
			raw, err := json.Marshal(payload)
			require.NoError(t, err)
			ids[name] = uuid.Must(uuid.NewV7())
			b.store.mu.Lock()
			defer b.store.mu.Unlock()
			b.store.jobs = append(b.store.jobs, flows.Job{ID: ids[name], Kind: kind, Payload: raw})
		}
		check := func(server string, sealed map[flows.SecretField]flows.SealedSecret) flows.CheckServicePayload {
			return flows.CheckServicePayload{BootstrapServers: []string{server}, Security: flows.Security{Protocol: "SASL_SSL"}, Sealed: sealed}
		}
		spec := testSpec()
		failing := spec
		failing.Source.Alias = "fails"
		add("panics", flows.JobCheckService, check("panics", good))
		add("unreadable", flows.JobCheckService, check("fine", bad))
		add("broken", flows.JobCheckService, check("broken", good))
		add("fine", flows.JobCheckService, check("fine", good))
		add("unknown", "later_version", struct{}{})
		add("forget fails", flows.JobForgetPositions, flows.ForgetPayload{Spec: failing})
		add("forget", flows.JobForgetPositions, flows.ForgetPayload{Spec: spec})
		b.start()
		pass(time.Second)

		result := func(name string, into any) {
			b.store.mu.Lock()
			defer b.store.mu.Unlock()
			require.Contains(t, b.store.results, ids[name], name)
			require.NoError(t, json.Unmarshal(b.store.results[ids[name]], into))
			require.NotContains(t, string(b.store.results[ids[name]]), "hunter2")
		}
		var r flows.CheckServiceResult
		result("fine", &r)
		require.Equal(t, flows.CheckServiceResult{KafkaClusterID: "c", KafkaVersion: "3.9"}, r)
		require.Equal(t, "hunter2", seen.SASL.Password)
		r = flows.CheckServiceResult{}
		result("broken", &r)
		require.Equal(t, flows.CheckServiceResult{Step: "authenticate", Code: "AUTH_FAILED", Address: "broken", Message: "no", Remedy: "yes"}, r)
		r = flows.CheckServiceResult{}
		result("unreadable", &r)
		require.Equal(t, "secrets", r.Step)
		require.Contains(t, r.Message, `"k2"`)
		var f flows.ForgetResult
		result("forget", &f)
		require.Empty(t, f.Message)
		require.Equal(t, spec.Flow.ID.String(), forgotten.Identity.FlowID)
		result("forget fails", &f)
		require.Contains(t, f.Message, "no such luck")
		// What cannot be answered is left to others.
		require.NotContains(t, b.store.results, ids["panics"])
		require.NotContains(t, b.store.results, ids["unknown"])
	})
}

func TestAJobsResultIsStoredInSpiteOfAShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		id := uuid.Must(uuid.NewV7())
		b.store.jobs = []flows.Job{{ID: id, Kind: flows.JobCheckService, Payload: json.RawMessage(`{"bootstrapServers":["a:1"]}`)}}
		n := 0
		b.store.before = func(_ context.Context, name string) error {
			if name == "complete job" {
				if n++; n < 4 {
					return errDown
				}
			}
			return nil
		}
		b.start()
		pass(2 * time.Second)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		require.Contains(t, b.store.results, id)
	})
}

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
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/secrets"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, secrets.Opener{})) })
}

func TestALeaseRunsAnEngineAndIsReleasedAfterItHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		require.Error(t, b.s.Ready(t.Context()))
		b.start()
		e := b.engine(0)
		require.NoError(t, b.s.Ready(t.Context()))
		require.Equal(t, engine.Identity{FlowID: key.FlowID.String(), Task: 0, Tasks: 1, Worker: "w1", LeaseEpoch: 1}, e.cfg.Identity)
		pass(2 * time.Second)
		require.Equal(t, flows.StateStarting, b.store.lastReport(key).State)

		b.shutdown()
		require.True(t, e.wasDrained())
		_, cause := e.end()
		require.NoError(t, cause, "it was drained, not cut off")
		require.Equal(t, 1, b.store.count("release", time.Time{}))
		require.False(t, b.store.holds(key))
		require.Greater(t, b.store.index("resign"), b.store.index("release"))
		require.ErrorIs(t, b.s.Ready(t.Context()), ErrShutdown)
	})
}

func TestAllLeasesAreRenewedByOneStatementASecond(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for range 100 {
			b.lease(nil)
		}
		b.start()
		require.Equal(t, 100, b.made(), "more than one statement takes at once")
		since := time.Now()
		pass(10 * time.Second)
		require.InDelta(t, 10, b.store.count("renew", since), 1)
		b.store.mu.Lock()
		last := call{}
		for _, c := range b.store.calls {
			if c.name == "renew" {
				last = c
			}
		}
		b.store.mu.Unlock()
		require.Len(t, last.keys, 100)
	})
}

func TestAWorkerWithoutLeasesRenewsTooSoThatAPredecessorsTasksBecomeFree(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.start()
		pass(3 * time.Second)
		require.GreaterOrEqual(t, b.store.count("renew", time.Time{}), 2)
	})
}

// The database swallows every call and even ignores that the caller went away:
// the engine must be told the instant trust ends, whatever hangs.
func TestTrustEndsOnTimeWhenTheDatabaseHangs(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		b.start()
		e := b.engine(0)
		pass(5 * time.Second)
		lastRenewal := time.Now()
		release := make(chan struct{})
		b.store.setBefore(func(context.Context, string) error { <-release; return errDown })
		pass(ttl)
		ended, cause := e.end()
		require.ErrorIs(t, cause, ErrLeaseLost)
		require.ErrorIs(t, cause, engine.ErrLeaseLost)
		require.False(t, e.wasDrained(), "a drain would go on writing")
		require.WithinRange(t, ended, lastRenewal.Add(ttl-time.Second-renewEvery(ttl)), lastRenewal.Add(ttl-time.Second))

		// Nothing of this term reaches the database any more, not even when it is back.
		close(release)
		b.store.setBefore(nil)
		since := time.Now()
		e.cfg.Sink.Status(report.Status{State: report.Running})
		require.ErrorIs(t, e.cfg.Sink.Event(t.Context(), report.Event{Code: "X", Subject: report.Flow}), ErrLeaseLost)
		_, err := e.cfg.Owners.Claim(t.Context(), "c", []string{"a"})
		require.ErrorIs(t, err, ErrLeaseLost)
		require.ErrorIs(t, e.cfg.Owners.Release(t.Context(), "c", []string{"a"}), ErrLeaseLost)
		pass(5 * time.Second)
		for _, name := range []string{"events", "claim", "unclaim", "report"} {
			require.Zero(t, b.store.count(name, since), name)
		}
		require.NotContains(t, b.store.calls, call{"release", since, []flows.LeaseKey{key}})
	})
}

func TestAShortOutageOfTheDatabaseDisturbsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.lease(nil)
		b.start()
		e := b.engine(0)
		pass(5 * time.Second)
		b.store.setBefore(func(context.Context, string) error { return errDown })
		pass(7 * time.Second)
		b.store.setBefore(nil)
		pass(ttl)
		_, cause := e.end()
		require.NoError(t, cause)
		require.Equal(t, 1, b.made())
		require.NoError(t, b.s.Ready(t.Context()))
	})
}

func TestAttemptsToRenewAreRepeatedWhileTrustLasts(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.lease(nil)
		b.start()
		e := b.engine(0)
		pass(2 * time.Second)
		since := time.Now()
		// Every attempt hangs until it is given up.
		b.store.setBefore(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		pass(ttl - 3*time.Second)
		require.GreaterOrEqual(t, b.store.count("renew", since), 3)
		b.store.setBefore(nil)
		pass(5 * time.Second)
		_, cause := e.end()
		require.NoError(t, cause)
	})
}

func TestALeaseThatIsTakenStopsItsTaskAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		b.start()
		e := b.engine(0)
		b.store.take(key)
		pass(1100 * time.Millisecond)
		_, cause := e.end()
		require.ErrorIs(t, cause, ErrLeaseLost)
		require.False(t, e.wasDrained())
		pass(time.Second)
		require.Zero(t, b.store.count("release", time.Time{}))
	})
}

func TestADeletedFlowIsDrained(t *testing.T) {
	for name, notify := range map[string]bool{"told": true, "by polling": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				key := b.lease(nil)
				b.start()
				e := b.engine(0)
				b.store.drop(key)
				deleted := time.Now()
				if notify {
					b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
				}
				pass(2 * time.Second)
				ended, cause := e.end()
				require.NoError(t, cause)
				require.True(t, e.wasDrained())
				require.Less(t, ended.Sub(deleted), 2*time.Second)
			})
		})
	}
}

func TestAChangedFlowTakesEffectWithinTwoSeconds(t *testing.T) {
	for name, notify := range map[string]bool{"told": true, "by polling": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.make = func(e *fakeEngine) error { e.obeys = false; return nil } // drains take for ever
				key := b.lease(nil)
				b.start()
				e := b.engine(0)
				pass(1500 * time.Millisecond)
				changed := time.Now()
				b.store.change(key.FlowID, func(s *flows.FlowSpec) {
					s.Flow.Topics = []string{"new"}
					s.Flow.Revision++
				})
				if notify {
					b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
				}
				pass(2 * time.Second)
				_, cause := e.end()
				require.ErrorIs(t, cause, engine.ErrLeaseLost, "cut off")
				require.True(t, e.wasDrained())
				next := b.engine(1)
				require.Equal(t, []string{"new"}, next.cfg.Topics)
				require.Equal(t, int64(1), next.cfg.Identity.LeaseEpoch, "under the same lease")
				require.LessOrEqual(t, next.began.Sub(changed), 2*time.Second)
				require.True(t, b.store.holds(key))
				require.Equal(t, 2, b.made())
			})
		})
	}
}

func TestAFlowDisabledOrOfOtherTasksIsStoppedAndReleasedWithinTwoSeconds(t *testing.T) {
	for name, edit := range map[string]func(*flows.FlowSpec){
		"disabled":    func(s *flows.FlowSpec) { s.Flow.Enabled = false; s.Flow.Revision++ },
		"fewer tasks": func(s *flows.FlowSpec) { s.Flow.TasksMax = 0; s.Flow.Revision++ },
		"more tasks":  func(s *flows.FlowSpec) { s.Flow.TasksMax = 2; s.Flow.Revision++ },
		"disabled with more tasks": func(s *flows.FlowSpec) {
			s.Flow.Enabled, s.Flow.TasksMax = false, 2
			s.Flow.Revision++
		},
	} {
		for _, notify := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					b.make = func(e *fakeEngine) error { e.obeys = false; return nil }
					key := b.lease(nil)
					b.start()
					e := b.engine(0)
					pass(1500 * time.Millisecond)
					b.store.change(key.FlowID, edit)
					if notify {
						b.store.notes <- flows.Notification{Kind: "flow", ID: key.FlowID}
					}
					pass(2 * time.Second)
					ended, _ := e.end()
					require.False(t, ended.IsZero(), "it still runs")
					require.False(t, b.store.holds(key))
					require.Equal(t, 1, b.made())
				})
			})
		}
	}
}

func TestNewCredentialsAreTakenWithoutStoppingTheTask(t *testing.T) {
	t.Parallel()
	sealer, opener := keyPair(t, "k1")
	foreign, _ := keyPair(t, "k2")
	old, next, unreadable := seal(t, sealer, "old"), seal(t, sealer, "new"), seal(t, foreign, "x")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, opener)
		sasl := flows.Security{Protocol: "SASL_SSL", SASL: &flows.SASLSpec{Mechanism: "PLAIN", Username: "u"}}
		key := b.lease(func(s *flows.FlowSpec) { s.Source.Security, s.Source.Sealed = sasl, old })
		b.start()
		e := b.engine(0)
		require.Equal(t, "old", e.cfg.Source.Credentials.Get().SASL.Password)

		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Source.Sealed = next; s.Source.CredentialsRevision++ })
		pass(1100 * time.Millisecond)
		require.Equal(t, "new", e.cfg.Source.Credentials.Get().SASL.Password)
		require.False(t, e.wasDrained())

		// Without the key the old ones stay, and the status says so.
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Source.Sealed = unreadable; s.Source.CredentialsRevision++ })
		pass(2100 * time.Millisecond)
		require.Equal(t, "new", e.cfg.Source.Credentials.Get().SASL.Password)
		require.Equal(t, "SECRETS_UNREADABLE", b.store.lastReport(key).Conditions[0].Code)
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Source.Sealed = old; s.Source.CredentialsRevision++ })
		pass(2100 * time.Millisecond)
		require.Equal(t, "old", e.cfg.Source.Credentials.Get().SASL.Password)
		require.Empty(t, b.store.lastReport(key).Conditions)
		require.Equal(t, 1, b.made())

		// From a login to none is more than new credentials.
		b.store.change(key.FlowID, func(s *flows.FlowSpec) {
			s.Source.Security, s.Source.Sealed = flows.Security{Protocol: "PLAINTEXT"}, nil
			s.Source.CredentialsRevision++
		})
		pass(1100 * time.Millisecond)
		require.True(t, e.wasDrained())
		require.Equal(t, "PLAINTEXT", b.engine(1).cfg.Source.Credentials.Get().Protocol)
	})
}

func TestSecretsThatCannotBeOpenedAreAConditionUntilTheyCan(t *testing.T) {
	t.Parallel()
	sealer, opener := keyPair(t, "k1")
	foreign, _ := keyPair(t, "elsewhere")
	good, bad := seal(t, sealer, "hunter2"), seal(t, foreign, "hunter2")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, opener)
		key := b.lease(func(s *flows.FlowSpec) { s.Target.Sealed = bad })
		b.start()
		pass(2 * time.Second)
		require.Zero(t, b.made())
		st := b.store.lastReport(key)
		require.Equal(t, flows.StateFailed, st.State)
		require.Len(t, st.Conditions, 1)
		require.Equal(t, "SECRETS_UNREADABLE", st.Conditions[0].Code)
		require.Contains(t, st.Conditions[0].Message, `"elsewhere"`)
		require.Contains(t, st.Conditions[0].Message, "target dst")
		require.NotContains(t, st.Conditions[0].Message, "hunter2")

		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Target.Sealed = good; s.Target.CredentialsRevision++ })
		pass(2 * time.Second)
		require.Equal(t, "hunter2", b.engine(0).cfg.Target.Credentials.Get().SASL.Password)
		b.engine(0).cfg.Sink.Status(report.Status{State: report.Running})
		pass(time.Second)
		require.Empty(t, b.store.lastReport(key).Conditions)
	})
}

func TestAFaultIsReportedRecordedAndRestartedWithBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.make = func(e *fakeEngine) error {
			switch len(b.engines) {
			case 0:
				e.fail <- errors.New("disk on fire")
			case 1:
				e.onRun = func() { panic("secret hunter2") }
			case 2:
				e.fail <- nil
			}
			return nil
		}
		key := b.lease(nil)
		b.start()
		pass(400 * time.Millisecond)
		st := b.store.lastReport(key)
		require.Equal(t, flows.StateFailed, st.State)
		require.Equal(t, "TASK_FAULT", st.Conditions[0].Code)
		require.Contains(t, st.Conditions[0].Message, "disk on fire")
		since := st.Conditions[0].Since

		pass(1500 * time.Millisecond)
		require.GreaterOrEqual(t, b.made(), 2)
		st = b.store.lastReport(key)
		require.Equal(t, since, st.Conditions[0].Since, "it has not been well since")
		require.NotContains(t, st.Conditions[0].Message, "hunter2", "a panic's value may be anything")

		pass(10 * time.Second)
		e := b.engine(3)
		require.GreaterOrEqual(t, e.began.Sub(b.engine(2).began), 2*time.Second, "each wait is longer")
		e.cfg.Sink.Status(report.Status{State: report.Running})
		pass(time.Second)
		require.Equal(t, flows.StateRunning, b.store.lastReport(key).State)
		require.Empty(t, b.store.lastReport(key).Conditions)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		require.Len(t, b.store.events, 3)
		require.Equal(t, "TASK_FAULT", b.store.events[0].Code)
		require.Equal(t, int64(1), b.store.events[0].TaskEpoch)
	})
}

func TestAConfigurationThatTheEngineRefusesIsAFaultThatAChangeMends(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.make = func(e *fakeEngine) error {
			if e.cfg.Separator == "bad" {
				return errors.New("engine: Config.Separator is bad")
			}
			return nil
		}
		key := b.lease(func(s *flows.FlowSpec) { s.Flow.ReplicationPolicySeparator = "bad" })
		b.start()
		pass(time.Minute)
		require.Contains(t, b.store.lastReport(key).Conditions[0].Message, "Config.Separator")
		b.store.change(key.FlowID, func(s *flows.FlowSpec) { s.Flow.ReplicationPolicySeparator = "."; s.Flow.Revision++ })
		pass(1500 * time.Millisecond)
		require.Equal(t, 1, b.made(), "the change does not wait for the back-off")
	})
}

func TestANewTermWaitsUntilTheOldOnesEngineHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		hold := make(chan struct{})
		b.make = func(e *fakeEngine) error {
			if len(b.engines) == 0 {
				e.onRun = func() { <-hold }
			}
			return nil
		}
		key := b.lease(nil)
		b.start()
		b.engine(0)
		b.store.mu.Lock()
		delete(b.store.mine, key)
		b.store.free = append(b.store.free, flows.TaskLease{LeaseKey: flows.LeaseKey{FlowID: key.FlowID, Epoch: 2}, Spec: b.store.specs[key.FlowID]})
		b.store.mu.Unlock()
		pass(3 * time.Second)
		require.Equal(t, 1, b.made(), "the first engine has not returned")
		close(hold)
		pass(time.Second)
		require.Equal(t, int64(2), b.engine(1).cfg.Identity.LeaseEpoch)
	})
}

func TestShutdownKeepsRenewingWhileTasksDrainAndTakesNothingNew(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.make = func(e *fakeEngine) error { e.obeys = false; return nil }
		key := b.lease(nil)
		b.start()
		e := b.engine(0)
		pass(1500 * time.Millisecond)
		b.lease(nil) // nobody will take it
		began := time.Now()
		b.stop(ErrShutdown)
		pass(4 * time.Second)
		require.True(t, e.wasDrained())
		require.GreaterOrEqual(t, b.store.count("renew", began), 3)
		require.True(t, b.store.holds(key), "its engine has not returned")
		<-b.stopped
		ended, cause := e.end()
		require.ErrorIs(t, cause, engine.ErrLeaseLost, "cut off")
		require.Equal(t, 5*time.Second+drainGrace, ended.Sub(began), "after the drain timeout")
		require.False(t, b.store.holds(key))
		require.Equal(t, 1, b.made())
		require.Equal(t, flows.StateStarting, b.store.lastReport(key).State)
	})
}

func TestLeasesThatCannotBeReleasedDoNotKeepTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.lease(nil)
		b.start()
		b.engine(0)
		b.store.setBefore(func(context.Context, string) error { return errDown })
		began := time.Now()
		b.stop(ErrShutdown)
		<-b.stopped
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

func TestStatusesAreStoredInOneCallWhenTheyChange(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		keys := []flows.LeaseKey{b.lease(nil), b.lease(nil), b.lease(nil)}
		b.start()
		pass(3 * time.Second)
		for i := range keys {
			b.engine(i).cfg.Sink.Status(report.Status{State: report.Running, ObservedAt: time.Now()})
		}
		pass(200 * time.Millisecond)
		b.store.mu.Lock()
		n := len(b.store.reports)
		require.Len(t, b.store.reports[n-1], 3, "a change of state does not wait for the second")
		b.store.mu.Unlock()
		for range 10 { // ten times the same within a second
			for i := range keys {
				b.engine(i).cfg.Sink.Status(report.Status{State: report.Running, ObservedAt: time.Now()})
			}
			pass(100 * time.Millisecond)
		}
		b.store.mu.Lock()
		require.Len(t, b.store.reports, n, "nothing changed but the time of observation")
		b.store.mu.Unlock()
		first := flows.LeaseKey{FlowID: uuid.MustParse(b.engine(0).cfg.Identity.FlowID), Epoch: 1}
		before := b.store.lastReport(first).ObservedAt
		for range 30 {
			b.engine(0).cfg.Sink.Status(report.Status{State: report.Running, ObservedAt: time.Now()})
			pass(100 * time.Millisecond)
		}
		require.True(t, b.store.lastReport(first).ObservedAt.After(before), "the time of observation stays fresh")

		// What could not be stored is stored later.
		b.store.setBefore(func(_ context.Context, name string) error {
			if name == "report" {
				return errDown
			}
			return nil
		})
		last := b.engine(2)
		last.cfg.Sink.Status(report.Status{State: report.Degraded, ObservedAt: time.Now()})
		pass(3 * time.Second)
		b.store.setBefore(nil)
		pass(1100 * time.Millisecond)
		flow := uuid.MustParse(last.cfg.Identity.FlowID)
		require.Equal(t, flows.StateDegraded, b.store.lastReport(flows.LeaseKey{FlowID: flow, Epoch: 1}).State)
	})
}

func TestAnEventIsStoredOrTheEngineHearsThatItIsNot(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		key := b.lease(nil)
		b.start()
		e := b.engine(0)
		event := report.Event{At: time.Now(), Code: "OFFSETS_LOST", Subject: report.Subject{Topic: "t", Partition: 3}, Message: "m", Evidence: map[string]any{"count": 7}}
		b.store.setBefore(func(_ context.Context, name string) error {
			if name == "events" {
				return errDown
			}
			return nil
		})
		require.ErrorIs(t, e.cfg.Sink.Event(t.Context(), event), errDown)
		b.store.setBefore(nil)
		require.NoError(t, e.cfg.Sink.Event(t.Context(), event))
		event.Evidence = map[string]any{"f": func() {}} // cannot be encoded
		require.NoError(t, e.cfg.Sink.Event(t.Context(), event))
		b.store.mu.Lock()
		require.Len(t, b.store.events, 2)
		three := int32(3)
		got := b.store.events[0]
		b.store.mu.Unlock()
		require.Equal(t, flows.Event{
			FlowID: key.FlowID, At: event.At, Code: "OFFSETS_LOST", Subject: flows.Subject{Topic: "t", Partition: &three}, Message: "m",
			Evidence: json.RawMessage(`{"count":7}`), Worker: "w1", TaskEpoch: 1,
		}, got)

		// The database hangs: callers are not held for ever.
		b.store.setBefore(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		require.Error(t, e.cfg.Sink.Event(t.Context(), event))
		require.LessOrEqual(t, time.Since(began), callTimeout)
	})
}

func TestClaimsNameTheOwningFlow(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.lease(nil)
		b.start()
		denied, err := b.engine(0).cfg.Owners.Claim(t.Context(), "c", []string{"src.a", "src.b", "src.c"})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"src.a": otherFlow.String(), "src.c": "a flow of another project"}, denied)
		require.NoError(t, b.engine(0).cfg.Owners.Release(t.Context(), "c", []string{"src.b"}))
	})
}

func TestAMissingSettingIsNamed(t *testing.T) {
	t.Parallel()
	good := Config{ID: "w", TTL: ttl, Store: newScript(), Opener: secrets.Opener{}}
	for says, edit := range map[string]func(*Config){
		"Config.ID": func(c *Config) { c.ID = "" }, "Config.TTL": func(c *Config) { c.TTL = time.Millisecond },
		"Config.Store": func(c *Config) { c.Store = nil }, "Config.Opener": func(c *Config) { c.Opener = nil },
	} {
		c := good
		edit(&c)
		_, err := New(c)
		require.ErrorContains(t, err, says)
	}
}

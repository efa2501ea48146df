package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

const perBatch = 10

// far is a path over a line that is long, to a kfake target whose answers the test chooses. kfake tells of transactional
// producers only, so the entry of ours is kept here.
type far struct {
	*bench
	source, target *kfake.Cluster
	raw            *kgo.Client // for requests that nobody meddles with

	mu       sync.Mutex
	leader   int32    // of partition 0
	last     identity // the entry: seq is of the last record
	known    bool
	requests int // for partition 0
	most     int // so many were awaited at a time
	readings int // of the entry
	answer   func(*far, *kmsg.ProduceRequest, int) (kmsg.Response, error, bool)
	tell     func(*kmsg.DescribeProducersResponseTopicPartition)
}

// farPath is a path from batches of ten records of 1 KB, with a timestamp, to a target that gives the answers that answer
// chooses for the nth request with partition 0.
func farPath(t *testing.T, n int, at time.Time, answer func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool)) *far {
	t.Helper()
	f := &far{answer: answer}
	var err error
	f.source, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
	require.NoError(t, err)
	t.Cleanup(f.source.Close)
	f.target, err = kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, remote(topic)))
	require.NoError(t, err)
	t.Cleanup(f.target.Close)
	require.NoError(t, f.target.MoveTopicPartition(remote(topic), 0, 0))
	f.raw, err = kgo.NewClient(kgo.SeedBrokers(f.target.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(f.raw.Close)
	f.write(t, 0, n, at)
	f.target.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.target.KeepControl()
		return f.produce(req.(*kmsg.ProduceRequest)) //nolint:forcetypeassert // by its key
	})
	f.target.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.target.KeepControl()
		return f.describe(req.(*kmsg.DescribeProducersRequest)), nil, true //nolint:forcetypeassert // by its key
	})
	f.bench = run(t, batches, plain("source", f.source.ListenAddrs()...), plain("target", f.target.ListenAddrs()...), nil)
	f.path.mu.Lock()
	f.path.fixedTrip = 8 * time.Millisecond
	f.path.mu.Unlock()
	return f
}

func (f *far) write(t *testing.T, from, n int, at time.Time) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(f.source.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for i := from; i < from+n; i += perBatch {
		var rs []*kgo.Record
		for k := range perBatch {
			rs = append(rs, &kgo.Record{Value: fmt.Appendf(nil, "%d%s", i+k, strings.Repeat(" ", 1000)), Timestamp: at})
		}
		require.NoError(t, client.ProduceSync(t.Context(), rs...).FirstErr())
	}
}

func (f *far) produce(req *kmsg.ProduceRequest) (kmsg.Response, error, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.Topics[0].Partitions[0].Partition != 0 {
		return nil, nil, false
	}
	f.requests++
	if f.path != nil {
		f.path.mu.Lock()
		if t := f.path.parts[first]; t != nil {
			f.most = max(f.most, t.awaiting)
		}
		f.path.mu.Unlock()
	}
	if f.answer != nil {
		if resp, err, done := f.answer(f, req, f.requests); done {
			return resp, err, true
		}
	}
	if f.target.CurrentNode() == f.leader {
		f.note(req)
	}
	return nil, nil, false
}

// note keeps the entry that a target has after it took a request; the lock is held.
func (f *far) note(req *kmsg.ProduceRequest) {
	b := batch.Batch(req.Topics[0].Partitions[0].Records)
	next := identityOf(b)
	if f.known && f.last.pid == next.pid && f.last.epoch == next.epoch && next.seq != f.last.seq+1 {
		return // it refuses
	}
	next.seq += b.Count() - 1
	f.last, f.known = next, true
}

// sleep lets the target go on with other connections while wakeup runs; the lock is held, and not meanwhile.
func (f *far) sleep(wakeup func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	f.target.SleepControl(wakeup)
}

// append has the target take a request whose answer will be another one; the lock is held.
func (f *far) append(req *kmsg.ProduceRequest) {
	f.note(req)
	again := *req
	answer := f.answer
	f.answer = nil
	f.sleep(func() {
		_, _ = f.raw.Broker(0).Request(context.Background(), &again)
	})
	f.answer = answer
}

func (f *far) describe(req *kmsg.DescribeProducersRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse) //nolint:forcetypeassert // by its key
	for _, rt := range req.Topics {
		st := kmsg.NewDescribeProducersResponseTopic()
		st.Topic = rt.Topic
		for _, p := range rt.Partitions {
			sp := kmsg.NewDescribeProducersResponseTopicPartition()
			sp.Partition = p
			if f.known && p == 0 {
				ap := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				ap.ProducerID, ap.ProducerEpoch, ap.LastSequence = f.last.pid, int32(f.last.epoch), f.last.seq
				sp.ActiveProducers = append(sp.ActiveProducers, ap)
			}
			f.readings++
			if f.tell != nil {
				f.tell(&sp)
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// held waits until so many batches are under way; the lock is held.
func (f *far) held(batches int) {
	f.sleep(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-tick.C {
			f.path.mu.Lock()
			t := f.path.parts[first]
			enough := t != nil && t.awaiting >= batches
			f.path.mu.Unlock()
			if enough {
				return
			}
		}
	})
}

// requireExact checks that partition 0 of the copy holds 0..n-1.
func (f *far) requireExact(t *testing.T, n int) {
	t.Helper()
	require.EqualValues(t, n, f.target.PartitionInfo(remote(topic), 0).HighWatermark)
	for i, v := range numbers(t, f.target, n) {
		require.Equal(t, fmt.Sprint(i), strings.TrimSpace(v))
	}
}

func coded(req *kmsg.ProduceRequest, code *kerr.Error, base int64) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse) //nolint:forcetypeassert // by its key
	for _, rt := range req.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.BaseOffset = rp.Partition, base
			if code != nil {
				sp.ErrorCode = code.Code
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// failing is the request of the pipeline's head in the tests below, when the entry has been read.
const failing = 12

func TestARefusalInAPipelineHasItSentAgainInOrder(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.InvalidRecord, kerr.MessageTooLarge, kerr.CorruptMessage} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			var before int
			f := farPath(t, 600, time.Now(), func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
				if nth != failing {
					return nil, nil, false
				}
				f.held(5)
				before = f.readings
				return coded(req, code, -1), nil, true
			})
			f.assign(topic, 1, 0)
			f.untilAt(first, 600)
			f.requireExact(t, 600)
			f.mu.Lock()
			defer f.mu.Unlock()
			require.GreaterOrEqual(t, f.most, 5)
			require.Equal(t, before, f.readings, "what is surely not there needs no look")
		})
	}
}

func TestWhatOfAPipelineMayBeOnTheTargetIsLookedForBeforeItIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error){
		"the connection ends before it is taken": func(*far, *kmsg.ProduceRequest) (kmsg.Response, error) { return nil, errors.New("ends") },
		"the connection ends after it is taken": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return nil, errors.New("ends")
		},
		"it is taken, and the replicas are late": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return coded(req, kerr.RequestTimedOut, -1), nil
		},
		"it is taken, and the leader deposed before it could say so": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return coded(req, kerr.NotLeaderForPartition, -1), nil
		},
		"it is not taken, and another leads": func(_ *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			return coded(req, kerr.NotLeaderForPartition, -1), nil
		},
		"it is taken, and then the disk failed": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return coded(req, kerr.KafkaStorageError, -1), nil
		},
		"it is not taken, and the answer says that nothing is known": func(_ *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			return coded(req, kerr.UnknownServerError, -1), nil
		},
		"it was there, it says": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return coded(req, kerr.DuplicateSequenceNumber, -1), nil
		},
		"it is out of order, though it is there": func(f *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			f.append(req)
			return coded(req, kerr.OutOfOrderSequenceNumber, -1), nil
		},
		"it is out of order without a reason": func(_ *far, req *kmsg.ProduceRequest) (kmsg.Response, error) {
			return coded(req, kerr.OutOfOrderSequenceNumber, -1), nil
		},
	} {
		for _, entry := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, entry %v", name, entry), func(t *testing.T) {
				t.Parallel()
				var before int
				f := farPath(t, 600, time.Now(), func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
					if nth != failing {
						return nil, nil, false
					}
					f.held(5)
					before = f.readings
					if !entry {
						f.tell = func(p *kmsg.DescribeProducersResponseTopicPartition) { p.ActiveProducers = nil }
					}
					resp, err := fail(f, req)
					return resp, err, true
				})
				f.assign(topic, 1, 0)
				f.untilAt(first, 600)
				f.requireExact(t, 600)
				f.mu.Lock()
				defer f.mu.Unlock()
				require.Greater(t, f.readings, before)
				require.Zero(t, f.seen.stopCount(first), "%+v", f.seen.stops[first])
			})
		}
	}
}

func TestWhatABrokerStillHadInHandIsWaitedForWhereNothingElseWouldRefuseIt(t *testing.T) {
	t.Parallel()
	const at = 1 // all become one batch
	var ended, worked, early atomic.Bool
	f := farPath(t, 600, time.Now().Add(-30*24*time.Hour), func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
		if nth != at {
			return nil, nil, false
		}
		// The connection ends, and the request is worked on a moment later.
		late := *req
		ended.Store(true)
		time.AfterFunc(180*time.Millisecond, func() {
			_, _ = f.raw.Broker(0).Request(context.Background(), &late)
			worked.Store(true)
		})
		return nil, errors.New("ends"), true
	})
	f.mu.Lock()
	f.tell = func(p *kmsg.DescribeProducersResponseTopicPartition) {
		p.ActiveProducers = nil // forgotten: too old
		if ended.Load() && !worked.Load() {
			early.Store(true)
		}
	}
	f.mu.Unlock()
	f.assign(topic, 1, 0)
	f.untilAt(first, 600)
	f.requireExact(t, 600)
	require.False(t, early.Load(), "it was looked for before it was there")
}

func TestAnotherWriterUnderTheIdentityIsToldAndTheIdentityLeft(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kmsg.DescribeProducersResponseTopicPartitionActiveProducer){
		"within a batch": func(a *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) { a.LastSequence += 3 },
		"another epoch":  func(a *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) { a.ProducerEpoch++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var old int64
			f := farPath(t, 600, time.Now(), func(f *far, _ *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
				if nth != failing {
					return nil, nil, false
				}
				f.held(5)
				old = f.last.pid
				f.tell = func(p *kmsg.DescribeProducersResponseTopicPartition) {
					if len(p.ActiveProducers) > 0 && p.ActiveProducers[0].ProducerID == old {
						change(&p.ActiveProducers[0])
					}
				}
				return nil, errors.New("ends"), true
			})
			f.assign(topic, 1, 0)
			f.untilAt(first, 600)
			f.requireExact(t, 600)
			require.Contains(t, f.untilStopped(first, StopForeign).Message, "under this flow's producer id")
			f.mu.Lock()
			defer f.mu.Unlock()
			require.NotEqual(t, old, f.last.pid)
		})
	}
}

func TestAnAcknowledgementBehindARefusalIsToldAndTheRefusedFollow(t *testing.T) {
	t.Parallel()
	f := farPath(t, 600, time.Now(), func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
		switch nth {
		case failing:
			f.held(5)
			return coded(req, kerr.NotEnoughReplicas, -1), nil, true
		case failing + 1: // the broker has forgotten the producer, and takes what comes
			return coded(req, nil, 10*(failing-1)), nil, true
		}
		return nil, nil, false
	})
	f.assign(topic, 1, 0)
	f.untilAt(first, 600)
	require.Contains(t, f.untilStopped(first, StopForeign).Message, "accepted records behind 10 records from source offset 110 on")
	require.EqualValues(t, 590, f.target.PartitionInfo(remote(topic), 0).HighWatermark, "all but what was acknowledged in vain")
}

func TestOnlyOneBatchIsUnderWayWhereNothingTellsWhatHasArrived(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		age  time.Duration
		tell func(*kmsg.DescribeProducersResponseTopicPartition)
	}{
		"old records": {30 * 24 * time.Hour, nil},
		"readings denied": {0, func(p *kmsg.DescribeProducersResponseTopicPartition) {
			p.ActiveProducers, p.ErrorCode = nil, kerr.TopicAuthorizationFailed.Code
		}},
		"no entry": {0, func(p *kmsg.DescribeProducersResponseTopicPartition) { p.ActiveProducers = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := farPath(t, 600, time.Now().Add(-one.age), nil)
			f.mu.Lock()
			f.tell = one.tell
			f.mu.Unlock()
			f.assign(topic, 1, 0)
			f.untilAt(first, 600)
			f.requireExact(t, 600)
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Equal(t, 1, f.most)
			if name == "old records" { // of the others it turns out later, perhaps when all has been sent
				require.Less(t, f.requests, 40, "of 60 small batches, most were put together")
			}
		})
	}
}

func TestALeaderNamedInAnAnswerIsFollowedWithoutMetadata(t *testing.T) {
	t.Parallel()
	f := farPath(t, 300, time.Now(), nil)
	f.assign(topic, 1, 0)
	f.untilAt(first, 300)
	// From here on the metadata are of no use.
	f.target.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.target.KeepControl()
		return nil, errors.New("no metadata"), true
	})
	f.mu.Lock()
	f.leader = 1
	f.mu.Unlock()
	require.NoError(t, f.target.MoveTopicPartition(remote(topic), 0, 1))
	f.write(t, 300, 300, time.Now())
	f.untilAt(first, 600)
	require.EqualValues(t, 600, f.target.PartitionInfo(remote(topic), 0).HighWatermark)
}

func TestAPartitionWhoseReplicasAreLateWaitsInALaneOfItsOwn(t *testing.T) {
	t.Parallel()
	f := farPath(t, 600, time.Now(), func(f *far, req *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
		if nth != failing {
			return nil, nil, false
		}
		f.append(req)
		return coded(req, kerr.RequestTimedOut, -1), nil, true
	})
	f.assign(topic, 1, 0)
	f.untilAt(first, 600)
	f.requireExact(t, 600)
	f.path.mu.Lock()
	defer f.path.mu.Unlock()
	require.NotNil(t, f.path.lanes[laneKey{0, slowLane}])
	require.Zero(t, f.path.parts[first].slow, "it is back")
}

func TestAnAssignmentWaitsForAllAnswersOfThePipelineBefore(t *testing.T) {
	t.Parallel()
	held, reached := make(chan struct{}), make(chan struct{})
	f := farPath(t, 600, time.Now(), func(f *far, _ *kmsg.ProduceRequest, nth int) (kmsg.Response, error, bool) {
		if nth == failing {
			f.held(5)
			close(reached)
			f.sleep(func() { <-held })
		}
		return nil, nil, false
	})
	f.assign(topic, 1, 0)
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.path.Unassign(ctx, []TP{first}), context.DeadlineExceeded)
	f.seen.forget(first)
	f.path.Assign([]Assignment{{Source: first, Target: TP{remote(topic), 0}, Start: 300}})
	wait.For(t, 5*time.Second, "the new life's metadata", func() error {
		f.path.mu.Lock()
		defer f.path.mu.Unlock()
		if p := f.path.parts[first]; p.tgt.leader < 0 || p.src.leader < 0 {
			return errors.New("not known")
		}
		require.GreaterOrEqual(t, f.path.parts[first].stale, 2)
		return nil
	})
	close(held)
	f.untilAt(first, 600)
	got := numbers(t, f.target, int(f.target.PartitionInfo(remote(topic), 0).HighWatermark))
	require.Greater(t, len(got), 300+10*(failing+1)-1, "all that was under way was taken")
	for i, v := range got[len(got)-300:] {
		require.Equal(t, fmt.Sprint(300+i), strings.TrimSpace(v))
	}
}

package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// sessionBroker is a broker's side of KIP-227, as the Java broker does it: cached partitions, updates before removals.
type sessionBroker struct {
	room   bool
	next   int32
	id     int32
	epoch  int32
	cached map[string]FetchPartition
}

func key(name string, id [16]byte, byID bool, p int32) string {
	if byID {
		return fmt.Sprintf("%x-%d", id, p)
	}
	return fmt.Sprintf("%s-%d", name, p)
}

// fetch answers a request; asked is what the broker would look at.
func (b *sessionBroker) fetch(r *FetchRequest, version int16) (resp *FetchResponse, asked map[string]FetchPartition) {
	byID := version >= idFetch
	resp = &FetchResponse{Version: version}
	named := map[string]FetchPartition{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			k := key(t.Name, t.ID, byID, p.Partition)
			if _, twice := named[k]; twice {
				panic("a partition is named twice")
			}
			named[k] = p
			fp := FetchedPartition{Topic: []byte(t.Name), Partition: p.Partition}
			if byID {
				fp.Topic, fp.TopicID = nil, t.ID
			}
			resp.Partitions = append(resp.Partitions, fp)
		}
	}
	switch {
	case r.SessionEpoch == -1:
		if r.SessionID == b.id {
			b.id = 0
		}
		return resp, named
	case r.SessionEpoch == 0:
		if r.SessionID == b.id {
			b.id = 0
		}
		if len(r.Forgotten) > 0 {
			panic("a full fetch forgets")
		}
		if b.room {
			b.next++
			b.id, b.epoch, b.cached = b.next, 1, named
			resp.SessionID = b.id
		}
		return resp, named
	case b.id == 0 || r.SessionID != b.id:
		return &FetchResponse{Version: version, ErrorCode: kerr.FetchSessionIDNotFound.Code}, nil
	case r.SessionEpoch != b.epoch:
		return &FetchResponse{Version: version, ErrorCode: kerr.InvalidFetchSessionEpoch.Code}, nil
	}
	for k, p := range named {
		b.cached[k] = p
	}
	for _, t := range r.Forgotten {
		for _, p := range t.Partitions {
			delete(b.cached, key(t.Name, t.ID, byID, p))
		}
	}
	b.epoch++
	resp.SessionID = b.id
	resp.Partitions = resp.Partitions[:0]
	return resp, b.cached
}

func TestASessionAlwaysAsksForWhatIsWanted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := &sessionBroker{room: true, next: 10}
		var s Session
		var req FetchRequest
		wanted := map[string]map[int32]FetchPartition{}
		ids := map[string][16]byte{}
		version := rapid.SampledFrom([]int16{6, 11, 12, 13, 17}).Draw(r, "version")
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			topic := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "topic")
			p := rapid.Int32Range(0, 3).Draw(r, "partition")
			if ids[topic] == [16]byte{} {
				ids[topic] = [16]byte{topic[0]}
			}
			switch rapid.IntRange(0, 9).Draw(r, "step") {
			case 0, 1, 2:
				fp := FetchPartition{Partition: p, LeaderEpoch: -1, Offset: rapid.Int64Range(0, 5).Draw(r, "offset")}
				s.Set(topic, ids[topic], fp)
				if wanted[topic] == nil {
					wanted[topic] = map[int32]FetchPartition{}
				}
				wanted[topic][p] = fp
			case 3:
				s.Remove(topic, p)
				delete(wanted[topic], p)
			case 4:
				switch rapid.IntRange(0, 5).Draw(r, "trouble") {
				case 0:
					b.id = 0 // evicted
				case 1:
					b.room = !b.room
				case 2:
					version = rapid.SampledFrom([]int16{6, 11, 12, 13, 17}).Draw(r, "new version")
				case 3: // made anew
					id := ids[topic]
					id[1]++
					ids[topic] = id
					for p, fp := range wanted[topic] {
						s.Set(topic, id, fp)
						_ = p
					}
				case 4: // lost on the way there, or on the way back
					s.Next(&req, version)
					if rapid.Bool().Draw(r, "arrives") {
						b.fetch(&req, version)
					}
					s.Failed()
				case 5:
					if s.Close(&req) {
						b.fetch(&req, version)
						require.Zero(r, b.id)
					}
				}
			default:
				s.Next(&req, version)
				resp, asked := b.fetch(&req, version)
				require.LessOrEqual(r, len(resp.Partitions), req.Answerable)
				for _, p := range resp.Partitions {
					name, ok := s.Topic(&p)
					require.True(r, ok)
					require.Contains(r, wanted[name], p.Partition)
				}
				if s.Answered(resp) {
					n := 0
					for topic, ps := range wanted {
						for p, fp := range ps {
							require.Equal(r, fp, asked[key(topic, ids[topic], version >= idFetch, p)], "%s-%d", topic, p)
							n++
						}
					}
					require.Len(r, asked, n)
					require.Equal(r, n, s.Len())
				} else {
					// The next one says everything.
					s.Next(&req, version)
					require.LessOrEqual(r, req.SessionEpoch, int32(0))
					resp, _ := b.fetch(&req, version)
					require.True(r, s.Answered(resp))
				}
			}
		}
	})
}

func session(t *testing.T, partitions int) (*Session, *FetchRequest, *sessionBroker) {
	t.Helper()
	s, b, req := &Session{}, &sessionBroker{room: true}, &FetchRequest{}
	for p := range int32(partitions) {
		s.Set("t", [16]byte{1}, FetchPartition{Partition: p})
	}
	s.Next(req, 13)
	require.Len(t, req.Topics[0].Partitions, partitions)
	resp, _ := b.fetch(req, 13)
	require.True(t, s.Answered(resp))
	return s, req, b
}

func TestIdlePartitionsAreNotNamedAgain(t *testing.T) {
	t.Parallel()
	s, req, b := session(t, 1000)
	for i := range 3 {
		s.Next(req, 13)
		require.Empty(t, req.Topics)
		require.Empty(t, req.Forgotten)
		require.EqualValues(t, i+1, req.SessionEpoch)
		require.Equal(t, 1000, req.Answerable)
		resp, _ := b.fetch(req, 13)
		require.True(t, s.Answered(resp))
	}
	s.Set("t", [16]byte{1}, FetchPartition{Partition: 5, Offset: 9})
	s.Remove("t", 6)
	s.Next(req, 13)
	require.Equal(t, []FetchTopic{{Name: "t", ID: [16]byte{1}, Partitions: []FetchPartition{{Partition: 5, Offset: 9}}}}, req.Topics)
	require.Equal(t, []ForgottenTopic{{Name: "t", ID: [16]byte{1}, Partitions: []int32{6}}}, req.Forgotten)
}

func TestARoundOfASessionAllocatesNothing(t *testing.T) {
	s, req, b := session(t, 100)
	resp := &FetchResponse{Version: 13, SessionID: b.id}
	offset := int64(0)
	run := func() {
		offset++
		for p := range int32(10) {
			s.Set("t", [16]byte{1}, FetchPartition{Partition: p, Offset: offset})
		}
		s.Next(req, 13)
		s.Answered(resp)
	}
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}

func TestAnErrorOfTheSessionBeginsItAnew(t *testing.T) {
	t.Parallel()
	for code, id := range map[*kerr.Error]bool{
		kerr.FetchSessionIDNotFound: false, kerr.InvalidFetchSessionEpoch: true, kerr.FetchSessionTopicIDError: true, kerr.UnknownServerError: true,
	} {
		s, req, b := session(t, 3)
		s.Next(req, 13)
		require.False(t, s.Answered(&FetchResponse{Version: 13, ErrorCode: code.Code}))
		s.Next(req, 13)
		require.Zero(t, req.SessionEpoch)
		require.Equal(t, id, req.SessionID == b.id, code.Message)
		require.Len(t, req.Topics[0].Partitions, 3)
	}
}

func TestAnotherSessionsAnswerIsNotTaken(t *testing.T) {
	t.Parallel()
	s, req, b := session(t, 3)
	s.Next(req, 13)
	require.EqualValues(t, 1, req.SessionEpoch)
	require.False(t, s.Answered(&FetchResponse{Version: 13, SessionID: b.id + 1}))
	s.Next(req, 13)
	require.Equal(t, b.id, req.SessionID, "the broker may still have it")
	require.Zero(t, req.SessionEpoch)
	require.Len(t, req.Topics[0].Partitions, 3)
}

func TestEpochsWrapToOne(t *testing.T) {
	t.Parallel()
	s, req, b := session(t, 1)
	s.epoch, b.epoch = 1<<31-1, 1<<31-1
	s.Next(req, 13)
	require.True(t, s.Answered(&FetchResponse{Version: 13, SessionID: b.id}))
	s.Next(req, 13)
	require.EqualValues(t, 1, req.SessionEpoch)
}

func TestFullRequestsBeginWithAnotherPartitionEachTime(t *testing.T) {
	t.Parallel()
	var s Session
	var req FetchRequest
	for i := range 9 {
		s.Set(fmt.Sprint("t", i/3), [16]byte{}, FetchPartition{Partition: int32(i % 3)})
	}
	firsts := map[string]bool{}
	for range 9 {
		s.Next(&req, 6)
		require.EqualValues(t, -1, req.SessionEpoch)
		firsts[fmt.Sprint(req.Topics[0].Name, req.Topics[0].Partitions[0].Partition)] = true
		require.True(t, s.Answered(&FetchResponse{Version: 6}))
	}
	require.Len(t, firsts, 9, "%v", firsts)
	names := []string{}
	for _, t := range req.Topics {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	require.Equal(t, []string{"t0", "t1", "t2"}, names)
}

func TestAFullAnswerThatLeavesPartitionsOutCountsAndItsSessionIsNamedToEnd(t *testing.T) {
	t.Parallel()
	var s Session
	var r FetchRequest
	for p := range int32(2) {
		s.Set("t", [16]byte{1}, FetchPartition{Partition: p})
	}
	s.Next(&r, maxFetch)
	require.Zero(t, r.SessionID)
	for id := range int32(5) {
		require.True(t, s.Answered(&FetchResponse{Version: maxFetch, SessionID: 7 + id, Partitions: make([]FetchedPartition, 1)}))
		require.True(t, s.Lacked())
		s.Next(&r, maxFetch)
		require.Equal(t, 7+id, r.SessionID, "the broker is to keep one at most")
		require.Zero(t, r.SessionEpoch)
		require.Len(t, r.Topics[0].Partitions, 2, "everything is asked for again")
	}
	require.True(t, s.Answered(&FetchResponse{Version: maxFetch, SessionID: 20, Partitions: make([]FetchedPartition, 2)}))
	require.False(t, s.Lacked())
	s.Next(&r, maxFetch)
	require.EqualValues(t, 20, r.SessionID)
	require.EqualValues(t, 1, r.SessionEpoch)
	require.Empty(t, r.Topics)

	// A broker without room that leaves some out has no session to end.
	s.Failed()
	s.Next(&r, maxFetch)
	require.True(t, s.Answered(&FetchResponse{Version: maxFetch, Partitions: make([]FetchedPartition, 1)}))
	require.True(t, s.Lacked())
	s.Next(&r, maxFetch)
	require.Zero(t, r.SessionID)
}

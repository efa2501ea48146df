package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzConnection is a broker that writes anything while a Fetch, a Produce and another request are under way: each learns
// of its end once, nothing stays in use, and memory follows what was asked for and what arrived.
func FuzzConnection(f *testing.F) {
	const asked = 64 << 10
	one := func(correlation int32, body []byte) []byte { return append(head(correlation, len(body)), body...) }
	fetch, produce := sampleFetch(18, 1, 100), sampleProduce(13, 1)
	f.Add(append(one(0, fetch), one(1, produce)...))
	f.Add(one(1, fetch))
	f.Add(head(0, asked))
	f.Add(head(0, 1<<31-6))
	f.Add(append(one(0, fetch[:40]), 0, 0))
	f.Fuzz(func(t *testing.T, answers []byte) {
		pool := NewPool(0)
		c, p := connect(t, Config{ClientID: "me", Pool: pool, Silence: 10 * time.Second})
		ends := make(chan string, 10)
		written := make(chan error, 1)
		got := allocated(func() {
			fr := &FetchRequest{MaxBytes: asked, SessionEpoch: -1, Answerable: 4, Topics: []FetchTopic{{ID: [16]byte{1, 2}, Partitions: make([]FetchPartition, 1)}}}
			require.NoError(t, c.Fetch(fr, func(r *FetchResponse, err error) {
				if err == nil {
					r.Release()
				}
				ends <- "fetch"
			}))
			pr := &ProduceRequest{Topics: []ProduceTopic{{ID: [16]byte{1, 2}, Partitions: []ProducePartition{{Records: []byte("r")}}}}}
			require.NoError(t, c.Produce(pr, func(*ProduceResponse, error) { ends <- "produce" }))
			go func() {
				// An answer or not, it ends.
				_, _ = c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
				ends <- "other"
			}()
			// The broker answers when all have arrived, and then goes.
			for range 3 {
				p.request()
			}
			go func() {
				_, err := p.conn.Write(answers)
				written <- errors.Join(err, p.conn.Close())
			}()
			seen := map[string]bool{}
			for range 3 {
				seen[<-ends] = true
			}
			require.Len(t, seen, 3)
			<-written // it may have failed, when the connection was given up before
			c.Close()
			<-c.Done()
		})
		require.Zero(t, pool.InUse())
		require.Empty(t, ends)
		require.LessOrEqual(t, got, int64(8*asked+1<<20+32*len(answers)))
	})
}

// FuzzSession takes steps and answers from the input: whatever a broker answers, a request says everything or what changed,
// and names what is wanted and nothing else.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 8, 5, 0, 1, 2, 2, 8, 5, 0, 2, 3, 3, 4, 1, 8, 5, 0, 1})
	f.Add([]byte{0, 0, 1, 1, 8, 5, 7, 1, 8, 0, 0, 1, 9, 9, 8, 5, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		type tp struct {
			topic string
			p     int32
		}
		var s Session
		var req FetchRequest
		wanted := map[tp]FetchPartition{}
		at := 0
		next := func() byte {
			if at++; at > len(in) {
				return 0
			}
			return in[at-1]
		}
		got := allocated(func() {
			for at < len(in) {
				op, which := next(), next()
				topic, p := string(rune('a'+which&3)), int32(which>>2&7)
				id := [16]byte{topic[0], which >> 5}
				switch op % 10 {
				case 0, 1, 2:
					fp := FetchPartition{Partition: p, Offset: int64(op)}
					s.Set(topic, id, fp)
					wanted[tp{topic, p}] = fp
				case 3:
					s.Remove(topic, p)
					delete(wanted, tp{topic, p})
				case 4:
					s.Next(&req, int16(6+which%13))
					s.Failed()
				case 5:
					s.Close(&req)
				case 6:
					_, _ = s.Topic(&FetchedPartition{Topic: []byte(topic), TopicID: id})
				default:
					version := int16(6 + which%13)
					s.Next(&req, version)
					named := map[tp]bool{}
					for _, ft := range req.Topics {
						for _, fp := range ft.Partitions {
							k := tp{ft.Name, fp.Partition}
							require.False(t, named[k], "%v twice", k)
							named[k] = true
							require.Equal(t, wanted[k], fp)
							require.Contains(t, wanted, k)
						}
					}
					if req.SessionEpoch <= 0 {
						require.Len(t, named, len(wanted))
						require.Empty(t, req.Forgotten)
					}
					resp := &FetchResponse{Version: version, SessionID: int32(next() % 4), Partitions: make([]FetchedPartition, next()%40)}
					if code := next(); code%3 == 0 {
						resp.ErrorCode = []int16{kerr.FetchSessionIDNotFound.Code, kerr.InvalidFetchSessionEpoch.Code, 99, int16(code)}[code>>2&3]
					}
					s.Answered(resp)
				}
				require.Equal(t, len(wanted), s.Len())
			}
		})
		require.LessOrEqual(t, got, int64(1<<20+32<<10*len(in)), fmt.Sprint(len(in)))
	})
}

// decoding is how much memory an answer may take: a little more than its size.
func decoding(body []byte) int64 { return int64(1<<16 + 32*len(body)) }

// FuzzHostileFetch decodes bytes that claim much; see also FuzzFetchResponse.
func FuzzHostileFetch(f *testing.F) {
	for _, v := range []int16{4, 11, 12, 18} {
		f.Add(v, sampleFetch(v, 3, 20))
	}
	f.Add(int16(18), binary.AppendUvarint(make([]byte, 10), 1<<31-1))
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		v = minFetch + int16(uint16(v)%(maxFetch-minFetch+1))
		got := allocated(func() {
			var r FetchResponse
			_ = r.Decode(v, body, 1000)
		})
		require.LessOrEqual(t, got, decoding(body))
	})
}

// FuzzHostileProduce decodes bytes that claim much; see also FuzzProduceResponse.
func FuzzHostileProduce(f *testing.F) {
	for _, v := range []int16{3, 8, 9, 13} {
		f.Add(v, sampleProduce(v, 3))
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		v = minProduce + int16(uint16(v)%(maxProduce-minProduce+1))
		got := allocated(func() {
			var r ProduceResponse
			_ = r.Decode(v, body, 1000)
		})
		require.LessOrEqual(t, got, decoding(body))
	})
}

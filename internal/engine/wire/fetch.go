package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

const (
	keyFetch       = 1
	minFetch       = 4
	maxFetch       = 18
	flexFetch      = 12
	idFetch        = 13 // topic ids instead of names from here on
	sessionFetch   = 7
	throttledAfter = 8 // before, the broker waits itself before it answers
)

// LastFetchByName is the last version of Fetch with topic names, for FetchRequest.MaxVersion where ids are not known.
const LastFetchByName = idFetch - 1

// FetchRequest asks one broker for records.
type FetchRequest struct {
	// MaxVersion keeps the version down; 0: the highest that both sides know.
	MaxVersion int16
	// MaxWait is how long the broker may wait for MinBytes.
	MaxWait  time.Duration
	MinBytes int32
	// MaxBytes bounds the answer, but for the first batch.
	MaxBytes int32
	// Committed asks for isolation level read_committed: nothing beyond the last stable offset comes, and a list of what
	// was aborted.
	Committed bool
	// SessionID and SessionEpoch are filled by Session.Next; without sessions they are 0 and -1.
	SessionID, SessionEpoch int32
	Topics                  []FetchTopic
	Forgotten               []ForgottenTopic
	// Rack lets the broker name a nearer replica.
	Rack string
	// Answerable is how many partitions the answer may have; more are a fault. 0: as many as Topics has.
	Answerable int
}

// FetchTopic holds what is asked of a topic. Of name and id the version decides which is sent.
type FetchTopic struct {
	Name       string
	ID         [16]byte
	Partitions []FetchPartition
}

// FetchPartition is what is asked of a partition.
type FetchPartition struct {
	Partition int32
	// LeaderEpoch as we know it, -1: not known. A broker that knows another refuses.
	LeaderEpoch int32
	Offset      int64
	MaxBytes    int32
}

// ForgottenTopic holds partitions that are to leave the session.
type ForgottenTopic struct {
	Name       string
	ID         [16]byte
	Partitions []int32
}

func (r *FetchRequest) answerable() int {
	if r.Answerable > 0 {
		return r.Answerable
	}
	n := 0
	for i := range r.Topics {
		n += len(r.Topics[i].Partitions)
	}
	return n
}

// appendTo appends the request's body.
func (r *FetchRequest) appendTo(dst []byte, version int16) []byte {
	flex, byID := version >= flexFetch, version >= idFetch
	if version <= 14 {
		dst = appendInt32(dst, -1) // replica id of a consumer
	}
	dst = appendInt32(dst, int32(r.MaxWait.Milliseconds()))
	dst = appendInt32(dst, r.MinBytes)
	dst = appendInt32(dst, r.MaxBytes)
	if r.Committed {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	if version >= sessionFetch {
		dst = appendInt32(dst, r.SessionID)
		dst = appendInt32(dst, r.SessionEpoch)
	}
	dst = appendLength(dst, len(r.Topics), flex)
	for i := range r.Topics {
		t := &r.Topics[i]
		if byID {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendString(dst, t.Name, flex)
		}
		dst = appendLength(dst, len(t.Partitions), flex)
		for k := range t.Partitions {
			p := &t.Partitions[k]
			dst = appendInt32(dst, p.Partition)
			if version >= 9 {
				dst = appendInt32(dst, p.LeaderEpoch)
			}
			dst = appendInt64(dst, p.Offset)
			if version >= 12 {
				dst = appendInt32(dst, -1) // last fetched epoch: followers'
			}
			if version >= 5 {
				dst = appendInt64(dst, -1) // log start: followers'
			}
			dst = appendInt32(dst, p.MaxBytes)
			dst = appendTags(dst, flex)
		}
		dst = appendTags(dst, flex)
	}
	if version >= sessionFetch {
		dst = appendLength(dst, len(r.Forgotten), flex)
		for i := range r.Forgotten {
			t := &r.Forgotten[i]
			if byID {
				dst = append(dst, t.ID[:]...)
			} else {
				dst = appendString(dst, t.Name, flex)
			}
			dst = appendLength(dst, len(t.Partitions), flex)
			for _, p := range t.Partitions {
				dst = appendInt32(dst, p)
			}
			dst = appendTags(dst, flex)
		}
	}
	if version >= 11 {
		dst = appendString(dst, r.Rack, flex)
	}
	return appendTags(dst, flex)
}

// FetchResponse is an answer whose topics and records lie in a pooled buffer. Release it when it has been read; who still
// needs records then has retained its Buffer.
type FetchResponse struct {
	// Version that was spoken; from 13 on partitions have a TopicID instead of a Topic.
	Version int16
	// Throttle is how long the broker will not serve this connection.
	Throttle  time.Duration
	ErrorCode int16
	SessionID int32
	// Partitions in the broker's order.
	Partitions []FetchedPartition
	// Nodes are the addresses of leaders that partitions name.
	Nodes []Node
	// Buffer holds what Partitions point to; nil in answers decoded by hand.
	Buffer *Buffer

	aborted []batch.AbortedTransaction
	pool    *Pool
}

// FetchedPartition is the answer for one partition.
type FetchedPartition struct {
	Topic     []byte // in the buffer
	TopicID   [16]byte
	Partition int32
	ErrorCode int16
	// HighWatermark, LastStable and LogStart are offsets; -1 where the broker or its version does not say.
	HighWatermark, LastStable, LogStart int64
	// PreferredReplica is a nearer broker to ask from now on, -1: none.
	PreferredReplica int32
	Leader           Leader
	Aborted          []batch.AbortedTransaction
	// Records are batches (batch.Slice), in the buffer.
	Records []byte
}

// Release gives the answer back; it must not be used after.
func (r *FetchResponse) Release() {
	if b := r.Buffer; b != nil {
		r.Buffer = nil
		b.Release()
	}
	clear(r.Partitions)
	if p := r.pool; p != nil {
		r.pool = nil
		p.putResponse(r)
	}
}

// Decode decodes the body of an answer in place: r points into body. At most most partitions are accepted. Errors
// wrap ErrAnswer.
func (r *FetchResponse) Decode(version int16, body []byte, most int) error {
	r.Version, r.Throttle, r.ErrorCode, r.SessionID = version, 0, 0, 0
	r.Partitions, r.Nodes, r.aborted = r.Partitions[:0], r.Nodes[:0], r.aborted[:0]
	flex := version >= flexFetch
	c := cursor{b: body, flex: flex}
	r.Throttle = time.Duration(max(0, c.int32())) * time.Millisecond
	if version >= sessionFetch {
		r.ErrorCode = c.int16()
		r.SessionID = c.int32()
	}
	for topics := c.array(); topics > 0 && c.ok(); topics-- {
		var name []byte
		var id [16]byte
		if version >= idFetch {
			id = c.uuid()
		} else if name = c.str(); name == nil {
			c.fail()
		}
		for n := c.array(); n > 0 && c.ok(); n-- {
			if len(r.Partitions) == most {
				return fmt.Errorf("%w: more than %d partitions in a fetch", ErrAnswer, most)
			}
			r.Partitions = append(r.Partitions, FetchedPartition{Topic: name, TopicID: id, LogStart: -1, PreferredReplica: -1, Leader: noLeader})
			r.partition(&c, version, &r.Partitions[len(r.Partitions)-1])
		}
		c.tags()
	}
	if flex {
		for n := c.uvarint(); n > 0 && c.ok(); n-- {
			if c.uvarint() == 0 {
				r.Nodes = c.nodes(r.Nodes[:0])
			} else {
				c.span(c.uvarint())
			}
		}
	}
	if c.bad {
		return fmt.Errorf("%w: fetch, version %d, %d bytes", ErrAnswer, version, len(body))
	}
	return nil
}

func (r *FetchResponse) partition(c *cursor, version int16, p *FetchedPartition) {
	p.Partition = c.int32()
	p.ErrorCode = c.int16()
	p.HighWatermark = c.int64()
	p.LastStable = c.int64()
	if version >= 5 {
		p.LogStart = c.int64()
	}
	first := len(r.aborted)
	for n := c.array(); n > 0 && c.ok(); n-- {
		r.aborted = append(r.aborted, batch.AbortedTransaction{ProducerID: c.int64(), FirstOffset: c.int64()})
		c.tags()
	}
	// Slices of an array that may have moved: the entries stay readable where they were.
	p.Aborted = r.aborted[first:len(r.aborted):len(r.aborted)]
	if version >= 11 {
		p.PreferredReplica = c.int32()
	}
	p.Records = c.bytes()
	if !c.flex {
		return
	}
	for n := c.uvarint(); n > 0 && c.ok(); n-- {
		switch c.uvarint() {
		case 1:
			p.Leader = c.leader()
		case 0, 2: // an epoch that diverges, a snapshot: an offset and an epoch, for followers
			in := c.nested()
			in.span(12)
			in.tags()
			if in.bad {
				c.fail()
			}
		default:
			c.span(c.uvarint())
		}
	}
}

// frameFetch encodes a whole frame.
func frameFetch(dst []byte, r *FetchRequest, version int16, correlation int32, clientID string) []byte {
	dst = appendHeader(dst, keyFetch, version, correlation, clientID, version >= flexFetch)
	dst = r.appendTo(dst, version)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	return dst
}

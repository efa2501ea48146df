package wire

import (
	"encoding/binary"
	"fmt"
	"time"
)

const (
	keyProduce           = 0
	minProduce           = 3
	maxProduce           = 13
	flexProduce          = 9
	idProduce            = 13
	produceThrottleAfter = 6
)

// LastProduceByName is the last version of Produce with topic names, for ProduceRequest.MaxVersion.
const LastProduceByName = idProduce - 1

// ProduceRequest writes batches through one broker, with acks = all.
type ProduceRequest struct {
	// MaxVersion keeps the version down; 0: the highest that both sides know. From 12 on a transactional batch adds its
	// partition to the transaction, which needs transaction.version 2.
	MaxVersion int16
	// TransactionalID is "" outside of transactions.
	TransactionalID string
	// Timeout is how long the broker waits for its replicas.
	Timeout time.Duration
	Topics  []ProduceTopic
	// May is asked when it is the request's turn to be written, behind the requests of others on the connection, and must
	// not wait. When it says no, nothing is sent, with ErrWithheld, and the connection works on. nil: it may.
	May func() bool
}

// ProduceTopic holds what goes to a topic. Of name and id the version decides which is sent.
type ProduceTopic struct {
	Name       string
	ID         [16]byte
	Partitions []ProducePartition
}

// ProducePartition is one batch for one partition; a request must not name a partition twice. Records are sent from where
// they are, so they must not change until the request's end.
type ProducePartition struct {
	Partition int32
	Records   []byte
}

// vector is a frame in pieces: encoded parts and batches in turn.
type vector struct {
	frame []byte   // the encoded parts, one behind the other
	cuts  []int    // where a batch stands between them
	parts [][]byte // the frame and the batches in order
	size  int
}

// produce encodes a whole frame.
func (v *vector) produce(r *ProduceRequest, version int16, correlation int32, clientID string) {
	flex, byID := version >= flexProduce, version >= idProduce
	dst := appendHeader(v.frame[:0], keyProduce, version, correlation, clientID, flex)
	v.cuts = v.cuts[:0]
	batches := 0
	switch {
	case r.TransactionalID != "":
		dst = appendString(dst, r.TransactionalID, flex)
	case flex:
		dst = append(dst, 0)
	default:
		dst = append(dst, 0xff, 0xff)
	}
	dst = append(dst, 0xff, 0xff) // acks
	dst = appendInt32(dst, int32(r.Timeout.Milliseconds()))
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
			dst = appendLength(dst, len(p.Records), flex)
			v.cuts = append(v.cuts, len(dst))
			batches += len(p.Records)
			dst = appendTags(dst, flex)
		}
		dst = appendTags(dst, flex)
	}
	dst = appendTags(dst, flex)
	v.frame, v.size = dst, len(dst)+batches
	binary.BigEndian.PutUint32(dst, uint32(v.size-4))
	v.parts = v.parts[:0]
	at, cut := 0, 0
	for i := range r.Topics {
		for k := range r.Topics[i].Partitions {
			v.parts = append(v.parts, dst[at:v.cuts[cut]], r.Topics[i].Partitions[k].Records)
			at = v.cuts[cut]
			cut++
		}
	}
	if at < len(dst) {
		v.parts = append(v.parts, dst[at:])
	}
}

// single makes a frame of one piece.
func (v *vector) single(frame []byte) {
	v.frame, v.size = frame, len(frame)
	v.parts = append(v.parts[:0], frame)
}

// forget drops what does not belong to the vector.
func (v *vector) forget() {
	clear(v.parts)
	if cap(v.frame) > 1<<20 {
		v.frame = nil
	}
}

// ProduceResponse is an answer. It and what it points to are valid only until the function that was given it returns.
type ProduceResponse struct {
	// Version that was spoken; from 13 on partitions have a TopicID instead of a Topic.
	Version int16
	// Throttle is how long the broker will not serve this connection.
	Throttle time.Duration
	// Took is how long the broker and the line took for the request: from when it was written and all before it on the
	// connection answered. What others asked for does not count.
	Took       time.Duration
	Partitions []ProducedPartition
	// Nodes are the addresses of leaders that partitions name.
	Nodes []Node

	errors []RecordError
}

// ProducedPartition is the answer for one batch.
type ProducedPartition struct {
	Topic     []byte
	TopicID   [16]byte
	Partition int32
	ErrorCode int16
	// BaseOffset is the first record's offset; for a batch that was there already, the old one, or -1.
	BaseOffset int64
	// AppendTime is in ms, -1 unless the topic has append time.
	AppendTime int64
	// LogStart is an offset, -1 where the version does not say.
	LogStart int64
	// Records are those that the broker objects to.
	Records []RecordError
	// Message explains ErrorCode; nil where nothing was said.
	Message []byte
	Leader  Leader
}

// RecordError says what is wrong with a record of a batch.
type RecordError struct {
	// Index of the record in its batch.
	Index   int32
	Message []byte
}

// Decode decodes the body of an answer in place. At most most partitions are accepted. Errors wrap ErrAnswer.
func (r *ProduceResponse) Decode(version int16, body []byte, most int) error {
	r.Version, r.Throttle, r.Took = version, 0, 0
	r.Partitions, r.Nodes, r.errors = r.Partitions[:0], r.Nodes[:0], r.errors[:0]
	flex := version >= flexProduce
	c := cursor{b: body, flex: flex}
	for topics := c.array(); topics > 0 && c.ok(); topics-- {
		var name []byte
		var id [16]byte
		if version >= idProduce {
			id = c.uuid()
		} else if name = c.str(); name == nil {
			c.fail()
		}
		for n := c.array(); n > 0 && c.ok(); n-- {
			if len(r.Partitions) == most {
				return fmt.Errorf("%w: more than %d partitions in a produce answer", ErrAnswer, most)
			}
			r.Partitions = append(r.Partitions, ProducedPartition{Topic: name, TopicID: id, LogStart: -1, Leader: noLeader})
			r.partition(&c, version, &r.Partitions[len(r.Partitions)-1])
		}
		c.tags()
	}
	r.Throttle = time.Duration(max(0, c.int32())) * time.Millisecond
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
		return fmt.Errorf("%w: produce, version %d, %d bytes", ErrAnswer, version, len(body))
	}
	return nil
}

func (r *ProduceResponse) partition(c *cursor, version int16, p *ProducedPartition) {
	p.Partition = c.int32()
	p.ErrorCode = c.int16()
	p.BaseOffset = c.int64()
	p.AppendTime = c.int64()
	if version >= 5 {
		p.LogStart = c.int64()
	}
	if version >= 8 {
		first := len(r.errors)
		for n := c.array(); n > 0 && c.ok(); n-- {
			r.errors = append(r.errors, RecordError{Index: c.int32(), Message: c.str()})
			c.tags()
		}
		p.Records = r.errors[first:len(r.errors):len(r.errors)]
		p.Message = c.str()
	}
	if !c.flex {
		return
	}
	for n := c.uvarint(); n > 0 && c.ok(); n-- {
		if c.uvarint() == 0 {
			p.Leader = c.leader()
		} else {
			c.span(c.uvarint())
		}
	}
}

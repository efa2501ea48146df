package hub

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// TP is a topic-partition.
type TP struct {
	Topic     string
	Partition int32
}

// Want asks for what a partition holds from an offset on. It stays until there is an answer, or it is replaced or dropped:
// while there is nothing to read it costs nothing.
type Want struct {
	TP TP
	// TopicID as the metadata have it; zero where brokers have none.
	TopicID [16]byte
	Offset  int64
	// MaxBytes bounds what an answer holds of the partition, but for the first batch; 0 means 1 MiB.
	MaxBytes int32
	// Tag comes back with the answer.
	Tag uint64
	// More: the partition is known to hold more, so that the answer has records and comes at once.
	More bool
}

// Owner takes what a Reader's wants bring. It is called without locks, from several goroutines at a time, and may set new
// wants from within: these are asked for with the next request. It should be quick, since others wait for their answers;
// what takes longer belongs into a goroutine of its own.
type Owner interface {
	// Fetched takes the answer to some of the wants. The owner calls its Release.
	Fetched(a *Answer)
	// Lost says that a broker was not reached or did not answer while wants were left with it. They stay, and it is tried
	// again with back-off; but the partitions may have another leader by now.
	Lost(broker int32, err error)
}

// Answer is what one broker answered to wants of one Reader.
type Answer struct {
	// Broker is who answered.
	Broker int32
	Parts  []Part
	// Unclaimed counts the bytes of record batches that came for wants which had been dropped or replaced meanwhile. There
	// may be no Parts beside it.
	Unclaimed int
	from      *exchange
}

// Part is the answer to one want.
type Part struct {
	Want Want
	// Kept: there were neither records nor an error, but other offsets than known before. The want stays.
	Kept bool
	// Fetched is what the broker said. Records and aborted transactions lie in memory of the answer.
	Fetched wire.FetchedPartition
	// Buffer holds the records, which are the owner's alone: it may change them, and retain the buffer for longer than the
	// answer. What lies beside them in it is others'.
	Buffer *wire.Buffer
	copied bool // Buffer is, or is to be, this part's own
}

// Release gives the answer back, once. Nothing of it may be used after, but for buffers that were retained.
func (a *Answer) Release() {
	for i := range a.Parts {
		if p := &a.Parts[i]; p.copied {
			p.Buffer.Release()
		}
	}
	a.from.release()
}

// exchange is a response that several owners read.
type exchange struct {
	resp *wire.FetchResponse
	refs atomic.Int32
}

func (x *exchange) release() {
	if x.refs.Add(-1) == 0 {
		x.resp.Release()
	}
}

// Reader leaves wants of one task with the fetchers of a cluster's brokers. Its methods are safe for concurrent use.
type Reader struct {
	s         *shared
	committed bool
	owner     Owner
	wants     map[TP]*want // guarded by the lock of the fetchers, as follows is
	follows   map[TP]*follow
	closed    bool
}

// want is a Want with where it is.
type want struct {
	Want
	reader *Reader
	slot   *slot
	leader int32
	// pending: in the fetcher's list of those that the poll does not cover. onLeader: the leader itself is to answer, so the
	// request must not name a rack.
	pending, onLeader bool
	// express: a request on the second connection asks for it. leaving: it goes when what is under way was answered.
	express, leaving bool
}

// Reader makes a Reader; committed: read_committed. Its wants go with the membership: call Close before Leave.
func (s *shared) Reader(committed bool, owner Owner) *Reader {
	return &Reader{s: s, committed: committed, owner: owner, wants: map[TP]*want{}, follows: map[TP]*follow{}}
}

// Set leaves a want with the broker that leads the partition, in place of the partition's former one.
func (r *Reader) Set(leader int32, w Want) {
	if w.MaxBytes <= 0 {
		w.MaxBytes = defaultPartitionBytes
	}
	r.s.fetching.Lock()
	defer r.s.fetching.Unlock()
	if r.closed || r.s.closed {
		return
	}
	old := r.wants[w.TP]
	broker := r.brokerFor(leader, w.TP, time.Now())
	if old != nil {
		if old.slot.fetcher.broker == broker && old.Offset == w.Offset && old.TopicID == w.TopicID && old.MaxBytes == w.MaxBytes {
			old.Tag, old.More, old.leader, old.leaving = w.Tag, w.More, leader, false
			return
		}
		old.slot.fetcher.remove(old)
	}
	n := &want{Want: w, reader: r, leader: leader}
	n.onLeader = broker == leader && r.refused(w.TP, time.Now())
	r.wants[w.TP] = n
	r.s.fetcher(broker, r.committed).add(n)
}

// Withdraw takes a want back, but for an answer under way: what the broker was asked for will be read in any case, so it
// still comes to the owner, and the want ends with it, or when there was nothing to read. A Set before makes it stay.
func (r *Reader) Withdraw(tp TP) {
	r.s.fetching.Lock()
	defer r.s.fetching.Unlock()
	switch w := r.wants[tp]; {
	case w == nil:
	case w.slot.fetcher.underWay(w):
		w.leaving = true
		w.slot.fetcher.leaving = append(w.slot.fetcher.leaving, w)
	default:
		r.drop(tp)
	}
}

// Drop takes a want back. An answer that is on its way to the owner already still comes; one under way from the broker is
// thrown away, and told as Answer.Unclaimed.
func (r *Reader) Drop(tp TP) {
	r.s.fetching.Lock()
	defer r.s.fetching.Unlock()
	r.drop(tp)
}

func (r *Reader) drop(tp TP) {
	if w := r.wants[tp]; w != nil {
		w.slot.fetcher.remove(w)
		delete(r.wants, tp)
	}
}

// Close takes all wants back and takes none any more.
func (r *Reader) Close() {
	r.s.fetching.Lock()
	defer r.s.fetching.Unlock()
	r.closed = true
	for tp := range r.wants {
		r.drop(tp)
	}
	clear(r.follows)
}

// follow is where a partition is read instead of at its leader (KIP-392).
type follow struct {
	broker int32 // -1: at the leader, whatever it says
	until  time.Time
}

const (
	// followFor is how long a follower is read before the leader is asked again.
	followFor = 5 * time.Minute
	// stayFor is how long the leader is read after a follower failed.
	stayFor = 2 * time.Second
)

// brokerFor is who is asked for a partition; the lock is held.
func (r *Reader) brokerFor(leader int32, tp TP, now time.Time) int32 {
	f := r.follows[tp]
	switch {
	case f == nil:
		return leader
	case now.After(f.until):
		delete(r.follows, tp)
		return leader
	case f.broker < 0:
		return leader
	}
	return f.broker
}

// refused tells that the leader itself is to be read; the lock is held.
func (r *Reader) refused(tp TP, now time.Time) bool {
	f := r.follows[tp]
	return f != nil && f.broker < 0 && now.Before(f.until)
}

// redirect sends a want elsewhere after what a broker answered: to the follower that the leader names, or back to the
// leader after an error of a follower. False: the answer is for the owner; it is not for one who wants the leader's own and
// gets a follower's name. The lock is held.
func (w *want) redirect(broker int32, p *wire.FetchedPartition, known func(int32) bool) bool {
	r, now := w.reader, time.Now()
	switch code := kerr.ErrorForCode(p.ErrorCode); {
	case code == nil && p.PreferredReplica >= 0 && p.PreferredReplica != broker && len(p.Records) == 0:
		if w.onLeader {
			return true // the rack was named for others; the next poll names none
		}
		r.follows[w.TP] = &follow{p.PreferredReplica, now.Add(followFor)}
		if !known(p.PreferredReplica) {
			r.follows[w.TP] = &follow{-1, now.Add(stayFor)}
		}
	case code != nil && broker != w.leader:
		// A follower may not have yet what the leader has shown already.
		r.follows[w.TP] = &follow{-1, now.Add(stayFor)}
	default:
		return false
	}
	r.place(w, now)
	return true
}

// place puts a want where it belongs now; the lock is held.
func (r *Reader) place(w *want, now time.Time) {
	w.slot.fetcher.remove(w)
	if w.leaving {
		delete(r.wants, w.TP)
		return
	}
	n := &want{Want: w.Want, reader: r, leader: w.leader, onLeader: r.refused(w.TP, now)}
	r.wants[w.TP] = n
	r.s.fetcher(r.brokerFor(w.leader, w.TP, now), r.committed).add(n)
}

package wire

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sessionState says what the next request of a session is.
type sessionState uint8

const (
	// opening: everything is asked for, and a new session is wished.
	opening sessionState = iota
	// reopening: everything is asked for, and the broker may forget the session that it may still have.
	reopening
	// incremental: only what changed is told.
	incremental
)

// Session is a fetch session (KIP-227) with one broker: requests name only partitions that changed, and answers only
// those with something new, so that idle partitions cost nothing. It is a state machine without I/O:
//
//   - opening: Next asks for every partition, id 0, epoch 0. An answer with an id: incremental, or reopening if it lacks
//     partitions. Without one, the broker has no room: opening again.
//   - incremental: Next names changes, with a growing epoch. An answer: incremental. The error that the id is unknown, or
//     an answer without an id: opening. Other errors, another id, and a lost answer: reopening.
//   - reopening: like opening, but with the old id, which the broker then forgets.
//
// A session outlives its connection. One request at a time: Next, then Answered or Failed. A broker without sessions
// (Fetch before version 7) is asked for everything each time. Not safe for concurrent use.
type Session struct {
	state     sessionState
	id, epoch int32
	byID      bool
	full      bool // the request under way asks for everything
	lacked    bool // its answer, or that of the last one, left some of it out

	topics map[string]*sessionTopic
	byUUID map[[16]byte]*sessionTopic
	order  []*sessionTopic
	turn   int
	dirty  []*sessionTopic
	count  int // partitions wanted
	known  int // partitions that the broker was told, wanted or not
}

type sessionTopic struct {
	name  string
	id    [16]byte
	parts map[int32]*sessionPart
	order []*sessionPart
	dirty []*sessionPart
	// forget are partitions that the broker knows and that are not wanted any more.
	forget []int32
	listed bool // in dirty of the session
}

type sessionPart struct {
	want   FetchPartition
	listed bool // in dirty of the topic
	told   bool // the broker's session has it
}

// Set adds a partition or changes what is asked of it. id is that of its topic; another id than before reopens the session.
func (s *Session) Set(topic string, id [16]byte, p FetchPartition) {
	if s.topics == nil {
		s.topics, s.byUUID = map[string]*sessionTopic{}, map[[16]byte]*sessionTopic{}
	}
	t := s.topics[topic]
	if t == nil {
		t = &sessionTopic{name: topic, id: id, parts: map[int32]*sessionPart{}}
		s.topics[topic], s.byUUID[id] = t, t
		s.order = append(s.order, t)
	}
	if t.id != id {
		if s.byUUID[t.id] == t {
			delete(s.byUUID, t.id)
		}
		t.id = id
		s.byUUID[id] = t
		s.reopen()
	}
	part := t.parts[p.Partition]
	if part == nil {
		part = &sessionPart{want: p}
		t.parts[p.Partition] = part
		t.order = append(t.order, part)
		s.count++
		if i := slices.Index(t.forget, p.Partition); i >= 0 {
			// The broker still has it. A request that both names and forgets a partition loses it.
			t.forget = slices.Delete(t.forget, i, i+1)
			part.told = true
		}
	} else if part.want == p {
		return
	}
	part.want = p
	s.markDirty(t, part)
}

func (s *Session) markDirty(t *sessionTopic, part *sessionPart) {
	if part != nil && !part.listed {
		part.listed = true
		t.dirty = append(t.dirty, part)
	}
	if !t.listed {
		t.listed = true
		s.dirty = append(s.dirty, t)
	}
}

// Remove takes a partition out: it is not asked for any more. Unknown ones are ignored.
func (s *Session) Remove(topic string, partition int32) {
	t := s.topics[topic]
	if t == nil || t.parts[partition] == nil {
		return
	}
	part := t.parts[partition]
	delete(t.parts, partition)
	t.order = slices.DeleteFunc(t.order, func(p *sessionPart) bool { return p == part })
	if part.listed {
		t.dirty = slices.DeleteFunc(t.dirty, func(p *sessionPart) bool { return p == part })
	}
	s.count--
	if part.told {
		t.forget = append(t.forget, partition)
		s.markDirty(t, nil)
	}
	if len(t.parts) == 0 && len(t.forget) == 0 {
		s.drop(t)
	}
}

// drop removes a topic of which neither we nor the broker have a partition.
func (s *Session) drop(t *sessionTopic) {
	delete(s.topics, t.name)
	if s.byUUID[t.id] == t {
		delete(s.byUUID, t.id)
	}
	s.order = slices.DeleteFunc(s.order, func(o *sessionTopic) bool { return o == t })
	if t.listed {
		s.dirty = slices.DeleteFunc(s.dirty, func(o *sessionTopic) bool { return o == t })
	}
}

// Len is the number of partitions asked for.
func (s *Session) Len() int { return s.count }

// reopen gives the session up: the next request says everything anew.
func (s *Session) reopen() {
	if s.state == incremental {
		s.state = reopening
	}
}

// Next fills the session's part of a request that is sent at a version: SessionID, SessionEpoch, Topics, Forgotten and
// Answerable, whose memory it uses again. After it, Answered or Failed must be called before the next Next.
func (s *Session) Next(r *FetchRequest, version int16) {
	if byID := version >= idFetch; byID != s.byID {
		s.byID = byID
		s.reopen()
	}
	r.Topics, r.Forgotten = r.Topics[:0], r.Forgotten[:0]
	switch {
	case version < sessionFetch:
		s.state = opening
		r.SessionID, r.SessionEpoch = 0, -1
	case s.state == incremental:
		r.SessionID, r.SessionEpoch = s.id, s.epoch
	case s.state == reopening:
		r.SessionID, r.SessionEpoch = s.id, 0
	default:
		r.SessionID, r.SessionEpoch = 0, 0
	}
	if s.full = s.state != incremental; s.full {
		s.everything(r)
	} else {
		s.changes(r)
	}
	r.Answerable = max(1, s.known)
}

func (s *Session) everything(r *FetchRequest) {
	s.known = 0
	for _, t := range slices.Clone(s.order) {
		t.forget = t.forget[:0]
		if len(t.parts) == 0 {
			s.drop(t)
		}
	}
	s.clean()
	// Brokers serve partitions in the order of the request until it is full, so each time another one comes first.
	s.turn++
	for i := range s.order {
		t := s.order[(i+s.turn)%len(s.order)]
		ft := nextTopic(r, t)
		for k := range t.order {
			part := t.order[(k+s.turn/len(s.order))%len(t.order)]
			part.told = true
			ft.Partitions = append(ft.Partitions, part.want)
		}
		s.known += len(t.order)
	}
}

func (s *Session) changes(r *FetchRequest) {
	for _, t := range s.dirty {
		if len(t.dirty) > 0 {
			ft := nextTopic(r, t)
			for _, part := range t.dirty {
				if !part.told {
					part.told = true
					s.known++
				}
				ft.Partitions = append(ft.Partitions, part.want)
			}
		}
		if len(t.forget) > 0 {
			f := ForgottenTopic{}
			if n := len(r.Forgotten); n < cap(r.Forgotten) {
				f = r.Forgotten[:n+1][n]
			}
			f.Name, f.ID, f.Partitions = t.name, t.id, append(f.Partitions[:0], t.forget...)
			r.Forgotten = append(r.Forgotten, f)
			s.known -= len(t.forget)
			t.forget = t.forget[:0]
		}
	}
	gone := 0
	for _, t := range s.dirty {
		if len(t.parts) == 0 {
			gone++
		}
	}
	s.clean()
	for i := 0; gone > 0 && i < len(s.order); {
		if t := s.order[i]; len(t.parts) == 0 {
			s.drop(t)
			gone--
			continue
		}
		i++
	}
}

// clean marks everything as told.
func (s *Session) clean() {
	for _, t := range s.dirty {
		for _, part := range t.dirty {
			part.listed = false
		}
		clear(t.dirty)
		t.dirty, t.listed = t.dirty[:0], false
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
}

// nextTopic appends a topic to the request, with the memory that was there.
func nextTopic(r *FetchRequest, t *sessionTopic) *FetchTopic {
	n := len(r.Topics)
	if n < cap(r.Topics) {
		r.Topics = r.Topics[:n+1]
	} else {
		r.Topics = append(r.Topics, FetchTopic{})
	}
	ft := &r.Topics[n]
	ft.Name, ft.ID, ft.Partitions = t.name, t.id, ft.Partitions[:0]
	return ft
}

// Topic is the name of an answer's topic, by name or id; false when the session does not have it.
func (s *Session) Topic(p *FetchedPartition) (string, bool) {
	var t *sessionTopic
	if s.byID {
		t = s.byUUID[p.TopicID]
	} else {
		t = s.topics[string(p.Topic)]
	}
	if t == nil {
		return "", false
	}
	return t.name, true
}

// Answered takes the answer to the last Next. False means that the broker does not have the session or lost track of it:
// nothing of the answer may be used, and the next request begins anew.
func (s *Session) Answered(r *FetchResponse) bool {
	s.lacked = false
	if r.ErrorCode != 0 {
		if r.ErrorCode == kerr.FetchSessionIDNotFound.Code {
			s.state = opening
		} else {
			s.failed()
		}
		return false
	}
	if r.Version < sessionFetch {
		return true
	}
	s.lacked = s.full && len(r.Partitions) < s.known
	switch {
	case r.SessionID == 0:
		// No room on the broker, or it closed the session: what it answered counts.
		s.state = opening
	case s.lacked:
		// A partition that is missing here might never be told again: what the broker answered counts, its session does not.
		// It is named in the next request, or they would fill the broker's cache.
		s.state, s.id = reopening, r.SessionID
	case s.full:
		s.state, s.id, s.epoch = incremental, r.SessionID, 1
	case r.SessionID != s.id:
		s.failed()
		return false
	case s.epoch == 1<<31-1:
		s.epoch = 1
	default:
		s.epoch++
	}
	return true
}

// Lacked tells that the last answer to a request for everything left partitions out. What it holds counts, and the next
// request asks for everything again: who asks on at once may go in a circle.
func (s *Session) Lacked() bool { return s.lacked }

// Failed says that the last Next got no answer, or was not sent.
func (s *Session) Failed() {
	s.failed()
}

// failed: it is not known what the broker's session has.
func (s *Session) failed() {
	if s.state != opening {
		s.state = reopening
	}
}

// Close fills a request that ends the session on the broker; false when there is none to end. The answer does not matter.
func (s *Session) Close(r *FetchRequest) bool {
	if s.state == opening {
		return false
	}
	r.SessionID, r.SessionEpoch = s.id, -1
	r.Topics, r.Forgotten, r.Answerable = r.Topics[:0], r.Forgotten[:0], 1
	s.state = opening
	return true
}

package hub

import (
	"slices"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const defaultPartitionBytes = 1 << 20

// slot is what is wanted of one partition at one broker.
type slot struct {
	fetcher *fetcher
	tp      TP
	wants   []*want
	// What the session asks for, if in: since the poll of that number, and until it is changed or taken out before another
	// one.
	in      bool
	asked   int64
	id      [16]byte
	bytes   int32
	since   uint64
	touched bool    // in the fetcher's list
	asker   *Reader // whose want is asked for
}

// covers tells whether the poll under way will answer a want.
func (f *fetcher) covers(w *want) bool {
	s := w.slot
	return f.polling && s.in && s.since <= f.poll && s.asked == w.Offset && s.id == w.TopicID && (f.rackless || !w.onLeader)
}

// underWay tells whether a request that is out asks for what is wanted; the lock is held.
func (f *fetcher) underWay(w *want) bool { return w.express || f.covers(w) }

// sweep ends the wants that stayed only for an answer under way, once there is none any more; the lock is held.
func (f *fetcher) sweep() {
	f.leaving = slices.DeleteFunc(f.leaving, func(w *want) bool {
		if !w.leaving || w.gone() {
			return true
		}
		if f.underWay(w) {
			return false
		}
		w.reader.drop(w.TP)
		return true
	})
}

// swept is sweep without the lock.
func (f *fetcher) swept() {
	f.s.fetching.Lock()
	defer f.s.fetching.Unlock()
	f.sweep()
}

// add takes a want; the lock is held.
func (f *fetcher) add(w *want) {
	s := f.slots[w.TP]
	if s == nil {
		s = &slot{fetcher: f, tp: w.TP}
		f.slots[w.TP] = s
	}
	w.slot = s
	s.wants = append(s.wants, w)
	f.count++
	if w.TopicID == [16]byte{} {
		f.nameless++
	}
	if w.onLeader {
		f.leaders++
	}
	f.touch(s)
	if !f.polling {
		signal(f.wake)
	} else if !f.covers(w) {
		f.suspend(w)
	}
}

// suspend puts a want on the list for the second connection; the lock is held.
func (f *fetcher) suspend(w *want) {
	if !w.pending {
		w.pending = true
		f.pending = append(f.pending, w)
	}
	signal(f.hurry)
}

// remove takes a want out, answered or not; the lock is held.
func (f *fetcher) remove(w *want) {
	s := w.slot
	i := slices.Index(s.wants, w)
	if i < 0 {
		return
	}
	s.wants = slices.Delete(s.wants, i, i+1)
	f.count--
	if w.TopicID == [16]byte{} {
		f.nameless--
	}
	if w.onLeader {
		f.leaders--
	}
	f.touch(s)
}

// gone tells that a want was taken out.
func (w *want) gone() bool { return !slices.Contains(w.slot.wants, w) }

// touch has the session brought up to date before the next poll; the lock is held.
func (f *fetcher) touch(s *slot) {
	if !s.touched {
		s.touched = true
		f.touched = append(f.touched, s)
	}
}

// update brings the session up to date with what is wanted, and says what it cannot cover; the lock is held.
func (f *fetcher) update() {
	next := f.poll + 1
	for _, w := range f.pending { // what kept them out of the session may be over
		f.touch(w.slot)
	}
	for _, s := range f.touched {
		s.touched = false
		w := s.choose(f.ids)
		if w != nil && w.express && w.More {
			w = nil // it is answered at once; asked for by the poll too, the same would be read twice
		}
		if w == nil {
			if s.in {
				f.session.Remove(s.tp.Topic, s.tp.Partition)
				f.leaveTopic(s)
				s.in = false
			}
			if len(s.wants) == 0 && f.slots[s.tp] == s { // else another one has its place already
				delete(f.slots, s.tp)
			}
		} else if !s.in || s.asked != w.Offset || s.id != w.TopicID || s.bytes != w.MaxBytes {
			if s.in {
				f.leaveTopic(s)
			}
			s.in, s.asked, s.id, s.bytes, s.since, s.asker = true, w.Offset, w.TopicID, w.MaxBytes, next, w.reader
			f.joinTopic(s)
			f.session.Set(s.tp.Topic, w.TopicID, wire.FetchPartition{
				Partition: s.tp.Partition, LeaderEpoch: -1, Offset: w.Offset, MaxBytes: w.MaxBytes,
			})
		}
		for _, w := range s.wants {
			if !s.in || s.asked != w.Offset || s.id != w.TopicID {
				f.suspend(w)
			}
		}
	}
	clear(f.touched)
	f.touched = f.touched[:0]
}

// choose is the want that the session should ask for: what it asks for already if anybody wants it, else the one that is
// farthest, since it is the one that may wait. Wants for a topic of another id than the session has are no choice.
func (s *slot) choose(ids map[string]topicUse) *want {
	var best *want
	for _, w := range s.wants {
		use := ids[s.tp.Topic]
		mine := use.count == 0 || use.id == w.TopicID || use.count == 1 && s.in
		switch {
		case !mine:
		case s.in && w.Offset == s.asked && w.TopicID == s.id && w.MaxBytes == s.bytes:
			return w
		case best == nil || w.Offset > best.Offset:
			best = w
		}
	}
	return best
}

// topicUse is under which id a topic is in the session, and how many partitions of it.
type topicUse struct {
	id    [16]byte
	count int
}

func (f *fetcher) joinTopic(s *slot) {
	f.ids[s.tp.Topic] = topicUse{s.id, f.ids[s.tp.Topic].count + 1}
}

func (f *fetcher) leaveTopic(s *slot) {
	use := f.ids[s.tp.Topic]
	if use.count--; use.count > 0 {
		f.ids[s.tp.Topic] = use
		return
	}
	delete(f.ids, s.tp.Topic)
}

// expired moves wants back to their leaders when the time at a follower is over; the lock is held.
func (f *fetcher) expired(now time.Time) {
	if f.s.hub.cfg.Rack == "" || now.Before(f.expiry) {
		return
	}
	f.expiry = now.Add(time.Second)
	var over []*want
	for _, s := range f.slots {
		for _, w := range s.wants {
			if r := w.reader; w.onLeader != r.refused(w.TP, now) || r.brokerFor(w.leader, w.TP, now) != f.broker {
				over = append(over, w)
			}
		}
	}
	for _, w := range over {
		w.reader.place(w, now)
	}
}

// leave sends wants that are at a follower back to their leaders, since it does not answer; the lock is held.
func (f *fetcher) leave(now time.Time) {
	var over []*want
	for _, s := range f.slots {
		for _, w := range s.wants {
			if w.leader != f.broker {
				over = append(over, w)
			}
		}
	}
	for _, w := range over {
		w.reader.follows[w.TP] = &follow{-1, now.Add(stayFor)}
		w.reader.place(w, now)
	}
}

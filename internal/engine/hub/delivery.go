package hub

import (
	"slices"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// complete answers the wants of a partition that ask from an offset; the lock is held. asker is who had it asked for.
func (f *fetcher) complete(d *delivery, asker *Reader, s *slot, offset int64, id [16]byte, p *wire.FetchedPartition, buffer *wire.Buffer) {
	kept := p.ErrorCode == 0 && len(p.Records) == 0
	first := true
	defer func() {
		if first && len(p.Records) > 0 && asker != nil && !asker.closed {
			d.answer(asker).Unclaimed += len(p.Records)
		}
	}()
	for _, w := range slices.Clone(s.wants) {
		if w.Offset != offset || w.TopicID != id || w.redirect(f.broker, p, f.s.links.known) {
			continue
		}
		if !kept {
			f.remove(w)
			delete(w.reader.wants, w.TP)
		}
		part := Part{Want: w.Want, Kept: kept, Fetched: *p, Buffer: buffer}
		// Owners change what they get, so others get bytes of their own: later, without the lock.
		part.copied = !first && len(p.Records) > 0
		first = false
		d.add(w.reader, part)
	}
}

// delivery collects what an answer holds for each reader.
type delivery struct{ of map[*Reader]*Answer }

func (d *delivery) add(r *Reader, p Part) {
	a := d.answer(r)
	a.Parts = append(a.Parts, p)
}

func (d *delivery) answer(r *Reader) *Answer {
	a := d.of[r]
	if a == nil {
		a = &Answer{}
		if d.of == nil {
			d.of = map[*Reader]*Answer{}
		}
		d.of[r] = a
	}
	return a
}

// deliver hands the answers over; no lock is held.
func (d *delivery) deliver(f *fetcher, resp *wire.FetchResponse) {
	if len(d.of) == 0 {
		resp.Release()
		return
	}
	// Before the first owner has them, who may change them at once.
	for _, a := range d.of {
		for i := range a.Parts {
			a.Parts[i].copy(f.s.hub.Pool())
		}
	}
	x := &exchange{resp: resp}
	x.refs.Store(int32(len(d.of)))
	for r, a := range d.of {
		a.Broker, a.from = f.broker, x
		r.owner.Fetched(a)
	}
}

// copy gives a part that was marked for it bytes of its own.
func (p *Part) copy(pool *wire.Pool) {
	if !p.copied {
		return
	}
	p.Buffer = pool.Get(len(p.Fetched.Records))
	copy(p.Buffer.Bytes(), p.Fetched.Records)
	p.Fetched.Records = p.Buffer.Bytes()
}

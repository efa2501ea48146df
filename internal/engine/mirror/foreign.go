package mirror

import (
	"fmt"
	"time"
)

// oddity is a kind of thing that should not be found in a partition of the target, and is told while copying goes on.
type oddity int

const (
	othersWrote  oddity = iota // records of somebody else between ours
	recordsLost                // some of ours are gone
	identityUsed               // somebody else writes under our producer id
	orderDiffers               // records were taken behind such as were refused
	sentTwice                  // the same, and what was taken will follow once more
)

const (
	// oddityEvery is how often one kind is told of a partition. What is found in between is told together.
	oddityEvery = 10 * time.Second
	// oddityRanges is how many ranges of offsets are named one by one.
	oddityRanges = 32
)

// oddities gathers what is to be told of one kind. The path's lock guards it.
type oddities struct {
	notBefore time.Time
	armed     bool // a timer tells
	found     int  // not told yet
	records   int64
	ranges    [][2]int64
	position  int64
	message   string // of the first
}

// odd tells of something found at from, where to was found or is expected (offsets of the target; of the source for
// sentTwice; -1 unknown): at once, or with others of the kind later, but surely. The lock is held.
func (p *mirror) odd(t *part, kind oddity, from, to int64, message string) {
	if t.odd == nil {
		t.odd = map[oddity]*oddities{}
	}
	o := t.odd[kind]
	if o == nil {
		o = &oddities{}
		t.odd[kind] = o
	}
	o.add(from, to, t.position, message)
	wait := time.Until(o.notBefore)
	if wait <= 0 {
		p.tellOdd(t, kind, o)
		return
	}
	if !o.armed {
		o.armed = true
		time.AfterFunc(wait, func() {
			p.locked(func() {
				o.armed = false
				p.tellOdd(t, kind, o)
			})
		})
	}
}

func (o *oddities) add(from, to, position int64, message string) {
	if o.found++; o.found == 1 {
		o.position, o.message = position, message
	}
	if from >= 0 && to >= 0 {
		o.records += max(from-to, to-from)
	}
	if n := len(o.ranges); n == oddityRanges {
		o.ranges[n-1][1] = to
		return
	}
	o.ranges = append(o.ranges, [2]int64{from, to})
}

// tellOdd tells what was gathered of a kind; the lock is held.
func (p *mirror) tellOdd(t *part, kind oddity, o *oddities) {
	if o.found == 0 || t.state == closed {
		return
	}
	from, to := o.ranges[0][0], o.ranges[len(o.ranges)-1][1]
	if kind == recordsLost { // the largest gap, whichever came last
		for _, r := range o.ranges {
			from, to = max(from, r[0]), min(to, r[1])
		}
	}
	s := Stop{Reason: StopForeign, Offset: o.position, Retry: true, Message: o.message}
	if kind == sentTwice {
		s.Evidence = map[string]any{"repeated_from": from, "repeated_to": to}
	} else {
		s.Evidence = map[string]any{"expected_target_offset": from, "target_offset": to}
	}
	if o.found > 1 {
		s.Message += fmt.Sprintf(" The like was found %d times within seconds, and concerns %d records.", o.found, o.records)
		s.Evidence["times"], s.Evidence["records"], s.Evidence["ranges"] = o.found, o.records, o.ranges
	}
	*o = oddities{notBefore: time.Now().Add(oddityEvery), armed: o.armed}
	p.metrics.stop(s.Reason)
	p.tell(t, func(obs Observer, tp TP) { obs.Stopped(tp, s) })
}

// tellAllOdd tells what else would wait, before the end; the lock is held.
func (p *mirror) tellAllOdd(parts []*part) {
	for _, t := range parts {
		for kind, o := range t.odd {
			p.tellOdd(t, kind, o)
		}
	}
}

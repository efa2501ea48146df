package mm2

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// DefaultMaxRuns is the default bound of an OffsetMap.
const DefaultMaxRuns = 8192

// minMaxRuns keeps thinning meaningful: below it the oldest half has no two neighbours.
const minMaxRuns = 8

// ErrOffsetRange refuses negative offsets, empty runs, and runs that end beyond 2^63-1.
var ErrOffsetRange = errors.New("mm2: offset out of range")

// OffsetMap maps the offsets of one source partition to those of its copy. It holds runs: (S, T, n) says that the
// source records S … S+n-1 are the target records T … T+n-1. Source offsets between runs carry no record that is
// mirrored (control records, aborted or compacted away, filtered); target offsets between runs carry none of ours.
//
// Memory is bounded: when there are too many runs, neighbours in the oldest half are merged into inexact spans, which
// know how many records they hold but not where the holes are. Answers from spans are never later than the true
// position, and say by how many records they may be early.
//
// An OffsetMap is not safe for concurrent use.
type OffsetMap struct {
	maxRuns int
	segs    []segment // ordered, disjoint on both sides
}

// segment covers source offsets [s, s+slen) and target offsets [t, t+tlen), in which between cmin and cmax mirrored
// records lie, in the same order on both sides. In a run all four numbers are equal. first says that s is a record and
// its copy is t; last that s+slen-1 is a record and its copy is t+tlen-1. Lengths may be zero: such a segment is an
// anchor that relates two positions.
type segment struct {
	s, t        int64
	slen, tlen  int64
	cmin, cmax  int64
	first, last bool
}

func newRun(s, t, n int64) segment {
	return segment{s: s, t: t, slen: n, tlen: n, cmin: n, cmax: n, first: n > 0, last: n > 0}
}

func (g segment) send() int64 { return g.s + g.slen }
func (g segment) tend() int64 { return g.t + g.tlen }

// exact: every offset on either side is a record, so that positions correspond one to one.
func (g segment) exact() bool { return g.cmin == g.slen && g.cmin == g.tlen }

// flip exchanges source and target.
func (g segment) flip() segment {
	g.s, g.t, g.slen, g.tlen = g.t, g.s, g.tlen, g.slen
	return g
}

// NewOffsetMap builds an empty map of at most maxRuns runs and spans; 0 stands for DefaultMaxRuns, the smallest bound
// is 8.
func NewOffsetMap(maxRuns int) *OffsetMap {
	if maxRuns <= 0 {
		maxRuns = DefaultMaxRuns
	}
	return &OffsetMap{maxRuns: max(maxRuns, minMaxRuns)}
}

// Run is one piece of the map, for display and tests. Exact is false for spans, where SourceLen and TargetLen may
// differ.
type Run struct {
	Source, Target       int64
	SourceLen, TargetLen int64
	Exact                bool
}

// Runs returns the pieces in order.
func (m *OffsetMap) Runs() []Run {
	out := make([]Run, len(m.segs))
	for i, g := range m.segs {
		out[i] = Run{g.s, g.t, g.slen, g.tlen, g.exact()}
	}
	return out
}

// Len is the number of pieces held.
func (m *OffsetMap) Len() int { return len(m.segs) }

// First returns where the map begins: the first source offset that it can translate, and the target offset for it.
func (m *OffsetMap) First() (source, target int64, ok bool) {
	if len(m.segs) == 0 {
		return 0, 0, false
	}
	return m.segs[0].s, m.segs[0].t, true
}

// End returns where the map ends: the offsets behind the last record known to be mirrored, on both sides.
func (m *OffsetMap) End() (source, target int64, ok bool) {
	if len(m.segs) == 0 {
		return 0, 0, false
	}
	last := m.segs[len(m.segs)-1]
	return last.send(), last.tend(), true
}

// Begin says that mirroring starts at source offset source, and that the first record from there on will be at target
// or later. It lets positions at and behind source translate before any record came, and those in front of the first
// record if that comes later. What the map knew at or behind source or target is dropped.
func (m *OffsetMap) Begin(source, target int64) error { return m.put(newRun(source, target, 0)) }

// Add says that the source record source was mirrored as target.
func (m *OffsetMap) Add(source, target int64) error { return m.AddRun(source, target, 1) }

// AddRun says that n source records from source on, without holes, were mirrored to target and following. Offsets at or
// behind source that were known (the source was read again) and such at or behind target (the target lost its end) are
// dropped first. The error is ErrOffsetRange; the map is unchanged then.
func (m *OffsetMap) AddRun(source, target, n int64) error {
	if n < 1 {
		return fmt.Errorf("%w: run of %d records", ErrOffsetRange, n)
	}
	return m.put(newRun(source, target, n))
}

// Resume says that mirroring went on from the end of the map up to the positions source and target without our knowing
// which records went where (their map was lost with a worker). That stretch becomes a span. On an empty map it is
// Begin; positions at or before the end on either side are ErrOffsetRange.
func (m *OffsetMap) Resume(source, target int64) error {
	s, t, ok := m.End()
	if !ok {
		return m.Begin(source, target)
	}
	if source < s || target < t {
		return fmt.Errorf("%w: resume at %d/%d before the end %d/%d", ErrOffsetRange, source, target, s, t)
	}
	g := segment{s: s, t: t, slen: source - s, tlen: target - t}
	g.cmax = min(g.slen, g.tlen)
	if g.slen == 0 && g.tlen == 0 {
		return nil
	}
	return m.put(g)
}

func (m *OffsetMap) put(g segment) error {
	if g.s < 0 || g.t < 0 || g.s > math.MaxInt64-g.slen || g.t > math.MaxInt64-g.tlen {
		return fmt.Errorf("%w: source %d, target %d, %d records", ErrOffsetRange, g.s, g.t, g.slen)
	}
	m.TruncateSource(g.s)
	m.TruncateTarget(g.t)
	if n := len(m.segs); n > 0 {
		last := &m.segs[n-1]
		if last.exact() && g.exact() && last.send() == g.s && last.tend() == g.t {
			*last = newRun(last.s, last.t, last.slen+g.slen)
			return nil
		}
		// An anchor at the same source offset says less than what comes now.
		if last.slen == 0 && last.s == g.s {
			m.segs = m.segs[:n-1]
		}
	}
	m.segs = append(m.segs, g)
	m.thin()
	return nil
}

// TruncateSource drops what is known at or behind a source offset. Positions up to it still translate.
func (m *OffsetMap) TruncateSource(source int64) {
	i := sort.Search(len(m.segs), func(i int) bool { return m.segs[i].send() > source })
	if i == len(m.segs) {
		return
	}
	g := m.segs[i]
	m.segs = m.segs[:i]
	if g.s < source {
		m.segs = append(m.segs, g.cut(source-g.s))
	} else if i == 0 && g.s == source {
		m.segs = append(m.segs, newRun(g.s, g.t, 0))
	}
}

// TruncateTarget drops what is known at or behind a target offset, which the target has lost.
func (m *OffsetMap) TruncateTarget(target int64) {
	i := sort.Search(len(m.segs), func(i int) bool { return m.segs[i].tend() > target })
	if i == len(m.segs) {
		return
	}
	g := m.segs[i]
	m.segs = m.segs[:i]
	if g.t < target {
		m.segs = append(m.segs, g.flip().cut(target-g.t).flip())
	} else if i == 0 && g.t == target {
		m.segs = append(m.segs, newRun(g.s, g.t, 0))
	}
}

// cut shortens a segment to d > 0 source offsets.
func (g segment) cut(d int64) segment {
	if g.exact() {
		return newRun(g.s, g.t, d)
	}
	targetHoles := g.tlen - g.cmin
	c := g
	c.slen = d
	// Each offset cut off held one record at most.
	c.cmin = max(g.cmin-(g.slen-d), 0)
	if g.first {
		c.cmin = max(c.cmin, 1)
	}
	c.cmax = min(g.cmax, d)
	c.tlen = min(g.tlen, c.cmax+targetHoles)
	c.last = false
	return c
}

// thin merges neighbours pairwise in the oldest half when the bound is passed. Old spans grow as they are merged again,
// so that precision falls off with age, as it should: groups are mostly near the end.
func (m *OffsetMap) thin() {
	if len(m.segs) <= m.maxRuns {
		return
	}
	half := len(m.segs) / 2 &^ 1
	out := m.segs[:0]
	for i := 0; i < half; i += 2 {
		out = append(out, merge(m.segs[i], m.segs[i+1]))
	}
	m.segs = append(out, m.segs[half:]...)
}

// merge joins two neighbours; holes between them become part of the span.
func merge(a, b segment) segment {
	return segment{
		s: a.s, t: a.t,
		slen: b.send() - a.s, tlen: b.tend() - a.t,
		cmin: a.cmin + b.cmin, cmax: a.cmax + b.cmax,
		first: a.first, last: b.last,
	}
}

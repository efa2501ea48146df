package mm2

import "sort"

// NoTranslation says why a position could not be translated.
type NoTranslation string

// The reasons for Translation.OK being false.
const (
	// NothingMirrored: the map is empty.
	NothingMirrored NoTranslation = "nothing mirrored yet"
	// BeforeFirst: the position lies before the first mirrored offset. Translation.Offset is where the map begins on
	// the other side; whether starting there is right depends on what the source still had before it.
	BeforeFirst NoTranslation = "before first mirrored offset"
)

// Translation is the answer for one position.
type Translation struct {
	// Offset is the position on the other side. A reader that starts there misses none of the mirrored records at or
	// behind the position asked for.
	Offset int64
	// OK is false when there is no answer; Reason says why.
	OK     bool
	Reason NoTranslation
	// Exact is true when such a reader also gets no mirrored record from before the position.
	Exact bool
	// Bound is how many records from before the position it may get at most; 0 if Exact.
	Bound int64
}

// Translate translates a committed source offset, that is the next record a group wants, to the target.
//
// position is the source offset that is mirrored next. Behind the last mirrored record there is nothing to translate
// to: the answer is the mirrored end. Up to position it is exact, since no mirrorable record lies between; beyond it
// the group is ahead of the copy and would read again what is mirrored between position and upstream, at most
// upstream-position records.
//
// A position in a source hole translates to the end of the run before it, which is where the next run begins unless
// someone else's records (or transaction markers) stand between.
func (m *OffsetMap) Translate(upstream, position int64) Translation {
	tr, beyond := m.translate(upstream, func(g segment) segment { return g })
	if beyond && upstream > position {
		end, _, _ := m.End()
		tr.Exact, tr.Bound = false, upstream-max(position, end)
	}
	return tr
}

// TranslateBack translates a committed target offset to the source, for the way back. Beyond the mirrored end the
// answer is the source offset behind the last mirrored record, and not exact: what stands there on the target is not
// ours, or not known yet.
func (m *OffsetMap) TranslateBack(downstream int64) Translation {
	tr, beyond := m.translate(downstream, segment.flip)
	if beyond {
		_, end, _ := m.End()
		tr.Exact, tr.Bound = downstream == end, downstream-end
	}
	return tr
}

// translate answers with the view applied to every segment. beyond tells that pos is at or behind the end.
func (m *OffsetMap) translate(pos int64, view func(segment) segment) (tr Translation, beyond bool) {
	if len(m.segs) == 0 {
		return Translation{Reason: NothingMirrored}, false
	}
	// The last segment that begins at or before pos.
	i := sort.Search(len(m.segs), func(i int) bool { return view(m.segs[i]).s > pos }) - 1
	if i < 0 {
		return Translation{Reason: BeforeFirst, Offset: view(m.segs[0]).t}, false
	}
	g := view(m.segs[i])
	if pos >= g.send() {
		return Translation{OK: true, Exact: true, Offset: g.tend()}, i == len(m.segs)-1
	}
	d := pos - g.s
	if g.exact() {
		return Translation{OK: true, Exact: true, Offset: g.t + d}, false
	}
	return g.estimate(d), false
}

// estimate answers for the position d offsets into a span, 0 <= d < slen.
//
// Let c be the number of records before the position; the true answer X is the first copy behind them, and copies take
// one target offset each, so X >= t+c. At most slen-cmin of the d offsets are holes, hence c >= d-(slen-cmin), and the
// first offset is known to be a record or not. Copies below t+cLow are at least cLow less the holes there.
func (g segment) estimate(d int64) Translation {
	known := int64(0) // records surely before the position
	if g.first && d > 0 {
		known = 1
	}
	cLow := max(d-(g.slen-g.cmin), known)
	cHigh := min(d, g.cmax)
	if g.last {
		cHigh = min(cHigh, g.cmax-1)
	}
	below := max(cLow-(g.tlen-g.cmin), known)
	bound := max(cHigh-below, 0)
	return Translation{OK: true, Offset: g.t + cLow, Exact: bound == 0, Bound: bound}
}

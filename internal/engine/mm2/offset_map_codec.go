package mm2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const offsetMapVersion = 1

// ErrOffsetMap is wrapped by the errors about bytes that are not an OffsetMap of a version that we know.
var ErrOffsetMap = errors.New("mm2: bad offset map")

const (
	segmentSpan  = 1 << 0
	segmentFirst = 1 << 1
	segmentLast  = 1 << 2
)

// MarshalBinary encodes the map: a version byte, the number of pieces, and for each piece varints of the distance to
// the end of the piece before it on both sides and of its length, with the spare lowest bit of the length telling runs
// from spans. A run between short gaps takes 3 to 5 bytes. The error is always nil.
func (m *OffsetMap) MarshalBinary() ([]byte, error) {
	b := make([]byte, 0, 2+5*len(m.segs))
	b = append(b, offsetMapVersion)
	b = binary.AppendUvarint(b, uint64(len(m.segs)))
	var s, t int64
	for _, g := range m.segs {
		b = binary.AppendUvarint(b, uint64(g.s-s))
		b = binary.AppendUvarint(b, uint64(g.t-t))
		if g.exact() {
			b = binary.AppendUvarint(b, uint64(g.slen)<<1)
		} else {
			b = binary.AppendUvarint(b, uint64(g.slen)<<1|segmentSpan)
			var flags byte
			if g.first {
				flags |= segmentFirst
			}
			if g.last {
				flags |= segmentLast
			}
			b = append(b, flags)
			b = binary.AppendUvarint(b, uint64(g.tlen))
			b = binary.AppendUvarint(b, uint64(g.cmin))
			b = binary.AppendUvarint(b, uint64(g.cmax))
		}
		s, t = g.send(), g.tend()
	}
	return b, nil
}

// UnmarshalOffsetMap decodes what MarshalBinary wrote, into a map with the bound maxRuns (as for NewOffsetMap). A map
// of more pieces is thinned. The error wraps ErrOffsetMap.
func UnmarshalOffsetMap(data []byte, maxRuns int) (*OffsetMap, error) {
	d := mapDecoder{buf: data}
	if len(data) == 0 || data[0] != offsetMapVersion {
		return nil, fmt.Errorf("%w: unknown version", ErrOffsetMap)
	}
	d.buf = data[1:]
	n := d.uvarint()
	// Each piece takes three bytes or more, which bounds what hostile bytes can make us allocate.
	if n > int64(len(d.buf))/3 {
		return nil, fmt.Errorf("%w: %d pieces in %d bytes", ErrOffsetMap, n, len(d.buf))
	}
	m := NewOffsetMap(maxRuns)
	m.segs = make([]segment, 0, n)
	var s, t int64
	for range n {
		g := segment{s: d.add(s, d.uvarint()), t: d.add(t, d.uvarint())}
		head := d.raw()
		g.slen = int64(head >> 1)
		if head&segmentSpan == 0 {
			g = newRun(g.s, g.t, g.slen)
		} else {
			flags := d.byte()
			g.first, g.last = flags&segmentFirst != 0, flags&segmentLast != 0
			g.tlen, g.cmin, g.cmax = d.uvarint(), d.uvarint(), d.uvarint()
			if flags&^(segmentFirst|segmentLast) != 0 || !g.plausible() {
				d.bad = true
			}
		}
		s, t = d.add(g.s, g.slen), d.add(g.t, g.tlen)
		if d.bad {
			return nil, fmt.Errorf("%w: piece %d is truncated or out of range", ErrOffsetMap, len(m.segs))
		}
		m.segs = append(m.segs, g)
	}
	if len(d.buf) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last piece", ErrOffsetMap, len(d.buf))
	}
	for len(m.segs) > m.maxRuns {
		m.thin()
	}
	return m, nil
}

// plausible checks a span's own arithmetic, on which translation relies.
func (g segment) plausible() bool {
	return g.cmin <= g.cmax && g.cmax <= g.slen && g.cmax <= g.tlen && !g.exact() &&
		(!g.first || g.cmin > 0) && (!g.last || g.cmin > 0)
}

type mapDecoder struct {
	buf []byte
	bad bool
}

func (d *mapDecoder) byte() byte {
	if d.bad || len(d.buf) == 0 {
		d.bad = true
		return 0
	}
	b := d.buf[0]
	d.buf = d.buf[1:]
	return b
}

func (d *mapDecoder) raw() uint64 {
	v, n := binary.Uvarint(d.buf)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

// uvarint reads a number that fits an int64.
func (d *mapDecoder) uvarint() int64 {
	v := d.raw()
	if v > math.MaxInt64 {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *mapDecoder) add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		d.bad = true
		return 0
	}
	return a + b
}

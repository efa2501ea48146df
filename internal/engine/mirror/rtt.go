package mirror

import "time"

const (
	// lineWindow is how long a round trip counts.
	lineWindow = 10 * time.Second
	// nearby is the round trip below which nothing is gained by more than one request under way.
	nearby = 2 * time.Millisecond
	// mostRequests is how many requests a lane has under way at most, on the longest line.
	mostRequests = 64
)

// minimum is the shortest duration of the last lineWindow, about.
type minimum struct {
	since       time.Time
	now, before time.Duration // of this half of the window and of the last one; 0: none
}

func (m *minimum) turn(now time.Time) {
	switch age := now.Sub(m.since); {
	case age >= lineWindow:
		m.since, m.now, m.before = now, 0, 0
	case age >= lineWindow/2:
		m.since, m.now, m.before = now, 0, m.now
	}
}

func (m *minimum) add(now time.Time, d time.Duration) {
	m.turn(now)
	m.now = shorter(m.now, max(d, 1))
}

// get is 0 when there was nothing.
func (m *minimum) get(now time.Time) time.Duration {
	m.turn(now)
	return shorter(m.now, m.before)
}

// shorter is the shorter of two durations of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// line is how long the way to a broker and back is. Requests that write tell only that it is not longer than they took; when
// they take long, a request that costs the broker nothing tells why.
type line struct {
	produced, probed minimum
	trip             time.Duration // as far as known; 0: not known, and taken for short
	fixed            bool          // it is what a test says
	probing          bool
	probeAfter       time.Time
}

// took notes how long a Produce request took; probe asks for an answer to measured.
func (l *line) took(now time.Time, d time.Duration) (probe bool) {
	l.produced.add(now, d)
	l.judge(now)
	if l.probing || now.Before(l.probeAfter) || l.produced.get(now) < nearby {
		return false
	}
	l.probing, l.probeAfter = true, now.Add(lineWindow/2)
	return true
}

// measured notes how long an empty request took; 0: it failed.
func (l *line) measured(now time.Time, d time.Duration) {
	l.probing = false
	if d > 0 {
		l.probed.add(now, d)
		l.judge(now)
	}
}

func (l *line) judge(now time.Time) {
	if l.fixed {
		return
	}
	produced, probed := l.produced.get(now), l.probed.get(now)
	if probed != 0 || produced != 0 && produced < nearby {
		l.trip = shorter(produced, probed)
	}
}

// requests is how many may be under way: one for each millisecond of the line.
func (l *line) requests() int { return int(min(max(l.trip/time.Millisecond, 1), mostRequests)) }

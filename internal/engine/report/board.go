package report

import (
	"sort"
	"sync"
	"time"
)

// Board collects the conditions that last. Rooms set and clear them; the task
// reads them. Safe for concurrent use. Since is kept while a condition stays set.
type Board struct {
	now func() time.Time
	mu  sync.Mutex
	m   map[key]Condition
	ch  chan struct{}
}

type key struct {
	code string
	sub  Subject
}

// NewBoard returns an empty board; now gives the time of first sight.
func NewBoard(now func() time.Time) *Board {
	return &Board{now: now, m: map[key]Condition{}, ch: make(chan struct{}, 1)}
}

// Set adds a condition, or replaces its text and evidence if it is there already.
func (b *Board) Set(c Condition) {
	b.mu.Lock()
	k := key{c.Code, c.Subject}
	old, ok := b.m[k]
	if ok {
		c.Since = old.Since
	} else if c.Since.IsZero() {
		c.Since = b.now()
	}
	b.m[k] = c
	b.mu.Unlock()
	if !ok {
		b.wake()
	}
}

// Clear removes a condition.
func (b *Board) Clear(code string, sub Subject) {
	b.mu.Lock()
	_, ok := b.m[key{code, sub}]
	delete(b.m, key{code, sub})
	b.mu.Unlock()
	if ok {
		b.wake()
	}
}

// ClearWhere removes every condition for which f answers true.
func (b *Board) ClearWhere(f func(Condition) bool) {
	b.mu.Lock()
	n := len(b.m)
	for k, c := range b.m {
		if f(c) {
			delete(b.m, k)
		}
	}
	changed := len(b.m) != n
	b.mu.Unlock()
	if changed {
		b.wake()
	}
}

// Has tells whether a condition is set.
func (b *Board) Has(code string, sub Subject) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.m[key{code, sub}]
	return ok
}

// List returns the conditions, errors first, then by age.
func (b *Board) List() []Condition {
	b.mu.Lock()
	out := make([]Condition, 0, len(b.m))
	for _, c := range b.m {
		out = append(out, c)
	}
	b.mu.Unlock()
	rank := map[Severity]int{Error: 0, Warning: 1, Info: 2}
	sort.Slice(out, func(i, j int) bool {
		a, c := out[i], out[j]
		switch {
		case rank[a.Severity] != rank[c.Severity]:
			return rank[a.Severity] < rank[c.Severity]
		case !a.Since.Equal(c.Since):
			return a.Since.Before(c.Since)
		case a.Code != c.Code:
			return a.Code < c.Code
		case a.Subject.Topic != c.Subject.Topic:
			return a.Subject.Topic < c.Subject.Topic
		case a.Subject.Partition != c.Subject.Partition:
			return a.Subject.Partition < c.Subject.Partition
		}
		return a.Subject.Group < c.Subject.Group
	})
	return out
}

// Changed delivers a signal, buffered by one, when a condition appears or goes.
func (b *Board) Changed() <-chan struct{} { return b.ch }

func (b *Board) wake() {
	select {
	case b.ch <- struct{}{}:
	default:
	}
}

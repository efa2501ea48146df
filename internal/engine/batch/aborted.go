package batch

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// AbortedTransaction is an entry of a fetch response: what the producer wrote from FirstOffset on, up to its next abort
// marker, was aborted.
type AbortedTransaction struct{ ProducerID, FirstOffset int64 }

// Aborted finds the batches of aborted transactions in one partition of one fetch response that was asked for with
// isolation level read_committed. Its zero value is ready; it keeps its memory from one response to the next. Not safe
// for concurrent use.
type Aborted struct {
	list   []AbortedTransaction // sorted by offset; those before next are open
	next   int
	open   map[int64]struct{}
	sorted bool
}

// Reset begins a response. The list is copied.
func (a *Aborted) Reset(list []AbortedTransaction) {
	a.list, a.next, a.sorted = append(a.list[:0], list...), 0, false
	clear(a.open)
}

// Covers tells whether all of b was aborted. It must be asked about every batch of the response, in order, control
// batches included: abort markers end a transaction.
func (a *Aborted) Covers(b Batch) bool {
	if len(a.list) == 0 || b.ProducerID() < 0 {
		return false
	}
	if !a.sorted {
		slices.SortFunc(a.list, func(x, y AbortedTransaction) int { return cmp.Compare(x.FirstOffset, y.FirstOffset) })
		a.sorted = true
	}
	for last := b.LastOffset(); a.next < len(a.list) && a.list[a.next].FirstOffset <= last; a.next++ {
		if a.open == nil {
			a.open = map[int64]struct{}{}
		}
		a.open[a.list[a.next].ProducerID] = struct{}{}
	}
	if b.Control() {
		if isAbortMarker(b) {
			delete(a.open, b.ProducerID())
		}
		return false
	}
	if !b.Transactional() {
		return false
	}
	_, ok := a.open[b.ProducerID()]
	return ok
}

// isAbortMarker tells whether a control batch, which is never compressed, holds an abort marker.
func isAbortMarker(b Batch) bool {
	if b.Codec() != CodecNone || b.Count() < 1 {
		return false
	}
	r, _, err := nextRecord(b.Payload())
	if err != nil {
		return false
	}
	keyLen, n := binary.Varint(r.body)
	// The key: int16 version, int16 type; type 0 is abort, 1 commit.
	if n <= 0 || keyLen < 4 || keyLen > int64(len(r.body)-n) {
		return false
	}
	return binary.BigEndian.Uint16(r.body[n+2:]) == 0
}

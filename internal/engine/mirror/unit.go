package mirror

import (
	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// identity is a producer's, and the sequence number of a batch's first record; pid -1 means no idempotence.
type identity struct {
	pid   int64
	epoch int16
	seq   int32
}

// identityOf is what a batch's header says.
func identityOf(b batch.Batch) identity {
	return identity{pid: b.ProducerID(), epoch: b.ProducerEpoch(), seq: b.BaseSequence()}
}

// unit is one batch for the target, in the buffer in which it was fetched or built. The unit holds one use of
// the buffer until the batch is acknowledged; so it can be sent again.
type unit struct {
	pool *wire.Pool
	buf  *wire.Buffer
	b    batch.Batch
	// base is the source offset of the first record, next is the one behind the last.
	base, next int64
	spansOf    []batch.Span // of rebuilt batches; nil: the records lie in a row from base on
	body       int64        // bytes of keys, values and headers, as far as known
}

func (u *unit) count() int { return int(u.b.Count()) }

func (u *unit) bytes() int64 { return int64(len(u.b)) }

// encode gives the batch as it is sent under an identity. It is called without the lock, never twice at a time.
func (u *unit) encode(id identity) []byte {
	batch.Patch(u.b, batch.Producer{ID: id.pid, Epoch: id.epoch, Sequence: id.seq})
	return u.b
}

// spans knows only the first and the last time of a batch, and shares its bytes out by records.
func (u *unit) spans(base int64) ([]Span, int64) {
	first, last := u.b.BaseTimestamp(), u.b.MaxTimestamp()
	if u.spansOf == nil {
		return []Span{{
			Source: u.base, Target: base, Count: int64(u.count()), Bytes: u.body, FirstTimestamp: first, LastTimestamp: last,
		}}, u.body
	}
	all := make([]Span, 0, len(u.spansOf))
	n, left := int64(u.count()), u.body
	for i, s := range u.spansOf {
		bytes := u.body * int64(s.Count) / n
		if i == len(u.spansOf)-1 {
			bytes = left
		}
		left -= bytes
		all = append(all, Span{
			Source: s.Source, Target: base, Count: int64(s.Count), Bytes: bytes, FirstTimestamp: first, LastTimestamp: last,
		})
		base += int64(s.Count)
	}
	return all, u.body
}

// newest is the largest timestamp: by it, brokers forget.
func (u *unit) newest() int64 { return u.b.MaxTimestamp() }

// first is the source offset of the first record, and the length of all, as far as known.
func (u *unit) first() (offset int64, size int) { return u.base, int(u.body) }

// damaged tells that the bytes are not those that the source sealed.
func (u *unit) damaged() bool { return !u.b.Intact() }

// detach copies the batch out of a buffer that it shares with others.
func (u *unit) detach() {
	if u.buf == nil || u.buf.Size() <= 2*len(u.b) {
		return
	}
	own := u.pool.Get(len(u.b))
	copy(own.Bytes(), u.b)
	u.buf.Release()
	u.buf, u.b = own, batch.Batch(own.Bytes())
}

// drop ends the use of the batch's memory.
func (u *unit) drop() {
	if u.buf != nil {
		u.buf.Release()
	}
	u.buf, u.b = nil, nil
}

// unitQueue holds what was read of a partition and is not under way. The path's lock guards it.
type unitQueue struct {
	units []*unit
	size  int64
}

func (q *unitQueue) empty() bool { return len(q.units) == 0 }

func (q *unitQueue) bytes() int64 { return q.size }

func (q *unitQueue) add(u *unpacked) {
	for _, one := range u.units {
		q.size += one.bytes()
	}
	q.units = append(q.units, u.units...)
}

// take removes the next batch; next is the source offset behind it.
func (q *unitQueue) take() (u *unit, next int64) {
	u = q.units[0]
	q.units[0] = nil
	if q.units = q.units[1:]; len(q.units) == 0 {
		q.units = nil
	}
	q.size -= u.bytes()
	return u, u.next
}

func (q *unitQueue) drop() {
	for _, u := range q.units {
		u.drop()
	}
	q.units, q.size = nil, 0
}

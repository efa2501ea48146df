package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RecordPath is a Path that reads records and writes them again in batches of its own, with the codec they had. It speaks
// Fetch and Produce over kgo's connections: kgo's consumer and producer hide the answers on which the promises rest (what
// lies between records, which record was refused, what a lost answer may have meant).
//
// All methods are safe for concurrent use. Run must be called once; it closes the clients.
type RecordPath struct {
	*core
	codecs       codecs
	decompressor kgo.Decompressor
}

// NewRecordPath makes a path; it connects when it runs.
func NewRecordPath(cfg Config) (*RecordPath, error) {
	c, err := newCodecs()
	if err != nil {
		return nil, err
	}
	p := &RecordPath{codecs: c, decompressor: kgo.DefaultDecompressor()}
	if p.core, err = newCore(cfg); err != nil {
		return nil, err
	}
	p.carrier = p
	return p, nil
}

func (p *RecordPath) lanes() (lanes, requests int) { return 1, 3 }

func (p *RecordPath) room() int64 { return p.cfg.MaxBytesInFlight - p.inFlight.Load() }

func (p *RecordPath) start(t *part) {
	t.maxBytes = p.cfg.BatchBytes
	if t.queue == nil {
		t.queue = &recordQueue{path: p}
	}
}

func (p *RecordPath) disconnect() {}

// narrow puts the batch back, so that a smaller one is taken.
func (p *RecordPath) narrow(t *part, w written, code error, _ map[string]string) {
	c := t.sending.cargo
	n := c.count()
	t.maxRecords = n / 2
	if tooLarge(code) {
		t.maxBytes = max(c.bytes()/2, 1)
	}
	for _, f := range w.faults {
		if f.index >= 0 && f.index < n {
			t.maxRecords = min(t.maxRecords, max(f.index, 1))
		}
	}
	p.putBack(t)
}

func (j fetchJob) request(cfg *Config) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(j.maxWait(cfg).Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = j.maxBytes
	if !cfg.ReadUncommitted {
		req.IsolationLevel = 1
	}
	at := map[string]int{}
	for _, w := range j.wants {
		i, ok := at[w.tp.Topic]
		if !ok {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = w.tp.Topic, w.id
			i = len(req.Topics)
			at[w.tp.Topic] = i
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = w.tp.Partition, w.offset, min(j.maxBytes, 1<<20)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

var errNoFetchAnswer = errors.New("mirror: the answer to a fetch has another form than expected")

func (p *RecordPath) read(ctx context.Context, j fetchJob) {
	began := time.Now()
	answer, err := p.source.request(ctx, j.broker, j.request(&p.cfg))
	resp, ok := answer.(*kmsg.FetchResponse)
	if err == nil && !ok {
		err = errNoFetchAnswer
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	byTP := map[TP]*kmsg.FetchResponseTopicPartition{}
	if err == nil {
		names := map[[16]byte]string{}
		for _, w := range j.wants {
			names[w.id] = w.tp.Topic
		}
		for i := range resp.Topics {
			rt := &resp.Topics[i]
			name := rt.Topic
			if name == "" {
				name = names[rt.TopicID]
			}
			for k := range rt.Partitions {
				byTP[TP{name, rt.Partitions[k].Partition}] = &rt.Partitions[k]
			}
		}
	}
	for _, w := range j.wants {
		rp := byTP[w.tp]
		if err != nil || rp == nil {
			p.unasked(w, true)
			continue
		}
		ends := Ends{LogStart: rp.LogStartOffset, HighWatermark: rp.HighWatermark, LastStable: rp.LastStableOffset}
		p.fetched(ctx, w, bounds{rp.ErrorCode, ends}, j.broker, func() (haul, error) {
			d, err := decode(w.tp, rp, w.offset, !p.cfg.ReadUncommitted, p.decompressor)
			return &d, err
		})
	}
	p.fetchDone(j, began, err)
}

func (p *RecordPath) write(ctx context.Context, j produceJob) ([]written, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(produceTimeout.Milliseconds())
	at, names := map[string]int{}, map[[16]byte]string{}
	for _, s := range j.sends {
		i, ok := at[s.tp.Topic]
		if !ok {
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = s.tp.Topic, s.id
			i = len(req.Topics)
			at[s.tp.Topic], names[s.id] = i, s.tp.Topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = s.tp.Partition, s.batch.cargo.encode(s.batch.id)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	if !p.cfg.MayWrite() {
		return make([]written, len(j.sends)), errWithheld
	}
	answer, err := p.target.request(ctx, j.broker, req)
	resp, ok := answer.(*kmsg.ProduceResponse)
	if err == nil && !ok {
		err = errNoProduceAnswer
	}
	byTP := map[TP]*kmsg.ProduceResponseTopicPartition{}
	if err == nil {
		for i := range resp.Topics {
			rt := &resp.Topics[i]
			name := rt.Topic
			if name == "" {
				name = names[rt.TopicID]
			}
			for k := range rt.Partitions {
				byTP[TP{name, rt.Partitions[k].Partition}] = &rt.Partitions[k]
			}
		}
	}
	all := make([]written, len(j.sends))
	for i, s := range j.sends {
		rp := byTP[s.tp]
		if rp == nil {
			all[i].missing = true
			continue
		}
		all[i] = written{code: rp.ErrorCode, base: rp.BaseOffset}
		if rp.ErrorMessage != nil {
			all[i].message = *rp.ErrorMessage
		}
		for _, e := range rp.ErrorRecords {
			f := recordFault{index: int(e.RelativeOffset)}
			if e.ErrorMessage != nil {
				f.message = *e.ErrorMessage
			}
			all[i].faults = append(all[i].faults, f)
		}
	}
	return all, err
}

// recordQueue is the queue of a RecordPath's partition.
type recordQueue struct {
	path    *RecordPath
	records []record
	size    int64
}

func (q *recordQueue) empty() bool { return len(q.records) == 0 }

func (q *recordQueue) bytes() int64 { return q.size }

func (q *recordQueue) drop() { q.records, q.size = nil, 0 }

func (q *recordQueue) add(h haul) {
	d, ok := h.(*decoded)
	if !ok {
		return
	}
	for _, r := range d.records {
		q.size += r.size()
	}
	q.records = append(q.records, d.records...)
}

func (q *recordQueue) take(t *part) (c cargo, next int64) {
	n, bytes := 0, int64(0)
	for n < len(q.records) && n < t.maxRecords {
		size := q.records[n].size()
		if n > 0 && (bytes+size > t.maxBytes || n >= 1<<20) {
			break
		}
		bytes += size
		n++
	}
	l := &load{codecs: &q.path.codecs, records: q.records[:n:n], size: bytes}
	q.records = q.records[n:]
	q.size -= bytes
	if len(q.records) == 0 {
		q.records = nil
	}
	return l, l.records[n-1].offset + 1
}

func (q *recordQueue) putBack(c cargo) {
	l, ok := c.(*load)
	if !ok {
		return
	}
	q.records = append(l.records, q.records...)
	q.size += l.size
}

// load is the cargo of a RecordPath: records, encoded when they are sent first.
type load struct {
	codecs  *codecs
	records []record
	size    int64
	packed  []byte
}

func (l *load) count() int { return len(l.records) }

func (l *load) bytes() int64 { return l.size }

func (l *load) encode(id identity) []byte {
	if l.packed == nil {
		l.packed = l.codecs.encode(l.records, id)
	}
	return l.packed
}

func (l *load) encoded() int { return len(l.packed) }

func (l *load) spans(base int64) ([]Span, int64) { return spansOf(l.records, base) }

func (l *load) newest() int64 { return l.records[len(l.records)-1].ts }

func (l *load) first() (offset int64, size int) { return l.records[0].offset, len(l.records[0].body) }

func (l *load) damaged() bool { return false }

func (l *load) detach() {}

func (l *load) drop() {}

func (l *load) oldest() int64 {
	oldest := l.records[0].ts
	for _, r := range l.records {
		oldest = min(oldest, r.ts)
	}
	return oldest
}

// spansOf pairs source offsets with the consecutive target offsets from base on.
func spansOf(records []record, base int64) (spans []Span, bytes int64) {
	for i, r := range records {
		size := int64(len(r.body))
		bytes += size
		if k := len(spans) - 1; k >= 0 && spans[k].Source+spans[k].Count == r.offset {
			spans[k].Count++
			spans[k].Bytes += size
			spans[k].LastTimestamp = r.ts
			continue
		}
		spans = append(spans, Span{
			Source: r.offset, Target: base + int64(i), Count: 1, Bytes: size, FirstTimestamp: r.ts, LastTimestamp: r.ts,
		})
	}
	return spans, bytes
}

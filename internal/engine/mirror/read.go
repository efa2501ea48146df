package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// partitionBytes is the most that one answer holds of a partition.
const partitionBytes = 1 << 20

var errNoFetchAnswer = errors.New("mirror: the answer to a fetch has another form than expected")

// room is how many bytes may be read now. It counts buffers, too: one batch that waits keeps the whole answer that it came in.
func (p *mirror) room() int64 {
	return p.cfg.MaxBytesInFlight - max(p.inFlight.Load(), p.pool.InUse())
}

// read asks one broker, and calls fetched or what else ends a want for each.
func (p *mirror) read(ctx context.Context, j fetchJob) {
	began := time.Now()
	k, resp, err := p.ask(ctx, j)
	if err != nil {
		p.metrics.failure("source", "request", err)
		for _, w := range j.wants {
			p.unasked(w, true)
		}
		p.fetchDone(j, began, err)
		return
	}
	answers := make(map[TP]*wire.FetchedPartition, len(resp.Partitions))
	for i := range resp.Partitions {
		if name, ok := k.session.Topic(&resp.Partitions[i]); ok {
			answers[TP{name, resp.Partitions[i].Partition}] = &resp.Partitions[i]
		}
	}
	u, ok := p.unpackers.Get().(*unpacker)
	if !ok {
		u = newUnpacker(p)
	}
	for _, w := range j.wants {
		fp := answers[w.tp]
		if fp == nil {
			p.nothing(w)
			continue
		}
		ends := Ends{LogStart: fp.LogStart, HighWatermark: fp.HighWatermark, LastStable: fp.LastStable}
		p.fetched(ctx, w, bounds{fp.ErrorCode, ends}, j.broker, func(w fetchWant) (*unpacked, error) { return u.unpack(w, fp, resp.Buffer) })
	}
	p.unpackers.Put(u)
	resp.Release() // before anybody asks how much room there is
	p.fetchDone(j, began, nil)
}

// ask sends a job's request in the broker's session and waits for the answer.
func (p *mirror) ask(ctx context.Context, j fetchJob) (*link, *wire.FetchResponse, error) {
	mark := p.source.health.begin(time.Now())
	k, resp, err := p.exchange(ctx, j)
	p.source.end(mark, err)
	if err != nil {
		return nil, nil, err
	}
	if !k.session.Answered(resp) {
		if err = kerr.ErrorForCode(resp.ErrorCode); err == nil {
			err = errNoFetchAnswer
		}
		resp.Release()
		return nil, nil, err
	}
	return k, resp, nil
}

func (p *mirror) exchange(ctx context.Context, j fetchJob) (*link, *wire.FetchResponse, error) {
	k, conn, err := p.fetches.connect(ctx, j.broker, 0)
	if err != nil {
		return nil, nil, err
	}
	r := &k.request
	r.MaxVersion, r.MaxWait, r.MinBytes, r.MaxBytes, r.Committed = 0, j.maxWait(&p.cfg), 1, j.maxBytes, !p.cfg.ReadUncommitted
	wanted := make(map[TP]bool, len(j.wants))
	for _, w := range j.wants {
		wanted[w.tp] = true
		k.asked[w.tp] = true
		k.session.Set(w.tp.Topic, w.id, wire.FetchPartition{Partition: w.tp.Partition, LeaderEpoch: -1, Offset: w.offset, MaxBytes: partitionBytes})
		if w.id == [16]byte{} {
			r.MaxVersion = wire.LastFetchByName
		}
	}
	for tp := range k.asked {
		if !wanted[tp] {
			delete(k.asked, tp)
			k.session.Remove(tp.Topic, tp.Partition)
		}
	}
	version := conn.FetchVersion()
	if r.MaxVersion > 0 {
		version = min(version, r.MaxVersion)
	}
	k.session.Next(r, version)
	type answer struct {
		resp *wire.FetchResponse
		err  error
	}
	got := make(chan answer, 1)
	stop := context.AfterFunc(ctx, conn.Abort)
	defer stop()
	if err := conn.Fetch(r, func(resp *wire.FetchResponse, err error) { got <- answer{resp, err} }); err != nil {
		k.session.Failed()
		return nil, nil, err
	}
	a := <-got
	if a.err != nil {
		k.session.Failed()
		return nil, nil, a.err
	}
	return k, a.resp, nil
}

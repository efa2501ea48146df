package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	// batchRequests Produce requests are under way on each connection. The broker works on one at a time; what becomes
	// ready meanwhile goes together.
	batchRequests = 1
	// partitionBytes is the most that one answer holds of a partition.
	partitionBytes = 1 << 20
)

// BatchPath is a Path that passes record batches on as bytes: a batch stays in the buffer in which it was fetched, gets
// another header there, is written from there, and is kept there until the target has acknowledged it. Batches that may
// not pass, and small ones that lie one behind the other, are put together anew (internal/engine/batch).
//
// It has connections of its own (internal/engine/wire): one to each source broker, and as many to each target broker as
// there are lanes; a partition keeps to one.
//
// All methods are safe for concurrent use. Run must be called once; it closes the connections.
type BatchPath struct {
	*core
	codec     *codec.Codec
	pool      *wire.Pool
	fetches   *links
	produces  *links
	unpackers sync.Pool
}

// NewBatchPath makes a path; it connects when it runs.
func NewBatchPath(cfg Config) (*BatchPath, error) {
	c, err := codec.New()
	if err != nil {
		return nil, err
	}
	p := &BatchPath{codec: c}
	if p.core, err = newCore(cfg); err != nil {
		return nil, err
	}
	p.carrier = p
	p.pool = wire.NewPool(2 * int64(p.cfg.FetchBytes))
	p.fetches = newLinks(p.source, p.pool, p.cfg.ClientID+"|replication-consumer")
	p.produces = newLinks(p.target, p.pool, p.cfg.ClientID+"|replication-producer")
	return p, nil
}

func newLinks(s *side, pool *wire.Pool, clientID string) *links {
	cluster := s.path.cfg.Source
	if s == s.path.target {
		cluster = s.path.cfg.Target
	}
	hook := connHook{health: &s.health}
	if cluster.Metrics != nil {
		hook.metrics = cluster.Metrics.Hook(cluster.Side)
	}
	return &links{
		side: s, all: map[linkKey]*link{},
		cfg: wire.Config{Cluster: cluster, ClientID: clientID, Pool: pool, Silence: requestTimeout, Hook: hook},
	}
}

func (p *BatchPath) lanes() (lanes, requests int) { return maxLanes, batchRequests }

// room counts buffers, too: one batch that waits keeps the whole answer that it came in.
func (p *BatchPath) room() int64 {
	return p.cfg.MaxBytesInFlight - max(p.inFlight.Load(), p.pool.InUse())
}

func (p *BatchPath) start(t *part) {
	t.maxBytes = 0 // not known: the target will say
	if t.queue == nil {
		t.queue = &unitQueue{}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.asg.Target.Topic))
	t.lane = int((h.Sum32()>>1 + uint32(t.asg.Target.Partition)) % maxLanes)
}

func (p *BatchPath) disconnect() {
	p.fetches.close()
	p.produces.close()
}

// narrow has the batch read again, and put together anew in smaller ones.
func (p *BatchPath) narrow(t *part, w written, code error, limits map[string]string) {
	c := t.sending.cargo
	n := c.count()
	limit, err := strconv.ParseInt(limits["max.message.bytes"], 10, 64)
	if tooLarge(code) && err == nil && limit > 0 && limit < int64(c.encoded()) {
		t.maxBytes = limit
	} else {
		t.maxRecords = n / 2
		for _, f := range w.faults {
			if f.index >= 0 && f.index < n {
				t.maxRecords = min(t.maxRecords, max(f.index, 1))
			}
		}
	}
	c.drop()
	t.sending = nil
	p.dropQueue(t)
	p.settle(t)
}

// read implements carrier.
func (p *BatchPath) read(ctx context.Context, j fetchJob) {
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
		p.fetched(ctx, w, bounds{fp.ErrorCode, ends}, j.broker, func() (haul, error) { return u.unpack(w, fp, resp.Buffer) })
	}
	p.unpackers.Put(u)
	resp.Release() // before anybody asks how much room there is
	p.fetchDone(j, began, nil)
}

// ask sends a job's request in the broker's session and waits for the answer.
func (p *BatchPath) ask(ctx context.Context, j fetchJob) (*link, *wire.FetchResponse, error) {
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

func (p *BatchPath) exchange(ctx context.Context, j fetchJob) (*link, *wire.FetchResponse, error) {
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

// write implements carrier.
func (p *BatchPath) write(ctx context.Context, j produceJob) ([]written, error) {
	all := make([]written, len(j.sends))
	for i := range all {
		all[i].missing = true
	}
	mark := p.target.health.begin(time.Now())
	err := p.send(ctx, j, all)
	if errors.Is(err, errWithheld) {
		p.target.end(mark, context.Canceled) // which says nothing of the target
		return all, err
	}
	p.target.end(mark, err)
	if err != nil {
		p.metrics.failure("target", "request", err)
		for i := range all {
			all[i].unsent = unsent(err)
		}
	}
	return all, err
}

func (p *BatchPath) send(ctx context.Context, j produceJob, all []written) error {
	_, conn, err := p.produces.connect(ctx, j.broker, j.lane)
	if err != nil {
		return err
	}
	r := wire.ProduceRequest{Timeout: produceTimeout}
	topics, at := map[string]int{}, map[TP]int{}
	names := map[[16]byte]string{}
	for i, s := range j.sends {
		n, ok := topics[s.tp.Topic]
		if !ok {
			n = len(r.Topics)
			topics[s.tp.Topic], names[s.id] = n, s.tp.Topic
			r.Topics = append(r.Topics, wire.ProduceTopic{Name: s.tp.Topic, ID: s.id})
		}
		if s.id == [16]byte{} {
			r.MaxVersion = wire.LastProduceByName
		}
		at[s.tp] = i
		r.Topics[n].Partitions = append(r.Topics[n].Partitions,
			wire.ProducePartition{Partition: s.tp.Partition, Records: s.batch.cargo.encode(s.batch.id)})
	}
	if !p.cfg.MayWrite() {
		return errWithheld
	}
	got := make(chan error, 1)
	stop := context.AfterFunc(ctx, conn.Abort)
	defer stop()
	err = conn.Produce(&r, func(resp *wire.ProduceResponse, err error) {
		if err == nil {
			answered(resp, names, at, all)
		}
		got <- err
	})
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return <-got
}

// answered copies an answer, which is valid only now.
func answered(resp *wire.ProduceResponse, names map[[16]byte]string, at map[TP]int, all []written) {
	for k := range resp.Partitions {
		rp := &resp.Partitions[k]
		name := string(rp.Topic)
		if name == "" {
			name = names[rp.TopicID]
		}
		i, ok := at[TP{name, rp.Partition}]
		if !ok {
			continue
		}
		w := written{code: rp.ErrorCode, base: rp.BaseOffset, message: string(rp.Message), appendTime: rp.AppendTime >= 0}
		for _, f := range rp.Records {
			w.faults = append(w.faults, recordFault{index: int(f.Index), message: string(f.Message)})
		}
		all[i] = w
	}
}

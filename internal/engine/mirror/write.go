package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// laneRequests Produce requests are under way on each connection. The broker works on one at a time; what becomes ready
// meanwhile goes together.
const laneRequests = 1

// written is the target's answer for one batch.
type written struct {
	missing bool // the answer says nothing of it
	unsent  bool // the request surely did not reach the broker
	code    int16
	base    int64
	// appendTime: the target gave the records its own timestamps.
	appendTime bool
	message    string
	faults     []recordFault
}

// recordFault is an objection to one record of a batch.
type recordFault struct {
	index   int
	message string
}

// start readies a partition that was assigned; the lock is held.
func (p *mirror) start(t *part) {
	t.maxBytes = 0 // not known: the target will say
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.asg.Target.Topic))
	t.lane = int((h.Sum32()>>1 + uint32(t.asg.Target.Partition)) % maxLanes)
}

// narrow has the batch read again, and put together anew in smaller ones.
func (p *mirror) narrow(t *part, w written, code error, limits map[string]string) {
	c := t.sending.unit
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

// write sends one request, and answers for each of the job's batches, in its order.
func (p *mirror) write(ctx context.Context, j produceJob) ([]written, error) {
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

func (p *mirror) send(ctx context.Context, j produceJob, all []written) error {
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
			wire.ProducePartition{Partition: s.tp.Partition, Records: s.batch.unit.encode(s.batch.id)})
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

package hub

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

const (
	// expressWait is how long a broker holds a request on the second connection, where others may come to wait behind it.
	expressWait = 5 * time.Millisecond
	// expressMost is how many partitions such a request names.
	expressMost = 500
)

// expressLoop is the second connection.
func (f *fetcher) expressLoop(ctx context.Context) {
	for {
		f.s.fetching.Lock()
		due := (f.polling || f.parked) && len(f.uncovered()) > 0
		f.s.fetching.Unlock()
		if due {
			f.express(ctx)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-f.hurry:
		}
	}
}

// express asks once for what the poll does not cover.
func (f *fetcher) express(ctx context.Context) {
	var batch []*want
	var byID map[[16]byte]string
	got, sent := f.exchange(ctx, true, &f.second, func(int16) bool {
		if batch = f.uncovered(); len(batch) == 0 {
			return false
		}
		byID = f.expressRequest(batch)
		for _, w := range batch {
			w.express = true
		}
		f.second.MaxWait = expressWait
		return true
	})
	defer f.swept()
	f.s.fetching.Lock()
	for _, w := range batch {
		if w.express = false; !w.gone() {
			f.touch(w.slot)
			if !f.polling {
				signal(f.wake)
			}
		}
	}
	f.s.fetching.Unlock()
	if !sent {
		return
	}
	if got.err == nil && got.resp.ErrorCode != 0 {
		got.err = kerr.ErrorForCode(got.resp.ErrorCode)
		got.resp.Release()
	}
	if got.err != nil {
		f.failed(got.err)
		return
	}
	f.s.fetching.Lock()
	f.s.learn(got.resp.Nodes)
	asked := make(map[TP]*want, len(batch))
	for _, w := range batch {
		asked[w.TP] = w
	}
	var d delivery
	for i := range got.resp.Partitions {
		p := &got.resp.Partitions[i]
		name := string(p.Topic)
		if got.resp.Version > wire.LastFetchByName {
			name = byID[p.TopicID]
		}
		if w := asked[TP{name, p.Partition}]; w != nil {
			f.complete(&d, w.reader, w.slot, w.Offset, w.TopicID, p, got.resp.Buffer)
		}
	}
	f.s.fetching.Unlock()
	d.deliver(f, got.resp)
}

// uncovered takes those wants off the list that are gone or that the poll under way answers, and returns the first of the
// others; the lock is held.
func (f *fetcher) uncovered() []*want {
	f.pending = slices.DeleteFunc(f.pending, func(w *want) bool {
		if !w.gone() && !f.covers(w) {
			return false
		}
		w.pending = false
		return true
	})
	var batch []*want
	seen := map[TP]bool{}
	for _, w := range f.pending {
		if !seen[w.TP] && len(batch) < expressMost { // a request names a partition once
			seen[w.TP] = true
			batch = append(batch, w)
		}
	}
	return batch
}

// expressRequest fills the request for wants; the lock is held. byID holds the topics' names.
func (f *fetcher) expressRequest(wants []*want) (byID map[[16]byte]string) {
	r := &f.second
	r.Topics = r.Topics[:0]
	r.SessionID, r.SessionEpoch, r.Answerable = 0, -1, len(wants)
	r.MaxVersion, r.Rack = 0, f.s.hub.cfg.Rack
	type key struct {
		name string
		id   [16]byte
	}
	at := map[key]int{}
	byID = map[[16]byte]string{}
	for _, w := range wants {
		if w.TopicID == [16]byte{} {
			r.MaxVersion = wire.LastFetchByName
		}
		if w.onLeader {
			r.Rack = ""
		}
		k := key{w.TP.Topic, w.TopicID}
		i, ok := at[k]
		if !ok {
			i = len(r.Topics)
			at[k] = i
			if i < cap(r.Topics) {
				r.Topics = r.Topics[:i+1]
			} else {
				r.Topics = append(r.Topics, wire.FetchTopic{})
			}
			r.Topics[i].Name, r.Topics[i].ID, r.Topics[i].Partitions = k.name, k.id, r.Topics[i].Partitions[:0]
			byID[w.TopicID] = k.name
		}
		r.Topics[i].Partitions = append(r.Topics[i].Partitions, wire.FetchPartition{
			Partition: w.TP.Partition, LeaderEpoch: -1, Offset: w.Offset, MaxBytes: w.MaxBytes,
		})
	}
	return byID
}

package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// limitNames are the settings of a topic that an error of Produce is about.
func limitNames(err error) []string {
	switch {
	case tooLarge(err):
		return []string{"max.message.bytes"}
	case errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.InvalidRecord):
		// message.timestamp.difference.max.ms is what brokers before 3.6 have instead.
		return []string{"message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms"}
	}
	return nil
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// understand reads the settings that a refusal is about.
func (p *mirror) understand(ctx context.Context, t *part, gen uint64) {
	var topic string
	var names []string
	p.locked(func() {
		if head := t.head(); t.gen == gen && head != nil {
			topic, names = t.asg.Target.Topic, limitNames(head.cause)
		}
	})
	var limits map[string]string
	if len(names) > 0 {
		limits = p.target.topicConfigs(ctx, topic, names)
	}
	p.locked(func() {
		if t.gen != gen || !t.busy {
			return
		}
		t.busy, t.describe = false, false
		if head := t.head(); head != nil && limits != nil {
			head.answer.limits = limits
			p.decide(t)
		}
		p.enlist(t)
	})
	notify(p.wakeFetch)
}

// refused looks for the record that the target does not take: the batch is read again and made smaller until it is alone.
// The target took nothing of it and of what is behind it, so their sequence numbers are free. The lock is held.
func (p *mirror) refused(t *part, b *sending, code error) {
	rp, limits := b.answer, b.answer.limits
	if b.unit.count() > 1 {
		p.narrow(t, b, code)
		return
	}
	offset, size := b.unit.first()
	ts, encoded := b.unit.newest(), int(b.unit.bytes())
	why := code.Error()
	if rp.message != "" {
		why = rp.message
	}
	for _, f := range rp.faults {
		if f.message != "" {
			why = f.message
		}
	}
	evidence := map[string]any{
		"offset": offset, "bytes": size, "batch_bytes": encoded, "timestamp": ts, "target_topic": t.asg.Target.Topic, "answer": why,
	}
	stop := Stop{Reason: StopRefused, Offset: offset, Retry: true, Err: code, Evidence: evidence}
	stop.Message = fmt.Sprintf("The target refuses the record at offset %d of partition %d of topic %s: %s.", offset,
		t.asg.Source.Partition, t.asg.Source.Topic, why)
	if tooLarge(code) {
		stop.Reason = StopTooLarge
		stop.Message = fmt.Sprintf("The record at offset %d of partition %d of topic %s takes %d bytes in a batch of its own; topic %s on the target allows less (%s).",
			offset, t.asg.Source.Partition, t.asg.Source.Topic, encoded, t.asg.Target.Topic, settings(limits))
		evidence["limit"] = settings(limits)
	} else if outsideWindow(ts, limits, time.Now()) {
		stop.Message = fmt.Sprintf("%s Topic %s on the target has %s.", stop.Message, t.asg.Target.Topic, settings(limits))
		evidence["limit"] = settings(limits)
	}
	p.start(t) // whatever was learned of the size may have changed when it tries again
	t.maxRecords = 1
	p.stopPart(t, stop)
}

// narrow has a refused batch, and all behind it, read again and put together anew in smaller ones.
func (p *mirror) narrow(t *part, b *sending, code error) {
	n := b.unit.count()
	limit, err := strconv.ParseInt(b.answer.limits["max.message.bytes"], 10, 64)
	if tooLarge(code) && err == nil && limit > 0 && limit < b.unit.bytes() {
		t.maxBytes = limit
	} else {
		t.maxRecords = n / 2
		for _, f := range b.answer.faults {
			if f.index >= 0 && f.index < n {
				t.maxRecords = min(t.maxRecords, max(f.index, 1))
			}
		}
	}
	t.failures = 0
	t.solo = true
	p.rewind(t, 0)
	p.settle(t)
}

// outsideWindow tells whether a timestamp lies outside of what a topic's settings allow, in ms around now.
func outsideWindow(ts int64, limits map[string]string, now time.Time) bool {
	for name, value := range limits {
		ms, err := strconv.ParseInt(value, 10, 64)
		if err != nil || name == "max.message.bytes" {
			continue
		}
		age := now.UnixMilli() - ts
		if name != "message.timestamp.after.max.ms" && age > ms || name != "message.timestamp.before.max.ms" && -age > ms {
			return true
		}
	}
	return false
}

// settings is "name=value, …", in order of names; a value that could not be read is left out.
func settings(limits map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if v := limits[name]; v != "" {
			name += "=" + v
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

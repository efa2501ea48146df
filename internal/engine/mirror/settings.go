package mirror

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

const (
	// margin is how much earlier than producer.id.expiration.ms a producer counts as forgotten.
	margin = 15 * time.Minute
	// defaultExpiration is producer.id.expiration.ms where the target does not tell it.
	defaultExpiration = 24 * time.Hour
	// settingsAge is how often the target's settings are read; settingsRetry, how soon where that failed.
	settingsAge, settingsRetry = 5 * time.Minute, 20 * time.Second
	// settingsTopics is how many topics are asked for at a time.
	settingsTopics = 200
)

// topicSettings are those of a target's topic that decide what may pass.
type topicSettings struct {
	read     time.Time
	maxBytes int64            // max.message.bytes; 0 unknown
	codec    batch.TopicCodec // compression.type
}

var topicCodecs = map[string]batch.TopicCodec{
	"producer": batch.ProducerCodec, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4,
}

// settingsLoop reads the settings of the target's topics early and again at times. That it fails is no fault: the target's
// answers tell what is needed, later.
func (p *mirror) settingsLoop(ctx context.Context) {
	tick := time.NewTicker(settingsRetry)
	defer tick.Stop()
	for {
		var open []string
		now := time.Now()
		p.locked(func() {
			for topic := range p.topicsOf(p.target) {
				if now.Sub(p.settings[topic].read) >= settingsAge {
					open = append(open, topic)
				}
			}
		})
		for len(open) > 0 && ctx.Err() == nil {
			n := min(len(open), settingsTopics)
			p.readSettings(ctx, open[:n])
			open = open[n:]
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wakeSettings:
		}
	}
}

func (p *mirror) readSettings(ctx context.Context, topics []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		rr.ConfigNames = []string{"max.message.bytes", "message.timestamp.type", "compression.type"}
		req.Resources = append(req.Resources, rr)
	}
	resp, err := req.RequestWith(ctx, p.target.client)
	if err != nil {
		p.metrics.failure("target", "settings", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range resp.Resources {
		r := &resp.Resources[i]
		s := topicSettings{read: time.Now(), codec: batch.ProducerCodec}
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			p.metrics.failure("target", "settings", err)
			if denied(err) {
				p.settings[r.ResourceName] = s // as if nothing were set, and asked less often
			}
			continue
		}
		for _, c := range r.Configs {
			if c.Value != nil {
				p.setting(&s, r.ResourceName, c.Name, *c.Value)
			}
		}
		if old := p.settings[r.ResourceName]; s.codec != batch.ProducerCodec && (old.read.IsZero() || old.codec != s.codec) {
			p.cfg.Logger.Info("the target compresses anew what has another codec than its topic", slog.String("topic", r.ResourceName),
				slog.Int("codec", int(s.codec)))
		}
		p.settings[r.ResourceName] = s
	}
}

// setting takes one setting; the lock is held.
func (p *mirror) setting(s *topicSettings, topic, name, value string) {
	switch name {
	case "max.message.bytes":
		if n, err := strconv.ParseInt(value, 10, 32); err == nil && n > 0 {
			s.maxBytes = n
		}
	case "compression.type":
		if codec, known := topicCodecs[value]; known {
			s.codec = codec
		}
	case "message.timestamp.type":
		for _, t := range p.order {
			if t.asg.Target.Topic == topic && t.acks == 0 { // else its answers tell
				t.appendTime = value == "LogAppendTime"
			}
		}
	}
}

// limitsOf is what a batch for a partition may be; the lock is held.
func (p *mirror) limitsOf(t *part, now time.Time) limits {
	l := limits{bytes: t.maxBytes, records: t.maxRecords, appendTime: t.appendTime, codec: batch.ProducerCodec}
	if s := p.settings[t.asg.Target.Topic]; !s.read.IsZero() {
		l.codec = s.codec
		if l.bytes == 0 || s.maxBytes > 0 && s.maxBytes < l.bytes {
			l.bytes = s.maxBytes
		}
	}
	lane := p.lanes[p.laneOf(t)]
	if lane == nil {
		return l
	}
	l.shared = lane.sharing(now) >= sharedRequests
	if lane.line.trip >= farAway {
		switch {
		case t.proof == impossible, t.hasID && t.id.pid < 0:
			l.alone = time.Duration(1<<63 - 1).Milliseconds() // whatever their age, one is under way at a time
		case !t.appendTime:
			l.alone = p.coldBefore(now)
		}
	}
	return l
}

// learnExpiration reads for how long the target knows a producer, unless that is known.
func (p *mirror) learnExpiration(ctx context.Context, broker int32) {
	now := time.Now()
	due := false
	p.locked(func() {
		if due = now.Sub(p.expirationRead) >= settingsAge; due {
			p.expirationRead = now
		}
	})
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker))
	rr.ConfigNames = []string{"producer.id.expiration.ms"}
	req.Resources = append(req.Resources, rr)
	answer, err := p.target.request(ctx, broker, req)
	resp, ok := answer.(*kmsg.DescribeConfigsResponse)
	if err != nil || !ok {
		return // counted; the default holds
	}
	for i := range resp.Resources {
		for _, c := range resp.Resources[i].Configs {
			if c.Name != "producer.id.expiration.ms" || c.Value == nil {
				continue
			}
			if ms, err := strconv.ParseInt(*c.Value, 10, 64); err == nil && ms > 0 {
				p.locked(func() { p.expiration = time.Duration(ms) * time.Millisecond })
			}
		}
	}
}

// topicConfigs reads settings of a topic; those that the broker does not know are left out, and where it does not
// answer all are there without a value.
func (s *side) topicConfigs(ctx context.Context, topic string, names []string) map[string]string {
	unread := make(map[string]string, len(names))
	for _, n := range names {
		unread[n] = ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, names
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil || len(resp.Resources) != 1 {
		return unread
	}
	have := map[string]string{}
	for _, c := range resp.Resources[0].Configs {
		if c.Value != nil {
			have[c.Name] = *c.Value
		}
	}
	if len(have) == 0 {
		return unread
	}
	return have
}

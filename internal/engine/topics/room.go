package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// Requester sends one request to a cluster; *kgo.Client is one. It finds the broker that must answer and retries what
// can be retried until ctx ends.
type Requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Ledger keeps, durably, which configs of a remote topic were set by us.
type Ledger interface {
	// Owned answers the last SetOwned of a remote topic; nil when there was none.
	Owned(remote string) map[string]string
	// SetOwned returns when the fact is stored.
	SetOwned(ctx context.Context, remote string, owned map[string]string) error
}

// Config of a Room. All members but Exclude, KnownConfigsFrom and Now are required.
type Config struct {
	Source, Target Requester
	Selector       mm2.TopicSelector
	// Exclude lists configs that are never copied, at creation as little as later.
	Exclude []mm2.Matcher
	// SyncConfigs lets configs follow the source after creation; Mode says how.
	SyncConfigs bool
	Mode        mm2.ConfigSyncMode
	// ReplicationFactor of new topics; -1: the target's default.
	ReplicationFactor int16
	// KnownConfigsFrom is a topic on the target that exists, from whose configs the names are learnt that the target
	// knows. "" or missing: unknown names are found by trying.
	KnownConfigsFrom string
	Ledger           Ledger
	Board            *report.Board
	Logger           *slog.Logger
	Now              func() time.Time // default time.Now
}

// Room does the work. Its methods are called by one goroutine at a time.
type Room struct {
	cfg    Config
	sel    *selector
	filter *mm2.ConfigPropertyFilter
	known  map[string]bool // config names that the target knows; nil: not learnt yet
	next   int             // where the next config sync goes on
	looked time.Time       // when it was done last; zero: never
	// refused are values the target would not take: remote topic -> name -> value.
	refused map[string]map[string]string
}

// New returns a room.
func New(cfg Config) *Room {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Room{
		cfg: cfg, sel: newSelector(cfg.Selector), filter: mm2.NewConfigPropertyFilter(cfg.Exclude),
		refused: map[string]map[string]string{},
	}
}

// ID is a topic's id; zero when the broker has none.
type ID = [16]byte

// SourceTopic is a topic as the source describes it.
type SourceTopic struct {
	Name       string
	ID         ID
	Partitions int32
}

// Discovery is what is on the source.
type Discovery struct {
	ClusterID string
	// Existing is the number of topics the source shows us, internal ones not counted.
	Existing int
	// Unclear are topics that the source names without being able to describe them now: not gone, not selected.
	Unclear map[string]bool
	Selection
}

// Discover lists the source's topics and selects.
func (r *Room) Discover(ctx context.Context) (Discovery, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	resp, err := metadata(ctx, r.cfg.Source, req)
	if err != nil {
		return Discovery{}, fmt.Errorf("list source topics: %w", err)
	}
	d := Discovery{ClusterID: deref(resp.ClusterID), Unclear: map[string]bool{}}
	all := make([]SourceTopic, 0, len(resp.Topics))
	for _, t := range resp.Topics {
		// Topics that Kafka itself calls internal carry names that the rule excludes anyhow; they are shown as excluded.
		if t.Topic == nil {
			continue
		}
		if len(t.Partitions) == 0 {
			d.Unclear[*t.Topic] = true
			continue
		}
		if !t.IsInternal {
			d.Existing++
		}
		all = append(all, SourceTopic{Name: *t.Topic, ID: t.TopicID, Partitions: partitionCount(t.Partitions)})
	}
	d.Selection = r.sel.apply(all)
	return d, nil
}

// TargetTopic is a remote topic as the target describes it.
type TargetTopic struct {
	ID         ID
	Partitions int32
	// Leaders is true when each partition has a leader.
	Leaders bool
}

// Target is what the target says about the remote topics asked for. Topics that do not exist are absent.
type Target struct {
	ClusterID string
	Topics    map[string]TargetTopic
	// Errors are topics that the target would not describe.
	Errors map[string]error
}

// DescribeTarget asks for the given remote topics, by name and without creating any.
func (r *Room) DescribeTarget(ctx context.Context, remote []string) (Target, error) {
	out := Target{Topics: map[string]TargetTopic{}, Errors: map[string]error{}}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // an empty list asks for the cluster only
	for _, name := range remote {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := metadata(ctx, r.cfg.Target, req)
	if err != nil {
		return out, fmt.Errorf("describe remote topics: %w", err)
	}
	out.ClusterID = deref(resp.ClusterID)
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil && len(t.Partitions) == 0:
			out.Errors[*t.Topic] = err
		default:
			tt := TargetTopic{ID: t.TopicID, Partitions: partitionCount(t.Partitions), Leaders: true}
			for _, p := range t.Partitions {
				if p.Leader < 0 {
					tt.Leaders = false
				}
			}
			out.Topics[*t.Topic] = tt
		}
	}
	return out, nil
}

func metadata(ctx context.Context, to Requester, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	req.AllowAutoTopicCreation = false
	resp, err := to.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// partitionCount is the highest number + 1: a partition that metadata leaves out for the moment is still one.
func partitionCount(ps []kmsg.MetadataResponseTopicPartition) int32 {
	n := int32(0)
	for _, p := range ps {
		n = max(n, p.Partition+1)
	}
	return n
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

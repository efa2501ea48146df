package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

// describeChunk bounds one DescribeConfigs request: a topic has some 35 configs of about 60 bytes.
const describeChunk = 250

// described is one topic's configs, or why there are none.
type described struct {
	entries []mm2.ConfigEntry
	err     error
}

// describeConfigs asks for all configs of topics. The error is about the request; each topic has its own beside that.
func describeConfigs(ctx context.Context, from Requester, names []string) (map[string]described, error) {
	out := make(map[string]described, len(names))
	for len(names) > 0 {
		n := min(len(names), describeChunk)
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range names[:n] {
			res := kmsg.NewDescribeConfigsRequestResource()
			res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
			req.Resources = append(req.Resources, res)
		}
		names = names[n:]
		resp, err := from.Request(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			d := described{err: brokerError(r.ErrorCode, r.ErrorMessage)}
			for _, c := range r.Configs {
				d.entries = append(d.entries, mm2.ConfigEntry{
					Name: c.Name, Value: c.Value, Source: mm2.ConfigSource(c.Source), ReadOnly: c.ReadOnly, Sensitive: c.IsSensitive,
				})
			}
			out[r.ResourceName] = d
		}
	}
	return out, nil
}

// learnKnown finds out which config names the target knows, once.
func (r *Room) learnKnown(ctx context.Context) {
	if r.known != nil || r.cfg.KnownConfigsFrom == "" {
		return
	}
	ds, err := describeConfigs(ctx, r.cfg.Target, []string{r.cfg.KnownConfigsFrom})
	d := ds[r.cfg.KnownConfigsFrom]
	if err != nil || d.err != nil || len(d.entries) == 0 {
		r.cfg.Logger.Debug("config names of the target are not known", slog.String("topic", r.cfg.KnownConfigsFrom), slog.Any("error", errors.Join(err, d.err)))
		return
	}
	r.known = make(map[string]bool, len(d.entries))
	for _, e := range d.entries {
		r.known[e.Name] = true
	}
}

// alterConfigs sends ops for one topic; validate only asks whether they would be taken.
func alterConfigs(ctx context.Context, to Requester, topic string, ops []mm2.ConfigOp, validate bool) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = validate
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name = op.Name
		if op.Delete {
			c.Op = kmsg.IncrementalAlterConfigOpDelete
		} else {
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(op.Value)
		}
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	resp, err := to.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

// Error is a broker's refusal with the broker's own words.
type Error struct {
	Code    error // a *kerr.Error
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Message
}

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

func brokerError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	return &Error{Code: err, Message: deref(message)}
}

// denied tells whether an error is about rights.
func denied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

func ownedKeys(owned map[string]string, ops []mm2.ConfigOp) map[string]string {
	out := make(map[string]string, len(owned))
	for k, v := range owned {
		out[k] = v
	}
	for _, op := range ops {
		if !op.Delete {
			out[op.Name] = op.Value
		}
	}
	return out
}

func opNames(ops []mm2.ConfigOp) []string {
	out := make([]string, len(ops))
	for i, op := range ops {
		out[i] = op.Name
	}
	return out
}

func wrapTopic(topic string, err error) error { return fmt.Errorf("topic %s: %w", topic, err) }

package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Redactor takes the secrets of credentials out of text: those that are current, and those that were replaced or, as
// tokens, handed out lately. What a broker or a token endpoint says may echo what we sent, so whatever quotes them goes
// through it on the way to a log, a condition or an answer. Members may be nil. Safe for concurrent use.
type Redactor []*Credentials

// Redact replaces the secrets in text by "[redacted]", also where they are escaped, in hex or in base64. Secrets of
// fewer than four bytes are replaced only where they stand alone.
func (c *Credentials) Redact(text string) string {
	if c == nil {
		return text
	}
	return c.secrets.replace(text)
}

// Redact returns err with a text for logs, see Redactor.Error.
func (c Cluster) Redact(err error) error { return Redactor{c.Credentials}.Error(err) }

// Text replaces the secrets in text.
func (r Redactor) Text(text string) string {
	for _, c := range r {
		text = c.Redact(text)
	}
	return text
}

// Error returns err itself when its text holds no secret, else an error with the redacted text that unwraps to err.
func (r Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := r.Text(text); clean != text {
		return &redactedError{clean, err}
	}
	return err
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// Format has every verb print the redacted text.
func (e *redactedError) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(e.text)) }

// Logger returns a logger all of whose messages and attributes are redacted; nil for nil.
func (r Redactor) Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return nil
	}
	return slog.New(redactingHandler{log.Handler(), r})
}

// redactingHandler is a slog.Handler that redacts.
type redactingHandler struct {
	next slog.Handler
	r    Redactor
}

// Enabled implements slog.Handler.
func (h redactingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h redactingHandler) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, h.r.Text(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.r.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return redactingHandler{h.next.WithAttrs(h.r.attrs(attrs)), h.r}
}

// WithGroup implements slog.Handler.
func (h redactingHandler) WithGroup(name string) slog.Handler {
	return redactingHandler{h.next.WithGroup(name), h.r}
}

func (r Redactor) attrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = r.attr(a)
	}
	return out
}

func (r Redactor) attr(a slog.Attr) slog.Attr {
	return slog.Attr{Key: r.Text(a.Key), Value: r.value(a.Value.Resolve())}
}

func (r Redactor) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(r.Text(v.String()))
	case slog.KindGroup:
		return slog.GroupValue(r.attrs(v.Group())...)
	case slog.KindAny:
		return r.any(v)
	default:
		return v // numbers and times
	}
}

// any keeps values that hold no secret as they are, so that handlers print them as ever.
func (r Redactor) any(v slog.Value) slog.Value {
	switch x := v.Any().(type) {
	case nil:
		return v
	case error:
		return slog.AnyValue(r.Error(x))
	case []byte:
		if text := string(x); r.Text(text) != text {
			return slog.StringValue(r.Text(text))
		}
	default:
		// Handlers print a value in one of two ways; what it holds shows in either.
		text := fmt.Sprintf("%+v", x)
		if clean := r.Text(text); clean != text {
			return slog.StringValue(clean)
		}
		if raw, err := json.Marshal(x); err == nil { // else the handler cannot print it so either
			if clean := r.Text(string(raw)); clean != string(raw) {
				return slog.StringValue(clean)
			}
		}
	}
	return v
}

// redact makes a problem presentable: brokers name mechanisms, hosts and ids, which a message quotes.
func (c Cluster) redact(p *Problem) *Problem {
	if p == nil || c.Credentials == nil {
		return p
	}
	clean := *p
	clean.Message, clean.Remedy, clean.Err = c.Credentials.Redact(p.Message), c.Credentials.Redact(p.Remedy), c.Redact(p.Err)
	return &clean
}

package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Settings of every client; callers override them with options of their own.
const (
	requestOverhead = 10 * time.Second
	retryTimeout    = 20 * time.Second
	metadataMaxAge  = time.Minute
	// After a leader moved, new metadata are asked for no more often than this.
	metadataMinAge = 500 * time.Millisecond
)

// Options returns the options that connect a client to the cluster. Each new
// connection reads c.Credentials anew; connections that are open stay as they
// are. clientID appears in the brokers' logs and quotas. hooks may be nil
// (Metrics.Hook makes one).
//
// An error is a *Problem about the settings; nothing is dialled.
func (c Cluster) Options(clientID string, log *slog.Logger, hooks ...kgo.Hook) ([]kgo.Opt, error) {
	if p := c.validate(); p != nil {
		return nil, p
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.BootstrapServers...),
		kgo.ClientID(clientID),
		kgo.SoftwareNameAndVersion(softwareName, softwareVersion()),
		kgo.Dialer(c.dial),
		kgo.WithLogger(clientLogger{Redactor{c.Credentials}.Logger(log)}),
		kgo.RequestTimeoutOverhead(requestOverhead),
		kgo.RetryTimeout(retryTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.DisableClientMetrics(),
		// A broker that stops closes connections that were just opened; giving up on the first such end would turn a
		// restart into a failure. A wrong protocol, which looks the same, is found by Diagnose.
		kgo.AlwaysRetryEOF(),
	}
	if c.Credentials.Get().UsesSASL() {
		opts = append(opts, kgo.SASL(liveMechanism{c}))
	}
	all := make([]kgo.Hook, 0, len(hooks)+1)
	for _, h := range hooks {
		if h != nil {
			all = append(all, h)
		}
	}
	if c.Metrics != nil {
		all = append(all, c.Metrics.Hook(c.Side))
	}
	all = append(all, tokenHook{c.Credentials})
	return append(opts, kgo.WithHooks(all...)), nil
}

// NewClient makes a client; opts come after those of Options and win. It does
// not connect. The caller closes it.
func NewClient(c Cluster, clientID string, log *slog.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	all, err := c.Options(clientID, log)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make kafka client %s: %w", clientID, err)
	}
	return client, nil
}

func (c Cluster) validate() *Problem {
	if len(c.BootstrapServers) == 0 {
		return &Problem{
			Code: Unreachable, Step: StepResolve, Message: "The service has no bootstrap servers.",
			Remedy: "Give at least one address host:port in bootstrapServers.",
		}
	}
	for _, a := range c.BootstrapServers {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return &Problem{
				Code: Unreachable, Step: StepResolve, Address: a, Err: err,
				Message: fmt.Sprintf("The bootstrap server %q is not an address of the form host:port.", a),
				Remedy:  "Write it as host:port, for example kafka-1.example.net:9092.",
			}
		}
	}
	return c.Credentials.Get().Validate()
}

// backoff grows from 100 ms to 2 s, with a fifth of jitter so that clients do not come back in step.
func backoff(tries int) time.Duration {
	d := min(2*time.Second, 100*time.Millisecond<<min(max(tries-1, 0), 10))
	return d - time.Duration(rand.Int64N(int64(d)/5))
}

// tokenHook drops a cached token when a login with it failed.
type tokenHook struct{ credentials *Credentials }

// OnBrokerConnect implements kgo.HookBrokerConnect; err covers the login.
func (h tokenHook) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && KindOf(err) == KindAuthentication && h.credentials.Get().SASL.Mechanism == OAuthBearer {
		h.credentials.tokens.rejected()
	}
}

// clientLogger passes the client library's log on, two levels down: what it
// warns of is usually a retry, and lasting trouble becomes a condition. log
// redacts: the library quotes brokers.
type clientLogger struct{ log *slog.Logger }

// Level implements kgo.Logger.
func (l clientLogger) Level() kgo.LogLevel {
	switch {
	case l.log == nil:
		return kgo.LogLevelNone
	case l.log.Enabled(context.Background(), slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.log.Enabled(context.Background(), slog.LevelWarn):
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if l.log == nil {
		return
	}
	to := slog.LevelDebug
	if level == kgo.LogLevelError {
		to = slog.LevelWarn
	}
	attrs := make([]any, 0, len(keyvals)+2)
	attrs = append(attrs, "client_message", msg)
	for i, v := range keyvals {
		if i%2 == 0 && v == "err" {
			v = "error"
		}
		attrs = append(attrs, v)
	}
	l.log.Log(context.Background(), to, "kafka client", attrs...)
}

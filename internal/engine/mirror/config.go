package mirror

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config is what a path needs. Source, Target, ClientID and Observer are required; zero values of the others stand
// for the defaults given.
type Config struct {
	// Hub is what the path shares with others; it must be open until Run has returned. Default: one of its own.
	Hub            *hub.Hub
	Source, Target kafka.Cluster
	// ClientID names the path to brokers when it has a hub of its own: "<src>-><tgt>|<flow>-<task>".
	ClientID string
	// Flow and Task label the metrics; two paths with the same labels cannot share a Registry.
	Flow string
	Task int
	// PassThrough lets batches pass as they are where that is allowed; without it all are taken apart and put together anew.
	PassThrough bool
	// ReadUncommitted copies the records of aborted and open transactions too.
	ReadUncommitted bool
	// MaxBytesInFlight and FetchBytes are of a hub of its own (hub.Config).
	MaxBytesInFlight int64
	FetchBytes       int32
	// RetryMin and RetryMax bound the back-off of a stopped partition that tries again by itself; defaults 1 s, 30 s.
	RetryMin, RetryMax time.Duration
	// MissingGrace is how long a topic or partition may be absent from the metadata, which may be late after a creation,
	// before it counts as missing; default 3 s.
	MissingGrace time.Duration
	// UnreachableAfter is how long a side must fail without any success before Observer.Connection tells; of a hub of its
	// own; default 2 s.
	UnreachableAfter time.Duration
	// MetadataMaxAge is the age at which the topics' metadata are asked for again; default 10 s.
	MetadataMaxAge time.Duration
	// MayWrite is asked right before a Produce request is sent; false: not now. It must not block. Default: always.
	MayWrite func() bool
	// Anchor stores points, by source partition, and returns when they are durable. Nothing is sent under a producer identity
	// before, so that a successor knows under which to look. It may be called from several goroutines. While it fails
	// nothing is sent for AnchorPatience, then without; default: points are not stored.
	Anchor func(ctx context.Context, points map[TP]Point) error
	// AnchorPatience: default 10 s.
	AnchorPatience time.Duration
	Logger         *slog.Logger          // default: discard
	Registry       prometheus.Registerer // default: no metrics
	Observer       Observer
}

func (c *Config) setDefaults() error {
	switch {
	case c.Observer == nil:
		return errors.New("mirror: config: Observer is missing")
	case c.ClientID == "":
		return errors.New("mirror: config: ClientID is missing")
	case c.Source.Credentials == nil || c.Target.Credentials == nil:
		return errors.New("mirror: config: Source or Target has no Credentials")
	}
	setDefault(&c.RetryMin, time.Second)
	setDefault(&c.RetryMax, 30*time.Second)
	setDefault(&c.MissingGrace, 3*time.Second)
	setDefault(&c.MetadataMaxAge, 10*time.Second)
	setDefault(&c.AnchorPatience, 10*time.Second)
	if c.MayWrite == nil {
		c.MayWrite = func() bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

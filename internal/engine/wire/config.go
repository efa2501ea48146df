package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

// Config says how to reach a broker and how to treat it.
type Config struct {
	Cluster kafka.Cluster
	// Address is host:port, as the cluster's metadata have it.
	Address string
	// Node is the broker's id, for hooks.
	Node int32
	// ClientID appears in the broker's logs and quotas.
	ClientID string
	// Pool gives the buffers of fetch answers; default: one of the connection's own that keeps none.
	Pool *Pool
	// Silence is how long a broker may send nothing of an answer, beyond what a request allows it to wait; default 20 s.
	// A connection on which nothing comes for that long is given up: the broker may be gone without a word.
	Silence time.Duration
	// SlowestRate is the rate in bytes per second at which a request must get away at least; default 64 KiB/s. Its time is
	// added to Silence.
	SlowestRate int
	// MaxAnswer bounds an answer; default 1 GiB. Larger ones end the connection.
	MaxAnswer int
	// Hook gets the client library's hooks for connections, bytes and throttling (kafka.Metrics.Hook); may be nil.
	Hook kgo.Hook
}

const (
	defaultSilence = 20 * time.Second
	defaultRate    = 64 << 10
	defaultAnswer  = 1 << 30
	// slack is what an answer to a fetch may have beyond the bytes asked for before its length is doubted, and all that
	// other answers may have.
	slack = 1 << 20
)

func (c *Config) setDefaults() {
	if c.Pool == nil {
		c.Pool = NewPool(0)
	}
	if c.Silence <= 0 {
		c.Silence = defaultSilence
	}
	if c.SlowestRate <= 0 {
		c.SlowestRate = defaultRate
	}
	if c.MaxAnswer <= 0 {
		c.MaxAnswer = defaultAnswer
	}
}

func (c *Config) meta() kgo.BrokerMetadata {
	m := kgo.BrokerMetadata{NodeID: c.Node}
	if host, port, err := net.SplitHostPort(c.Address); err == nil {
		m.Host = host
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			m.Port = int32(n)
		}
	}
	return m
}

// ErrVersion is wrapped when a broker and we have no version of a request in common.
var ErrVersion = errors.New("no common version")

// ErrClosed is what ended a connection that we closed.
var ErrClosed = errors.New("connection closed")

// ErrWithheld is the error of Conn.Produce where ProduceRequest.May said no: nothing was sent.
var ErrWithheld = errors.New("the right to write has ended")

// LostError ends a request whose connection ended before its answer.
type LostError struct {
	// Sent: all of the request went away. The broker may have acted on it, or may do so later. Otherwise it has not and
	// will not.
	Sent bool
	// Err is what ended the connection.
	Err error
}

// Error implements error.
func (e *LostError) Error() string {
	if e.Sent {
		return fmt.Sprintf("no answer: %v", e.Err)
	}
	return fmt.Sprintf("not sent: %v", e.Err)
}

// Unwrap returns what ended the connection.
func (e *LostError) Unwrap() error { return e.Err }

// Dial connects to a broker: TLS, API versions and login included (kafka.Cluster.DialAuthenticated, whose errors it
// returns). The caller ends it with Close.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	cfg.setDefaults()
	began := time.Now()
	meta := cfg.meta()
	conn, err := cfg.Cluster.DialAuthenticated(ctx, cfg.Address, cfg.ClientID)
	if h, ok := cfg.Hook.(kgo.HookBrokerConnect); ok {
		var raw net.Conn
		if conn != nil {
			raw = conn.Conn
		}
		h.OnBrokerConnect(meta, time.Since(began), raw, err)
	}
	if err != nil {
		return nil, err
	}
	return newConn(conn, cfg, meta), nil
}

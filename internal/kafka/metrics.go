package kafka

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Metrics are the clients' metrics. Labels: side (source, target, check) and,
// for errors, where it happened and of what kind; both sets are small and fixed.
type Metrics struct {
	connects   *prometheus.CounterVec
	open       *prometheus.GaugeVec
	sent       *prometheus.CounterVec
	received   *prometheus.CounterVec
	failures   *prometheus.CounterVec
	throttled  *prometheus.CounterVec
	handshakes *prometheus.HistogramVec
}

// NewMetrics registers the metrics, or finds those that are registered already,
// so that many clients share one set. reg may be nil: nothing is registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "mirrorflow", Subsystem: "kafka", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		connects: counter("connects_total", "Connections opened to brokers, logins included, by result.", "side", "result"),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "mirrorflow", Subsystem: "kafka", Name: "connections", Help: "Connections to brokers that are open.",
		}, []string{"side"}),
		sent:      counter("sent_bytes_total", "Bytes written to brokers, before TLS.", "side"),
		received:  counter("received_bytes_total", "Bytes read from brokers, after TLS.", "side"),
		failures:  counter("errors_total", "Failed connections, writes and reads, by kind.", "side", "operation", "kind"),
		throttled: counter("throttled_seconds_total", "Time for which brokers told clients to wait.", "side"),
		handshakes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "mirrorflow", Subsystem: "kafka", Name: "connect_seconds", Help: "Time to open a connection, login included.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"side"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	errs = append(errs, adopt(reg, &m.connects), adopt(reg, &m.open), adopt(reg, &m.sent), adopt(reg, &m.received),
		adopt(reg, &m.failures), adopt(reg, &m.throttled), adopt(reg, &m.handshakes))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register kafka metrics: %w", err)
	}
	return m, nil
}

// adopt registers *c, or replaces it by the equal one that is registered.
func adopt[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		same, ok := there.ExistingCollector.(C)
		if !ok {
			return err
		}
		*c = same
		return nil
	}
	return err
}

// Hook is for Options of one client. side is "source", "target" or "check".
func (m *Metrics) Hook(side string) kgo.Hook { return metricsHook{m, side} }

type metricsHook struct {
	m    *Metrics
	side string
}

var _ interface {
	kgo.HookBrokerConnect
	kgo.HookBrokerDisconnect
	kgo.HookBrokerWrite
	kgo.HookBrokerRead
	kgo.HookBrokerThrottle
} = metricsHook{}

func (h metricsHook) OnBrokerConnect(_ kgo.BrokerMetadata, took time.Duration, conn net.Conn, err error) {
	if conn != nil {
		// A connection whose login failed is closed with a disconnect, too.
		h.m.open.WithLabelValues(h.side).Inc()
	}
	if err != nil {
		h.m.connects.WithLabelValues(h.side, "failed").Inc()
		h.fail("connect", err)
		return
	}
	h.m.connects.WithLabelValues(h.side, "ok").Inc()
	h.m.handshakes.WithLabelValues(h.side).Observe(took.Seconds())
}

func (h metricsHook) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	h.m.open.WithLabelValues(h.side).Dec()
}

func (h metricsHook) OnBrokerWrite(_ kgo.BrokerMetadata, _ int16, n int, _, _ time.Duration, err error) {
	h.m.sent.WithLabelValues(h.side).Add(float64(n))
	if err != nil {
		h.fail("write", err)
	}
}

func (h metricsHook) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, n int, _, _ time.Duration, err error) {
	h.m.received.WithLabelValues(h.side).Add(float64(n))
	if err != nil {
		h.fail("read", err)
	}
}

func (h metricsHook) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	h.m.throttled.WithLabelValues(h.side).Add(d.Seconds())
}

func (h metricsHook) fail(operation string, err error) {
	kind := KindOf(err).String()
	if p := Classify(err); p != nil && KindOf(err) == KindNone {
		kind = string(p.Code)
	}
	h.m.failures.WithLabelValues(h.side, operation, kind).Inc()
}

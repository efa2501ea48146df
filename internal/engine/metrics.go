package engine

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

// metrics of one task. Labels are the flow and the task, source topics and condition codes: no partitions, no groups.
type metrics struct {
	registry       prometheus.Registerer
	lag            *prometheus.GaugeVec
	conditions     *prometheus.GaugeVec
	refreshSeconds prometheus.Histogram
	saveErrors     prometheus.Counter
	collectors     []prometheus.Collector

	mu sync.Mutex // observing and forgetting exclude each other
}

func newMetrics(cfg Config) (*metrics, error) {
	constant := prometheus.Labels{"flow": cfg.Identity.FlowID, "task": fmt.Sprint(cfg.Identity.Task)}
	m := &metrics{
		registry: cfg.Registry,
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrorflow_record_lag", Help: "Records on the source that are not mirrored yet, by source topic.", ConstLabels: constant,
		}, []string{"topic"}),
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrorflow_conditions", Help: "Conditions that are set, by code and severity.", ConstLabels: constant,
		}, []string{"code", "severity"}),
		refreshSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mirrorflow_topic_refresh_seconds", Help: "Duration of one round of topic discovery, creation and config sync.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 8), ConstLabels: constant,
		}),
		saveErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mirrorflow_position_save_errors_total", Help: "Failed attempts to store positions on the target.", ConstLabels: constant,
		}),
	}
	for _, c := range []prometheus.Collector{m.lag, m.conditions, m.refreshSeconds, m.saveErrors} {
		if err := cfg.Registry.Register(c); err != nil {
			err = fmt.Errorf("engine: register metrics: %w", err)
			m.unregister()
			return nil, err
		}
		m.collectors = append(m.collectors, c)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.registry.Unregister(c)
	}
	m.collectors = nil
}

// observeLag sets a topic's gauge.
func (m *metrics) observeLag(topic string, lag int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lag.WithLabelValues(topic).Set(float64(lag))
}

// observeConditions replaces the gauges of conditions.
func (m *metrics) observeConditions(conds []report.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conditions.Reset()
	for _, c := range conds {
		m.conditions.WithLabelValues(c.Code, string(c.Severity)).Inc()
	}
}

// forget drops a topic that is gone.
func (m *metrics) forget(topic string) {
	m.mu.Lock()
	m.lag.DeleteLabelValues(topic)
	m.mu.Unlock()
}

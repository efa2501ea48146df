package mirror

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

// metrics of one path. Labels are the flow, the task and the source topic; partitions are left out, since there are too many.
type metrics struct {
	registry  prometheus.Registerer
	records   *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	latency   prometheus.Histogram
	flying    prometheus.Gauge
	failures  *prometheus.CounterVec
	stops     *prometheus.CounterVec
	batches   *prometheus.CounterVec
	read      prometheus.Counter
	discarded prometheus.Counter
	collected []prometheus.Collector
}

func newMetrics(cfg Config) (*metrics, error) {
	constant := prometheus.Labels{"flow": cfg.Flow, "task": strconv.Itoa(cfg.Task)}
	m := &metrics{
		registry: cfg.Registry,
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorflow_records_total", Help: "Records acknowledged by the target.", ConstLabels: constant,
		}, []string{"topic"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorflow_bytes_total", Help: "Bytes of keys, values and headers acknowledged by the target; of batches that passed through, as they came.", ConstLabels: constant,
		}, []string{"topic"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mirrorflow_replication_latency_seconds", Help: "From a record's timestamp to the target's acknowledgement, last record of each batch.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 12), ConstLabels: constant,
		}),
		flying: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mirrorflow_in_flight_bytes", Help: "Bytes fetched and not yet acknowledged.", ConstLabels: constant,
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorflow_request_errors_total", Help: "Failed requests and refused partitions by side, operation and code.", ConstLabels: constant,
		}, []string{"side", "operation", "code"}),
		stops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorflow_partition_stops_total", Help: "Stops of single partitions by reason.", ConstLabels: constant,
		}, []string{"reason"}),
	}
	m.batches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mirrorflow_batches_total", Help: "Fetched batches by what became of them and why.", ConstLabels: constant,
	}, []string{"verdict", "reason"})
	m.read = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mirrorflow_fetched_bytes_total", Help: "Bytes of record batches that the source sent, as they travel, compressed or not.", ConstLabels: constant,
	})
	m.discarded = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mirrorflow_discarded_bytes_total", Help: "Of the fetched bytes, those thrown away, to be fetched again: batches cut off at an answer's end, and answers that nobody waited for any more.", ConstLabels: constant,
	})
	if m.registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.records, m.bytes, m.latency, m.flying, m.failures, m.stops, m.batches, m.read, m.discarded} {
		if err := m.registry.Register(c); err != nil {
			m.close()
			return nil, fmt.Errorf("register metrics of flow %s, task %d: %w", cfg.Flow, cfg.Task, err)
		}
		m.collected = append(m.collected, c)
	}
	return m, nil
}

// close takes the metrics out of the registry, so that a later path of the task can register.
func (m *metrics) close() {
	for _, c := range m.collected {
		m.registry.Unregister(c)
	}
	m.collected = nil
}

func (m *metrics) inFlight(n int64) { m.flying.Set(float64(n)) }

func (m *metrics) batch(verdict, reason string) { m.batches.WithLabelValues(verdict, reason).Inc() }

// fetched counts what the source sent, of which lost bytes are of no use.
func (m *metrics) fetched(n, lost int) {
	m.read.Add(float64(n))
	m.discarded.Add(float64(lost))
}

func (m *metrics) stop(r Reason) { m.stops.WithLabelValues(r.String()).Inc() }

func (m *metrics) mirrored(topic string, records, bytes, lastTimestamp int64, now time.Time) {
	m.records.WithLabelValues(topic).Add(float64(records))
	m.bytes.WithLabelValues(topic).Add(float64(bytes))
	if lastTimestamp >= 0 {
		// Clocks differ: a record from the future counts as instant.
		m.latency.Observe(max(0, float64(now.UnixMilli()-lastTimestamp)/1000))
	}
}

func (m *metrics) failure(side, operation string, err error) {
	code := "CONNECTION" // no answer of a broker
	var ke *kerr.Error
	if errors.As(err, &ke) {
		code = ke.Message
	}
	m.failures.WithLabelValues(side, operation, code).Inc()
}

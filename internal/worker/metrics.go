package worker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// metrics of the supervisor. All labels are from small closed sets.
type metrics struct {
	leases       *prometheus.GaugeVec
	tasks        *prometheus.GaugeVec
	trust        prometheus.Gauge
	acquired     prometheus.Counter
	ended        *prometheus.CounterVec
	moved        prometheus.Counter
	renewals     *prometheus.HistogramVec
	restarts     *prometheus.CounterVec
	jobs         *prometheus.CounterVec
	jobSeconds   *prometheus.HistogramVec
	storeErrors  *prometheus.CounterVec
	workersAlive prometheus.Gauge
}

// leaseStates are the values of the label state of mirrorflow_worker_leases.
var leaseStates = []string{"running", "draining", "releasing", "lost"}

var taskStates = []flows.FlowState{
	flows.StateStarting, flows.StateRunning, flows.StateDegraded, flows.StateFailed, flows.StateStopped,
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "mirrorflow", Subsystem: "worker", Name: name, Help: help}
	}
	m := &metrics{
		leases: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("leases", "Leases in this process, by what happens under them.")), []string{"state"}),
		tasks:  prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("tasks", "Tasks in this process, by the state they last reported.")), []string{"state"}),
		trust: prometheus.NewGauge(prometheus.GaugeOpts(opts("lease_trust_seconds",
			"Time until the first of the held leases must be given up unless renewed; the TTL without leases."))),
		acquired: prometheus.NewCounter(opts("leases_acquired_total", "Leases acquired.")),
		ended:    prometheus.NewCounterVec(opts("leases_ended_total", "Leases that ended, by reason."), []string{"reason"}),
		moved:    prometheus.NewCounter(opts("tasks_moved_total", "Tasks given away to workers that had fewer.")),
		renewals: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "mirrorflow", Subsystem: "worker", Name: "renew_seconds",
			Help:    "Duration of the statement that renews all leases, by result.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"result"}),
		restarts: prometheus.NewCounterVec(opts("task_starts_total", "Engines started, by reason."), []string{"reason"}),
		jobs:     prometheus.NewCounterVec(opts("jobs_total", "Jobs run, by kind and result."), []string{"kind", "result"}),
		jobSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "mirrorflow", Subsystem: "worker", Name: "job_seconds", Help: "Duration of jobs, by kind.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"kind"}),
		storeErrors:  prometheus.NewCounterVec(opts("store_errors_total", "Failed calls to the database, by call."), []string{"call"}),
		workersAlive: prometheus.NewGauge(prometheus.GaugeOpts(opts("alive", "Workers alive, as the database last said."))),
	}
	for _, c := range []prometheus.Collector{
		m.leases, m.tasks, m.trust, m.acquired, m.ended, m.moved, m.renewals, m.restarts, m.jobs, m.jobSeconds, m.storeErrors, m.workersAlive,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register worker metrics: %w", err)
		}
	}
	return m, nil
}

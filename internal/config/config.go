package config

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"
)

// Prefix is what every variable's name begins with.
const Prefix = "MIRRORFLOW_"

// Process holds what every long-running process needs.
type Process struct {
	// DatabaseURL is a postgres:// URL or a keyword/value string. Required. May hold a password.
	DatabaseURL string `env:"DATABASE_URL"`
	// LogLevel is the least level that is logged.
	LogLevel slog.Level `env:"LOG_LEVEL" envDefault:"INFO"`
	// DrainTimeout is how long a stopping process waits for what runs (requests, tasks).
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"10s"`
}

// Auth tells who may call the API.
type Auth string

// The ways to authenticate.
const (
	AuthTokens Auth = "tokens" // a bearer token, bound to a project
	AuthNone   Auth = "none"   // everybody, in project "default"; on loopback only
)

// API configures mirrorflow-api.
type API struct {
	Process
	// Listen is the address of the HTTP API, host:port; port 0 takes a free one.
	Listen string `env:"LISTEN" envDefault:"127.0.0.1:8080"`
	// MetricsListen moves /healthz, /readyz and /metrics to a listener of their own; "": they stay on Listen.
	MetricsListen string `env:"METRICS_LISTEN"`
	// Auth is AuthTokens unless Listen is a loopback address and the operator chose AuthNone.
	Auth Auth `env:"AUTH" envDefault:"tokens"`
	// BootstrapTokenFile holds the text of a token for project "default"; "": none.
	BootstrapTokenFile string `env:"BOOTSTRAP_TOKEN_FILE"`
	// SecretPublicKeysFile holds the keys that secrets are sealed to; "": secrets are refused.
	SecretPublicKeysFile string `env:"SECRET_PUBLIC_KEYS_FILE"`
}

// Worker configures mirrorflow-worker.
type Worker struct {
	Process
	// WorkerID names the process in leases and status, one name for each worker; default: host
	// name and a random part, new at each start.
	WorkerID string `env:"WORKER_ID"`
	// WorkerListen is the address of health and metrics.
	WorkerListen string `env:"WORKER_LISTEN" envDefault:"127.0.0.1:8081"`
	// LeaseTTL is how long a lease lasts without renewal: at most this and 2 s pass until the
	// tasks of a dead worker run elsewhere. 3 s to 10 min.
	LeaseTTL time.Duration `env:"LEASE_TTL" envDefault:"10s"`
	// SecretPrivateKeysFile holds the keys that open secrets; "": flows whose clusters need
	// secrets do not run and say so.
	SecretPrivateKeysFile string `env:"SECRET_PRIVATE_KEYS_FILE"`
	// DataPath says how records are moved.
	DataPath DataPath `env:"DATA_PATH" envDefault:"batches"`
	// MaxBytesInFlight is how many bytes all tasks of the worker together hold that were read and not acknowledged yet.
	// 1 MiB to 64 GiB.
	MaxBytesInFlight int64 `env:"MAX_BYTES_IN_FLIGHT" envDefault:"20971520"`
	// Rack is where the worker runs, as brokers' broker.rack; "": leaders are read.
	Rack string `env:"RACK"`
}

// DataPath is a way to move records.
type DataPath string

// The data paths.
const (
	DataPathRecords DataPath = "records" // every batch taken apart and put together anew
	DataPathBatches DataPath = "batches" // whole batches passed through as bytes where that is allowed
)

// Ctl configures mirrorctl.
type Ctl struct {
	DatabaseURL string `env:"DATABASE_URL"`
}

// Bounds of settings.
const (
	MinLeaseTTL     = 3 * time.Second
	MaxLeaseTTL     = 10 * time.Minute
	MaxDrainTimeout = 10 * time.Minute
	// Of Worker.MaxBytesInFlight.
	MinBytesInFlight = 1 << 20
	MaxBytesInFlight = 64 << 30
)

// LoadAPI reads the API's settings from environ, in the form of os.Environ.
// Warnings are for the log. The error lists every fault, one a line.
func LoadAPI(environ []string) (c API, warnings []string, err error) {
	p := parse(environ, &c)
	p.process(c.Process)
	p.address("LISTEN", c.Listen, true)
	p.address("METRICS_LISTEN", c.MetricsListen, false)
	switch c.Auth {
	case AuthTokens:
	case AuthNone:
		if !isLoopback(c.Listen) {
			p.fault("AUTH", "none is accepted only when "+Prefix+"LISTEN is a loopback address such as 127.0.0.1:8080; use tokens")
		}
	default:
		p.fault("AUTH", fmt.Sprintf("is %q, must be tokens or none", string(c.Auth)))
	}
	return c, unknownVariables(environ), p.err()
}

// workerID is what a worker's id may look like.
var workerID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// LoadWorker reads the worker's settings; see LoadAPI.
func LoadWorker(environ []string) (c Worker, warnings []string, err error) {
	p := parse(environ, &c)
	p.process(c.Process)
	p.address("WORKER_LISTEN", c.WorkerListen, true)
	p.within("LEASE_TTL", c.LeaseTTL, MinLeaseTTL, MaxLeaseTTL)
	if c.DataPath != DataPathRecords && c.DataPath != DataPathBatches {
		p.fault("DATA_PATH", fmt.Sprintf("is %q, must be records or batches", string(c.DataPath)))
	}
	if c.MaxBytesInFlight < MinBytesInFlight || c.MaxBytesInFlight > MaxBytesInFlight {
		p.fault("MAX_BYTES_IN_FLIGHT", fmt.Sprintf("is %d, must be %d to %d", c.MaxBytesInFlight, int64(MinBytesInFlight), int64(MaxBytesInFlight)))
	}
	if c.WorkerID == "" {
		c.WorkerID = defaultWorkerID()
	} else if !workerID.MatchString(c.WorkerID) {
		p.fault("WORKER_ID", fmt.Sprintf("is %q, must be 1 to 128 letters, digits, '.', '_', ':' or '-', beginning with a letter or digit", c.WorkerID))
	}
	return c, unknownVariables(environ), p.err()
}

// LoadCtl reads mirrorctl's settings; see LoadAPI.
func LoadCtl(environ []string) (c Ctl, err error) {
	p := parse(environ, &c)
	p.databaseURL("DATABASE_URL", c.DatabaseURL)
	return c, p.err()
}

// defaultWorkerID joins the host's name and a random part, so that workers of
// one host can be told apart.
func defaultWorkerID() string {
	host, err := os.Hostname()
	if err != nil || !workerID.MatchString(host) || len(host) > 100 {
		host = "worker"
	}
	return host + "-" + rand.Text()[:8]
}

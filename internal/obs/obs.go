package obs

import (
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Version is set by the linker (-X …/internal/obs.Version=1.2.3) and by nobody else; "" when it was not.
var Version string

// Build tells what is running.
type Build struct {
	Version  string // as linked, else the module's, else "devel"
	Revision string // of the version control system, "" when unknown
	Modified bool   // built from a changed tree
	Go       string // toolchain
}

// ReadBuild answers the build of this binary.
func ReadBuild() Build {
	b := Build{Version: Version}
	info, ok := debug.ReadBuildInfo()
	if ok {
		b.Go = info.GoVersion
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
}

// NewLogger answers a logger that writes JSON lines to w, each with the name
// of the process ("mirrorflow-api") as attribute process.
func NewLogger(w io.Writer, level slog.Leveler, process string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})).
		With(slog.String("process", process))
}

// LogStart writes the one line that tells which build started, and one for
// each warning of the configuration.
func LogStart(log *slog.Logger, warnings []string) {
	b := ReadBuild()
	log.Info("starting",
		slog.String("version", b.Version), slog.String("revision", b.Revision),
		slog.Bool("modified", b.Modified), slog.String("go", b.Go))
	for _, w := range warnings {
		log.Warn("configuration", slog.String("detail", w))
	}
}

// NewRegistry answers a registry with the Go runtime's, the process's and the
// build's metrics.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	b := ReadBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "mirrorflow_build_info",
		Help:        "Always 1; the labels tell what is running.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	info.Set(1)
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return r
}

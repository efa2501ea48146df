package obs

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds one readiness check.
const readyTimeout = 2 * time.Second

// Endpoints answers /healthz (200 while the process serves), /readyz (200 when
// ready answers nil, else 503) and /metrics. None needs a token and none tells
// more than a word: the reason of a failed check goes to the log.
func Endpoints(g prometheus.Gatherer, ready func(context.Context) error, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", Healthz())
	mux.Handle("GET /readyz", Readyz(ready, log))
	mux.Handle("GET /metrics", Metrics(g, log))
	return mux
}

// Healthz answers 200 while the process serves.
func Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { word(w, http.StatusOK, "ok") })
}

// Readyz answers 200 when ready answers nil within 2 s, else 503.
func Readyz(ready func(context.Context) error, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			log.Debug("not ready", slog.Any("error", err))
			word(w, http.StatusServiceUnavailable, "not ready")
			return
		}
		word(w, http.StatusOK, "ready")
	})
}

// Metrics serves what g gathers. Metrics that cannot be gathered are logged,
// and the others served.
func Metrics(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:      errorLog{log},
		ErrorHandling: promhttp.ContinueOnError,
	})
}

func word(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have gone
}

// errorLog is promhttp's logger in terms of slog.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Println(v ...any) {
	l.log.Error("metrics not gathered", slog.Any("detail", v))
}

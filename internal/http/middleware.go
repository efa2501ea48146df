package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// info is what the edge knows of a request. It is written by the goroutine that
// serves the request only.
type info struct {
	id      string
	family  family
	project flows.Project
	problem *problem // the answer, when it is one
	body    any      // the request's body after validation, decoded generically
}

func (in *info) note(p *problem) { in.problem = p }

type infoKey struct{}

// infoFrom returns the request's info; outermost puts it into every context.
func infoFrom(ctx context.Context) *info {
	in, ok := ctx.Value(infoKey{}).(*info)
	if !ok {
		panic("httpapi: a context that did not come through New's handler")
	}
	return in
}

// outermost does what every request needs, routes or not.
func (s *server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := s.cfg.Now()
		r, prefixed := stripPrefix(r)
		in := &info{id: requestID(r), family: familyOf(r.URL.Path, prefixed)}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), infoKey{}, in), s.cfg.RequestTimeout)
		defer cancel()
		// The router's context is made here, so that its pattern can be read afterwards.
		rctx := chi.NewRouteContext()
		rctx.Routes = s.mux
		r = r.WithContext(context.WithValue(ctx, chi.RouteCtxKey, rctx))
		setHeaders(w.Header(), in)
		rec := &recorder{ResponseWriter: w}
		s.metrics.inFlight.Inc()
		defer func() {
			s.metrics.inFlight.Dec()
			s.finish(rec, r, in, rctx.RoutePattern(), start)
		}()
		s.recovered(next, rec, r)
	})
}

// recovered turns a panic into a 500; the stack goes to the log.
func (s *server) recovered(next http.Handler, w *recorder, r *http.Request) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel is panicked as it is
			panic(v)
		}
		s.logger.LogAttrs(r.Context(), slog.LevelError, "http handler panicked",
			slog.String("request_id", infoFrom(r.Context()).id), slog.String("error", panicText(v)), slog.String("stack", string(debug.Stack())))
		if w.status != 0 {
			// Half an answer is out; cutting the connection is the only honest end.
			panic(http.ErrAbortHandler)
		}
		s.writeProblem(w, r, &flows.Error{Code: flows.CodeInternal, Op: "handler panicked"})
	}()
	next.ServeHTTP(w, r)
}

// panicText describes a panic's value without showing what a request may have brought.
func panicText(v any) string {
	if e, ok := v.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("a value of type %T", v)
}

// finish writes the access log and the metrics. Neither bodies nor query
// strings nor headers are logged: they may hold secrets.
func (s *server) finish(rec *recorder, r *http.Request, in *info, pattern string, start time.Time) {
	if pattern == "" {
		pattern = "none"
	}
	status := rec.status
	if status == 0 {
		status = http.StatusOK
	}
	took := s.cfg.Now().Sub(start)
	s.metrics.observe(pattern, r.Method, status, took)
	level := slog.LevelInfo
	switch {
	case status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case status >= 500:
		level = slog.LevelError
	case pattern == "/healthz" || pattern == "/readyz" || pattern == "/metrics":
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("request_id", in.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("route", pattern), slog.Int("status", status), slog.Int64("response_bytes", rec.bytes),
		slog.Float64("duration_seconds", took.Seconds()), slog.String("remote_addr", r.RemoteAddr),
	}
	if in.project.Name != "" {
		attrs = append(attrs, slog.String("project", in.project.Name))
	}
	if in.problem != nil {
		attrs = append(attrs, slog.String("problem", in.problem.kind))
		if status >= 500 && in.problem.cause != nil {
			attrs = append(attrs, slog.String("error", in.problem.cause.Error()))
		}
	}
	s.logger.LogAttrs(r.Context(), level, "http request", attrs...)
}

// requestID takes the caller's id when it is harmless and makes one otherwise.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id != "" && len(id) <= 64 {
		harmless := true
		for _, c := range []byte(id) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
				harmless = false
				break
			}
		}
		if harmless {
			return id
		}
	}
	return uuid.NewString()
}

func setHeaders(h http.Header, in *info) {
	h.Set("X-Request-Id", in.id)
	if in.family == ovh {
		h.Set("X-Ovh-QueryID", in.id)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// AuthMode says how requests find their project.
type AuthMode string

// The modes, as MIRRORFLOW_AUTH names them.
const (
	// AuthTokens wants a bearer token with every request.
	AuthTokens AuthMode = "tokens"
	// AuthNone wants none and acts in the project flows.DefaultProject. The
	// caller sees to it that the listener is on loopback.
	AuthNone AuthMode = "none"
)

// DefaultRequestTimeout leaves room for a connection check, which a worker may take 10 s for.
const DefaultRequestTimeout = 15 * time.Second

// Config is what a server is made of.
type Config struct {
	API flows.API // required
	// Auth; "" means AuthTokens.
	Auth AuthMode
	// Logger gets the access log and the causes of 5xx answers; nil discards.
	Logger *slog.Logger
	// Registerer gets the HTTP metrics; nil keeps them to the server.
	Registerer prometheus.Registerer
	// Metrics is served at /metrics; nil: that route does not exist.
	Metrics http.Handler
	// RequestTimeout bounds the work for a request; 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// OnInvalidResponse, when set, has every answer compared with the contract and is told of
	// each that does not follow it. For tests: answers are kept in memory for it.
	OnInvalidResponse func(r *http.Request, err error)
}

// server is the edge. It holds no state of requests.
type server struct {
	cfg      Config
	api      flows.API
	logger   *slog.Logger
	metrics  *metrics
	contract *contract
	mux      *chi.Mux
	// noneProject caches the project of AuthNone, whose id never changes.
	noneProject atomic.Pointer[flows.Project]
}

// New returns the handler of the whole API: both route families, health, the
// contract and, when configured, /metrics. It panics on a configuration that
// cannot work, which is a mistake in wiring.
func New(cfg Config) http.Handler {
	if cfg.API == nil {
		panic("httpapi: a server needs an API")
	}
	switch cfg.Auth {
	case "":
		cfg.Auth = AuthTokens
	case AuthTokens, AuthNone:
	default:
		panic("httpapi: unknown auth mode " + string(cfg.Auth))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	contract, err := loadContract()
	if err != nil {
		panic("httpapi: the embedded contract: " + err.Error())
	}
	s := &server{cfg: cfg, api: cfg.API, logger: cfg.Logger, contract: contract, metrics: newMetrics(cfg.Registerer)}
	s.mux = s.routes()
	return s.outermost(s.mux)
}

func (s *server) routes() *chi.Mux {
	mux := chi.NewRouter()
	mux.Use(middleware.GetHead)
	mux.NotFound(s.noRoute)
	mux.MethodNotAllowed(s.noMethod)
	if s.cfg.Metrics != nil {
		mux.Method(http.MethodGet, "/metrics", s.cfg.Metrics)
	}
	strict := apigen.NewStrictHandlerWithOptions(&handlers{server: s}, nil, apigen.StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  s.writeDecodeError,
		ResponseErrorHandlerFunc: s.writeProblem,
	})
	apigen.HandlerWithOptions(strict, apigen.ChiServerOptions{
		// With, not Use: the route must be known when operation looks for its contract.
		BaseRouter:       mux.With(s.operation),
		ErrorHandlerFunc: s.writeDecodeError,
	})
	return mux
}

// writeDecodeError answers what passed the contract and still does not fit a Go type.
func (s *server) writeDecodeError(w http.ResponseWriter, r *http.Request, err error) {
	s.writeProblem(w, r, decodeProblem(err))
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	p := notFound("", "there is no route "+r.URL.Path)
	p.kind, p.title = "no_route", "There is no such route"
	if infoFrom(r.Context()).family == ovh {
		p.message = "Got an invalid (or empty) URL"
	}
	s.writeProblem(w, r, p)
}

func (s *server) noMethod(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if s.mux.Match(chi.NewRouteContext(), m, routePath(r)) {
			allowed = append(allowed, m)
			if m == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	s.writeProblem(w, r, &problem{
		status: http.StatusMethodNotAllowed, kind: "method_not_allowed", title: "The route does not take this method",
		class: "Client::MethodNotAllowed", message: "this route takes " + strings.Join(allowed, ", ") + " only",
		header: http.Header{"Allow": {strings.Join(allowed, ", ")}},
	})
}

// routePath is the path as the router sees it.
func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}

// prefixes lead to the same routes as no prefix.
var prefixes = []string{"/1.0", "/v1"}

// stripPrefix returns r without one of the prefixes, and whether it had one.
func stripPrefix(r *http.Request) (*http.Request, bool) {
	for _, p := range prefixes {
		if r.URL.Path != p && !strings.HasPrefix(r.URL.Path, p+"/") {
			continue
		}
		u := *r.URL
		u.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(u.Path, p), "/")
		if u.RawPath != "" {
			u.RawPath = "/" + strings.TrimPrefix(strings.TrimPrefix(u.RawPath, p), "/")
		}
		q := *r
		q.URL = &u
		return &q, true
	}
	return r, false
}

// flatRoots are the first segments of the flat family.
var flatRoots = []string{"services", "integrations", "replications", "healthz", "readyz", "openapi.yaml", "metrics"}

// familyOf decides by the path alone, so that unknown routes have a shape too.
// What stands below a prefix and is not a flat route is meant for OVHcloud.
func familyOf(path string, prefixed bool) family {
	root, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case root == "cloud" || root == "auth":
		return ovh
	case prefixed && !slices.Contains(flatRoots, root):
		return ovh
	}
	return flat
}

// authenticate finds the project that a request acts in.
func (s *server) authenticate(ctx context.Context, r *http.Request) (flows.Project, error) {
	if s.cfg.Auth == AuthNone {
		if p := s.noneProject.Load(); p != nil {
			return *p, nil
		}
		p, err := s.api.ProjectByName(ctx, flows.DefaultProject)
		if err != nil {
			if flows.CodeOf(err) == flows.CodeNotFound {
				// Not the caller's 404: the server was started on a database without it.
				err = &flows.Error{Code: flows.CodeInternal, Op: "find the default project", Err: err}
			}
			return flows.Project{}, err
		}
		s.noneProject.Store(&p)
		return p, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 512 {
		return flows.Project{}, &flows.Error{Code: flows.CodeUnauthenticated, Message: "send a token as 'Authorization: Bearer <token>'"}
	}
	return s.api.Authenticate(ctx, token)
}

package httpapi

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
	"gopkg.in/yaml.v3"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// maxBody is the largest body that is read.
const maxBody = 1 << 20

// contract is openapi.yaml, for validation and to be served.
type contract struct {
	spec *openapi3.T // never changed after it is read
	text []byte      // YAML
}

// loadContract reads the embedded contract once for the process.
var loadContract = sync.OnceValues(func() (*contract, error) {
	spec, err := apigen.GetSpec()
	if err != nil {
		return nil, err
	}
	text, err := apigen.GetSpecJSON()
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	blockStyle(&node)
	if len(node.Content) == 1 {
		asInFile(node.Content[0])
	}
	out, err := yaml.Marshal(&node)
	if err != nil {
		return nil, err
	}
	return &contract{spec: spec, text: out}, nil
})

// blockStyle makes YAML that was read from JSON look like YAML. The encoder
// quotes what needs quotes, since every node keeps its tag.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// asInFile undoes what the generator changes: it writes operation ids with a
// capital. The parts that the file keeps for its own use are left out.
func asInFile(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, v := n.Content[i], n.Content[i+1]
			switch {
			case key.Value == "x-parts":
				n.Content = slices.Delete(n.Content, i, i+2)
				i -= 2
				continue
			case key.Value == "operationId" && v.Kind == yaml.ScalarNode:
				v.Value = strings.ToLower(v.Value[:1]) + v.Value[1:]
			}
		}
	}
	for _, c := range n.Content {
		asInFile(c)
	}
}

// operation is the way of a request to a route of the contract: who asks, is
// the request in the contract, then the handler. The order matters: nobody
// learns anything about a body without a token.
func (s *server) operation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := s.routeOf(r)
		if s.cfg.OnInvalidResponse != nil {
			checked := newResponseCheck(w)
			defer checked.finish(r, route, s.cfg.OnInvalidResponse)
			w = checked
		}
		r, err := s.admit(w, r, route)
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routeOf finds the contract's operation for a routed request.
func (s *server) routeOf(r *http.Request) *routers.Route {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	item := s.contract.spec.Paths.Value(pattern)
	if item == nil || item.GetOperation(method) == nil {
		// The routes are generated from the contract.
		panic("httpapi: " + method + " " + pattern + " is routed and not in the contract")
	}
	return &routers.Route{Spec: s.contract.spec, Path: pattern, PathItem: item, Method: method, Operation: item.GetOperation(method)}
}

func (s *server) admit(w http.ResponseWriter, r *http.Request, route *routers.Route) (*http.Request, error) {
	in := infoFrom(r.Context())
	if route.Operation.Security == nil || len(*route.Operation.Security) > 0 {
		project, err := s.authenticate(r.Context(), r)
		if err != nil {
			return r, err
		}
		in.project = project
	}
	fields, err := checkParameters(r, route, in.family)
	if err != nil {
		return r, err
	}
	// Another project's name is not found, whatever else is wrong.
	if name := chi.URLParam(r, "serviceName"); name != "" && name != in.project.Name {
		return r, notFound("Client::NotFound::ServiceNotFound", "Service "+name+" does not exist")
	}
	if len(fields) > 0 {
		return r, invalidFields(fields...)
	}
	if route.Operation.RequestBody == nil {
		return r, nil
	}
	body, schema, err := readBody(w, r, route.Operation.RequestBody.Value.Content)
	if err != nil {
		return r, err
	}
	if in.family == ovh {
		body = prune(body, schema)
	}
	if fields := violations(schema, body); len(fields) > 0 {
		return r, invalidFields(fields...)
	}
	in.body = body
	text, err := encodeJSON(body)
	if err != nil {
		return r, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	r.ContentLength = int64(len(text))
	return r, nil
}

// readBody reads a JSON body of one of the content types the operation takes.
func readBody(w http.ResponseWriter, r *http.Request, content openapi3.Content) (any, *openapi3.Schema, error) {
	takes := strings.Join(slices.Sorted(maps.Keys(content)), " or ")
	unsupported := func(message string) error {
		return &problem{
			status: http.StatusUnsupportedMediaType, kind: "unsupported_media_type", title: "The body's media type is not taken",
			class: "Client::UnsupportedMediaType", message: message,
		}
	}
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || content[mediaType] == nil {
		return nil, nil, unsupported("send the body as " + takes)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, nil, unsupported("send the body in UTF-8")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, nil, unsupported("send the body without a content encoding")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, nil, &problem{
			status: http.StatusRequestEntityTooLarge, kind: "too_large", title: "The body is too large",
			class: "Client::RequestEntityTooLarge", message: "the body may have at most 1 MiB",
		}
	case err != nil:
		return nil, nil, &problem{
			status: http.StatusBadRequest, kind: string(flows.CodeInvalid), title: codeProblems[flows.CodeInvalid].title,
			class: "Client::BadRequest", message: "the body did not arrive whole", cause: err,
		}
	}
	body, err := decodeJSON(text)
	if err != nil {
		return nil, nil, err
	}
	return body, content[mediaType].Schema.Value, nil
}

// checkParameters answers what is wrong with path, query and header parameters.
// Flat routes refuse unknown and repeated query parameters, as they refuse
// unknown members.
func checkParameters(r *http.Request, route *routers.Route, f family) ([]apigen.ProblemField, error) {
	input := &openapi3filter.RequestValidationInput{
		Request: r, Route: route, PathParams: map[string]string{}, QueryParams: r.URL.Query(),
		Options: &openapi3filter.Options{MultiError: true, SkipSettingDefaults: true},
	}
	rctx := chi.RouteContext(r.Context())
	for i, key := range rctx.URLParams.Keys {
		input.PathParams[key] = rctx.URLParams.Values[i]
	}
	var fields []apigen.ProblemField
	add := func(name, message string) {
		fields = append(fields, apigen.ProblemField{Parameter: &name, Message: message})
	}
	known := map[string]bool{}
	for _, params := range []openapi3.Parameters{route.PathItem.Parameters, route.Operation.Parameters} {
		for _, ref := range params {
			p := ref.Value
			if p.In == openapi3.ParameterInQuery {
				known[p.Name] = true
			}
			err := openapi3filter.ValidateParameter(r.Context(), input, p)
			if err == nil {
				continue
			}
			add(p.Name, parameterMessage(err, p))
		}
	}
	if f == flat {
		for _, name := range slices.Sorted(maps.Keys(input.QueryParams)) {
			switch {
			case !known[name]:
				add(name, "is not a parameter of this route")
			case len(input.QueryParams[name]) > 1:
				add(name, "must be given once only")
			}
		}
	}
	if _, err := parseQuery(r); err != nil {
		add("query", "the query string cannot be read")
	}
	return fields, nil
}

func parameterMessage(err error, p *openapi3.Parameter) string {
	var schemaErr *openapi3.SchemaError
	if errors.As(err, &schemaErr) {
		return violationText(schemaErr)
	}
	if p.Schema != nil && p.Schema.Value.Type != nil {
		return "must be " + typeText(p.Schema.Value)
	}
	return "is not valid"
}

package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// family is the shape of a request's answers.
type family int

const (
	flat family = iota
	ovh
)

// problem is an answer that is not a success, before it takes a family's shape.
type problem struct {
	status     int
	kind       string // the last part of the flat shape's type
	title      string
	class      string // the OVHcloud shape's class
	message    string
	fields     []apigen.ProblemField
	retryAfter time.Duration
	header     http.Header // further headers, may be nil
	cause      error       // for the log only
}

func (p *problem) Error() string { return p.kind + ": " + p.message }

func (p *problem) Unwrap() error { return p.cause }

// codeProblems is the one table from the domain's codes to answers.
var codeProblems = map[flows.Code]problem{
	flows.CodeInvalid:            {status: http.StatusBadRequest, title: "The request is wrong", class: "Client::BadRequest"},
	flows.CodeNotFound:           {status: http.StatusNotFound, title: "There is no such object", class: "Client::NotFound"},
	flows.CodeConflict:           {status: http.StatusConflict, title: "The request contradicts what is stored", class: "Client::Conflict"},
	flows.CodePreconditionFailed: {status: http.StatusPreconditionFailed, title: "The object changed", class: "Client::PreconditionFailed"},
	flows.CodeCheckFailed:        {status: http.StatusUnprocessableEntity, title: "A check of the cluster failed", class: "Client::UnprocessableEntity"},
	flows.CodeUnauthenticated:    {status: http.StatusUnauthorized, title: "A valid token is needed", class: "Client::Unauthorized::InvalidAuthToken"},
	flows.CodeForbidden:          {status: http.StatusForbidden, title: "The token does not cover this", class: "Client::Forbidden"},
	flows.CodeRateLimited:        {status: http.StatusTooManyRequests, title: "Too many requests", class: "Client::TooManyRequests"},
	flows.CodeUnavailable:        {status: http.StatusServiceUnavailable, title: "Something needed does not answer", class: "Server::ServiceUnavailable"},
	// A lease never concerns a caller of the API; one that gets here is a fault of ours.
	flows.CodeLeaseLost: {status: http.StatusInternalServerError, title: "Internal server error", class: "Server::InternalServerError"},
	flows.CodeInternal:  {status: http.StatusInternalServerError, title: "Internal server error", class: "Server::InternalServerError"},
}

// defaultRetryAfter is used when the domain names no time.
const defaultRetryAfter = time.Second

func invalidFields(fields ...apigen.ProblemField) *problem {
	p := codeProblems[flows.CodeInvalid]
	p.kind = string(flows.CodeInvalid)
	p.fields = fields
	switch len(fields) {
	case 0:
		p.message = "the request is wrong"
	case 1:
		p.message = describeField(fields[0])
	default:
		p.message = strconv.Itoa(len(fields)) + " parts of the request are wrong"
	}
	return &p
}

func invalidBody(pointer, message string) *problem {
	return invalidFields(apigen.ProblemField{Pointer: pointer, Message: message})
}

func invalidParameter(name, message string) *problem {
	return invalidFields(apigen.ProblemField{Parameter: &name, Message: message})
}

func notFound(class, message string) *problem {
	p := codeProblems[flows.CodeNotFound]
	p.kind, p.message = string(flows.CodeNotFound), message
	if class != "" {
		p.class = class
	}
	return &p
}

// toProblem gives any error the form of an answer.
func toProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var e *flows.Error
	isDomain := errors.As(err, &e)
	if (!isDomain || e.Code == flows.CodeInternal || e.Code == flows.CodeUnavailable) &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		q := codeProblems[flows.CodeUnavailable]
		q.kind, q.message = string(flows.CodeUnavailable), "the request took too long and was given up; whether it had an effect is not known"
		q.retryAfter, q.cause = defaultRetryAfter, err
		return &q
	}
	if !isDomain {
		e = &flows.Error{Code: flows.CodeInternal, Err: err}
	}
	q, known := codeProblems[e.Code]
	if !known || q.status == http.StatusInternalServerError {
		q = codeProblems[flows.CodeInternal]
		q.kind, q.message = string(flows.CodeInternal), "a fault of the server; its log says more under the request's id"
		q.cause = err
		return &q
	}
	q.kind, q.message, q.cause = string(e.Code), e.Message, err
	for _, f := range e.Fields {
		q.fields = append(q.fields, apigen.ProblemField{Pointer: f.Pointer, Message: f.Message})
	}
	if len(q.fields) == 1 && q.fields[0].Message == q.message {
		q.message = describeField(q.fields[0])
	}
	switch e.Code {
	case flows.CodeUnauthenticated:
		q.header = http.Header{"Www-Authenticate": {`Bearer realm="mirrorflow"`}}
	case flows.CodeRateLimited, flows.CodeUnavailable:
		q.retryAfter = max(e.RetryAfter, defaultRetryAfter)
	}
	return &q
}

func describeField(f apigen.ProblemField) string {
	switch {
	case f.Parameter != nil:
		return "parameter " + *f.Parameter + ": " + f.Message
	case f.Pointer != "":
		return strings.TrimPrefix(f.Pointer, "/") + ": " + f.Message
	}
	return f.Message
}

// writeProblem answers err in the shape of the request's family.
func (s *server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := toProblem(err)
	in := infoFrom(r.Context())
	in.note(p)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	for _, name := range []string{"Etag", "Location", "Content-Length"} {
		w.Header().Del(name)
	}
	if in.family == ovh {
		writeJSON(w, p.status, "application/json", ovhBody(p))
		return
	}
	body := apigen.Problem{
		Type: "urn:mirrorflow:problem:" + p.kind, Title: p.title, Status: int32(p.status), Detail: p.message, RequestId: in.id,
	}
	if len(p.fields) > 0 {
		body.Errors = &p.fields
	}
	writeJSON(w, p.status, "application/problem+json", body)
}

// ovhBody is the OVHcloud shape: clients read class and message, and details of strings only.
func ovhBody(p *problem) apigen.OvhError {
	e := apigen.OvhError{Class: p.class, Message: p.message}
	switch p.kind {
	case string(flows.CodeUnauthenticated):
		e.Message = "Invalid authorization token"
	case string(flows.CodeInternal):
		e.Message = "Internal server error"
	}
	if len(p.fields) == 0 {
		return e
	}
	details := make(map[string]string, len(p.fields))
	texts := make([]string, 0, len(p.fields))
	for _, f := range p.fields {
		key := f.Pointer
		if f.Parameter != nil {
			key = *f.Parameter
		}
		if key == "" {
			key = "body"
		}
		details[key] = f.Message
		texts = append(texts, describeField(f))
	}
	e.Message, e.Details = strings.Join(texts, "; "), &details
	return e
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		// The bodies are our own plain structs.
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	// The client may be gone; there is nobody to tell.
	_, _ = w.Write(append(b, '\n'))
}

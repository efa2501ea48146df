package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// responseCheck keeps a copy of an answer and compares it with the contract.
// It exists for tests (Config.OnInvalidResponse).
type responseCheck struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func newResponseCheck(w http.ResponseWriter) *responseCheck {
	return &responseCheck{ResponseWriter: w}
}

func (c *responseCheck) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *responseCheck) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *responseCheck) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *responseCheck) finish(r *http.Request, route *routers.Route, report func(*http.Request, error)) {
	if c.status == 0 {
		return // a panic, answered further out
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 c.status,
		Header:                 c.Header(),
		Body:                   io.NopCloser(bytes.NewReader(c.body.Bytes())),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if err := openapi3filter.ValidateResponse(r.Context(), input); err != nil {
		report(r, fmt.Errorf("%s %s answered %d outside the contract: %w", r.Method, r.URL.Path, c.status, err))
	}
}

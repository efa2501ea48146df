package flows

import (
	"errors"
	"fmt"
	"time"
)

// Code classifies an Error. The set is closed; every edge (HTTP status, worker
// reaction) decides on the code and never on a text.
type Code string

// The codes.
const (
	// CodeInvalid: the request's body, parameters or references are wrong; Fields name where.
	CodeInvalid Code = "invalid"
	// CodeNotFound: the addressed object does not exist, or belongs to another project.
	CodeNotFound Code = "not_found"
	// CodeConflict: the request contradicts what is stored; the message names with what.
	CodeConflict Code = "conflict"
	// CodePreconditionFailed: the object changed since the caller read it.
	CodePreconditionFailed Code = "precondition_failed"
	// CodeCheckFailed: a cluster was tried and a step failed; the message names the step.
	CodeCheckFailed Code = "check_failed"
	// CodeUnauthenticated: no or an unknown token.
	CodeUnauthenticated Code = "unauthenticated"
	// CodeForbidden: the token's scope does not cover the request.
	CodeForbidden Code = "forbidden"
	// CodeRateLimited: try again after RetryAfter.
	CodeRateLimited Code = "rate_limited"
	// CodeUnavailable: something needed (Postgres, a worker) does not answer; try again after RetryAfter.
	CodeUnavailable Code = "unavailable"
	// CodeLeaseLost: a worker wrote under a lease that is no longer its own.
	CodeLeaseLost Code = "lease_lost"
	// CodeInternal: a fault of ours; the message says nothing about it, Err does.
	CodeInternal Code = "internal"
)

// FieldError names one wrong member of a request.
type FieldError struct {
	// Pointer is an RFC 6901 JSON pointer into the request body, for example "/topics/0".
	Pointer string
	// Message is one sentence for the person who sent the request.
	Message string
}

// Error is the only error type that leaves this package and the store.
// Message and Fields are for users; Op and Err are for logs only.
type Error struct {
	Code       Code
	Message    string
	Fields     []FieldError
	RetryAfter time.Duration // 0 unless Code is rate_limited or unavailable
	Op         string
	Err        error
}

// Error implements error; the text is for logs.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	for _, f := range e.Fields {
		s += fmt.Sprintf(" [%s: %s]", f.Pointer, f.Message)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first *Error in err's chain, CodeInternal for
// any other error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Invalid returns a CodeInvalid error for one field.
func Invalid(pointer, message string) *Error {
	return &Error{Code: CodeInvalid, Message: message, Fields: []FieldError{{Pointer: pointer, Message: message}}}
}

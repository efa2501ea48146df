package report

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a panic that Contained took. Its text names the place and never the value, which may be anything, a
// secret too: the text ends in conditions, value and stack belong in the log.
type PanicError struct {
	Where string
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("a panic in %s; the worker's log has the stack", e.Where)
}

// Contained calls f and answers its error; a panic becomes a *PanicError. Every goroutine of a task begins with it, so
// that a fault of ours ends the task that has it and not the process with all the others. A *PanicError that is raised
// again (see Aside) keeps its place and stack.
func Contained(where string, f func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if e, ok := v.(error); ok {
			var p *PanicError
			if errors.As(e, &p) {
				err = p
				return
			}
		}
		err = &PanicError{Where: where, Value: v, Stack: debug.Stack()}
	}()
	return f()
}

// Aside calls f in a goroutine of its own. The function that it answers waits for f and answers what f did; a panic of f
// is raised again there, where the caller's own Contained takes it.
func Aside[T any](where string, f func() (T, error)) (wait func() (T, error)) {
	var v T
	var err, fault error
	done := make(chan struct{})
	go func() {
		defer close(done)
		fault = Contained(where, func() error {
			v, err = f()
			return nil
		})
	}()
	return func() (T, error) {
		<-done
		if fault != nil {
			panic(fault)
		}
		return v, err
	}
}

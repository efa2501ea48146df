package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// maxViolations bounds an answer; a list of 8,192 wrong entries needs no 8,192 sentences.
const maxViolations = 100

// violations answers everything in which a body differs from its schema,
// ordered by pointer. Messages never repeat values: they may be secrets.
func violations(schema *openapi3.Schema, body any) []apigen.ProblemField {
	err := schema.VisitJSON(body, openapi3.MultiErrors())
	if err == nil {
		return nil
	}
	seen := map[apigen.ProblemField]bool{}
	var fields []apigen.ProblemField
	add := func(pointer, message string) {
		f := apigen.ProblemField{Pointer: pointer, Message: message}
		if !seen[f] {
			seen[f] = true
			fields = append(fields, f)
		}
	}
	walkErrors(err, func(e *openapi3.SchemaError) {
		pointer := ""
		for _, token := range e.JSONPointer() {
			pointer += "/" + escapePointer(token)
		}
		if e.SchemaField != "properties" {
			add(pointer, violationText(e))
			return
		}
		// The error names the object and, in its text only, one unknown member of it.
		object, _ := e.Value.(map[string]any)
		for name := range object {
			if e.Schema.Properties[name] == nil {
				add(pointer+"/"+escapePointer(name), "is not a member that is known here")
			}
		}
	}, func(error) { add("", "is not valid") })
	slices.SortFunc(fields, func(a, b apigen.ProblemField) int {
		return strings.Compare(a.Pointer+"\x00"+a.Message, b.Pointer+"\x00"+b.Message)
	})
	if n := len(fields) - maxViolations; n > 0 {
		fields = append(fields[:maxViolations], apigen.ProblemField{Message: "and " + strconv.Itoa(n) + " more"})
	}
	return fields
}

func walkErrors(err error, schema func(*openapi3.SchemaError), other func(error)) {
	var many openapi3.MultiError
	var one *openapi3.SchemaError
	switch {
	case errors.As(err, &one) && !errors.As(err, &many):
		schema(one)
	case errors.As(err, &many):
		for _, e := range many {
			walkErrors(e, schema, other)
		}
	default:
		other(err)
	}
}

// violationText is one sentence about what the schema wants.
func violationText(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "required":
		return "is required"
	case "nullable":
		return "must not be null"
	case "type":
		return "must be " + typeText(s)
	case "enum":
		return "must be one of " + enumText(s.Enum)
	case "not":
		if s.Not != nil && s.Not.Value != nil && len(s.Not.Value.Enum) > 0 {
			return "must not be " + enumText(s.Not.Value.Enum)
		}
	case "minimum", "maximum":
		return "must be " + rangeText(s)
	case "format":
		switch {
		case s.Type.Is("integer") && (s.Min != nil || s.Max != nil):
			return "must be " + rangeText(s) // beyond the format is beyond the range
		case s.Format == "date-time":
			return "must be a time as RFC 3339 has it, for example 2026-11-30T22:00:00Z"
		}
		return "must be a " + s.Format
	case "minLength", "maxLength":
		if s.MaxLength != nil {
			return fmt.Sprintf("must be %d to %d characters long", s.MinLength, *s.MaxLength)
		}
		return fmt.Sprintf("must be at least %d characters long", s.MinLength)
	case "minItems", "maxItems":
		if s.MaxItems != nil {
			return fmt.Sprintf("must have %d to %d entries", s.MinItems, *s.MaxItems)
		}
		return fmt.Sprintf("must have at least %d entries", s.MinItems)
	case "maxProperties":
		return fmt.Sprintf("must have at most %d members", *s.MaxProps)
	case "pattern":
		if s.Format == "uuid" {
			return "must be a UUID"
		}
		return "must match " + s.Pattern
	}
	return "is not valid"
}

func typeText(s *openapi3.Schema) string {
	switch {
	case s.Type.Is("string"):
		if s.Format == "uuid" {
			return "a UUID"
		}
		return "a string"
	case s.Type.Is("boolean"):
		return "true or false"
	case s.Type.Is("integer"):
		return "an integer"
	case s.Type.Is("array"):
		return "an array"
	case s.Type.Is("object"):
		return "an object"
	}
	return "of another type"
}

func enumText(values []any) string {
	texts := make([]string, 0, len(values))
	for _, v := range values {
		if t, ok := v.(string); ok {
			texts = append(texts, t)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			continue
		}
		texts = append(texts, string(b))
	}
	return strings.Join(texts, ", ")
}

func rangeText(s *openapi3.Schema) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	switch {
	case s.Min != nil && s.Max != nil:
		return number(*s.Min) + " to " + number(*s.Max)
	case s.Min != nil:
		return "at least " + number(*s.Min)
	}
	return "at most " + number(*s.Max)
}

package flows

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fieldErrors collects everything that is wrong with a request, so that the
// sender can mend it in one go.
type fieldErrors []FieldError

func (f *fieldErrors) addf(pointer, format string, args ...any) {
	*f = append(*f, FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

func (f fieldErrors) err() error {
	switch len(f) {
	case 0:
		return nil
	case 1:
		return &Error{Code: CodeInvalid, Message: f[0].Message, Fields: f}
	}
	return &Error{Code: CodeInvalid, Message: strconv.Itoa(len(f)) + " members of the request are wrong", Fields: f}
}

// text checks free text: what Postgres cannot store or no log should carry is refused.
func (f *fieldErrors) text(pointer, value string, maxBytes int) {
	switch {
	case len(value) > maxBytes:
		f.addf(pointer, "must be at most %d bytes long", maxBytes)
	case !utf8.ValidString(value):
		f.addf(pointer, "must be valid UTF-8")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }):
		f.addf(pointer, "must not contain control characters")
	}
}

// line is text without line breaks and tabs.
func (f *fieldErrors) line(pointer, value string, maxBytes int) {
	if strings.ContainsAny(value, "\n\t") {
		f.addf(pointer, "must not contain control characters")
		return
	}
	f.text(pointer, value, maxBytes)
}

func (f *fieldErrors) oneOf(pointer, value string, allowed ...string) bool {
	for _, a := range allowed {
		if value == a {
			return true
		}
	}
	f.addf(pointer, "must be one of %s", strings.Join(allowed, ", "))
	return false
}

// legalTopicChars tells whether s has only characters that Kafka allows in topic names.
func legalTopicChars(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	})
}

// legalTopicName tells whether s can be a topic's name.
func legalTopicName(s string) bool {
	return s != "" && len(s) <= 249 && s != "." && s != ".." && legalTopicChars(s)
}

package javaregex

import "unicode/utf8"

// token is one character of a pattern. Inside \Q…\E characters are quoted: they mean themselves everywhere.
type token struct {
	r      rune
	quoted bool
	pos    int // index in characters of the pattern as written
}

// lex splits a pattern into characters and resolves \Q…\E, which Java does before it reads anything else. A \Q without
// \E quotes to the end.
func lex(pattern string) ([]token, *Error) {
	if !utf8.ValidString(pattern) {
		return nil, &Error{Message: "the pattern is not valid UTF-8", Unsupported: true}
	}
	in := []rune(pattern)
	if len(in) > MaxPatternLength {
		return nil, &Error{Construct: pattern, Message: "the pattern is too long", Unsupported: true}
	}
	out := make([]token, 0, len(in))
	quoting := false
	for i := 0; i < len(in); i++ {
		r := in[i]
		if r == 0 {
			return nil, &Error{Construct: "\x00", Position: i, Message: "the character NUL cannot be written in a pattern", Unsupported: true}
		}
		next := rune(-1)
		if i+1 < len(in) {
			next = in[i+1]
		}
		switch {
		case quoting && r == '\\' && next == 'E':
			quoting = false
			i++
		case quoting:
			out = append(out, token{r, true, i})
		case r == '\\' && next == 'Q':
			quoting = true
			i++
		case r == '\\' && next >= 0:
			out = append(out, token{r, false, i}, token{next, false, i + 1})
			i++
		default:
			out = append(out, token{r, false, i})
		}
	}
	return out, nil
}

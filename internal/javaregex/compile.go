package javaregex

import (
	"strconv"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// Compile reads a pattern with the meaning of java.util.regex.Pattern.compile(pattern) and prepares it for whole-name
// matches. The error is an *Error: bad syntax by Java's grammar, or something that cannot be carried over with exactly
// Java's meaning (Error.Unsupported). Compile never panics, and works in time linear in the pattern but for the engine's
// own compilation.
//
// Refused although Java takes them: the flags x, u, U; \X, \N{…}, \b{g}; Unicode blocks (\p{In…}), java… properties and
// properties that depend on the Unicode version; case-bound properties and back references under (?i); back references
// to groups that are not closed yet, to none, and into negative assertions; in look-behinds anything but characters,
// groups, choices and bounded quantifiers; quantifiers that follow nothing ({2}, a{2}{3}); classes in which && stands
// beside nothing or is mixed with nested classes in ways that Java itself reads oddly; bounds above 100000; patterns
// longer than MaxPatternLength.
func Compile(pattern string, opts ...Option) (*Pattern, error) {
	p := &Pattern{source: pattern, limit: MatchTimeLimit}
	for _, o := range opts {
		o(p)
	}
	ps, err := newParser(pattern)
	if err != nil {
		return nil, err
	}
	root, err := ps.parse()
	if err != nil {
		return nil, err
	}
	p.asciiNames = ps.asciiNames
	p.literal, p.exact = literalOf(root)
	if !p.exact && isPlainName(pattern) {
		p.literal, p.plain = pattern, true
	}
	if p.exact {
		return p, nil
	}
	re, err := regexp2.Compile(emit(root), regexp2.None)
	if err != nil {
		// Our own output is always valid for the engine, except where it has limits of its own.
		return nil, &Error{Construct: pattern, Position: 0, Message: "the matching engine does not take it: " + err.Error(), Unsupported: true}
	}
	re.MatchTimeout = p.limit
	p.re = re
	return p, nil
}

// isPlainName tells whether a pattern consists of the characters of topic names only.
func isPlainName(s string) bool {
	for _, r := range s {
		if !isASCIILetter(r) && !isASCIIDigit(r) && r != '.' && r != '_' && r != '-' {
			return false
		}
	}
	return s != ""
}

// literalOf tells whether a tree matches exactly one string.
func literalOf(n node) (string, bool) {
	switch n := n.(type) {
	case empty:
		return "", true
	case chars:
		if len(n.set) == 1 && n.set[0].lo == n.set[0].hi {
			return string(n.set[0].lo), true
		}
	case cat:
		var out string
		for _, c := range n.items {
			s, ok := literalOf(c)
			if !ok {
				return "", false
			}
			out += s
		}
		return out, true
	}
	return "", false
}

func quote(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return strconv.Quote(s)
}

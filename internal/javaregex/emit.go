package javaregex

import (
	"fmt"
	"strings"
	"unicode"
)

// Conditions in the engine's syntax. All character sets are spelled out, since the engine's own \s, \w, $ and . differ
// from Java's.
const (
	lineEnds     = `[\u000a\u000d\u0085\u2028\u2029]`
	anyLineBreak = `(?:\u000d\u000a|[\u000a-\u000d\u0085\u2028\u2029])`
	wordChars    = `[a-zA-Z0-9\u005f]`
	atBegin      = `\A`
	atEnd        = `\z`
	atFinalLine  = `(?:(?!(?<=\u000d)\u000a)(?=(?:\u000d\u000a|` + lineEnds + `)?\z))`
	// In multi-line mode Java's ^ matches neither at the end of input nor inside \r\n.
	atLineBegin = `(?:(?!\z)(?:\A|(?<=[\u000a\u0085\u2028\u2029])|(?<=\u000d)(?!\u000a)))`
	atLineEnd   = `(?:(?!(?<=\u000d)\u000a)(?=` + lineEnds + `|\z))`
	// The same under (?d), where only \n ends lines.
	atFinalUnixLine = `(?=\u000a?\z)`
	atUnixLineBegin = `(?:(?!\z)(?:\A|(?<=\u000a)))`
	atUnixLineEnd   = `(?=\u000a|\z)`
	wordEdge        = `(?:(?<=` + wordChars + `)(?!` + wordChars + `)|(?<!` + wordChars + `)(?=` + wordChars + `))`
	notWordEdge     = `(?:(?<=` + wordChars + `)(?=` + wordChars + `)|(?<!` + wordChars + `)(?!` + wordChars + `))`
)

// emitter writes the engine's pattern. Only groups that a back reference names are captured, in the order of writing, so
// that the engine's own numbering rules never matter.
type emitter struct {
	sb         strings.Builder
	referenced map[int]bool
	numbers    map[int]int // Java's group number -> the engine's
}

// emit translates a pattern for whole-name matches.
func emit(n node) string {
	e := emitter{referenced: map[int]bool{}, numbers: map[int]int{}}
	e.findReferences(n)
	e.sb.WriteString(`\A`)
	e.wrapped(n)
	e.sb.WriteString(`\z`)
	return e.sb.String()
}

func (e *emitter) findReferences(n node) {
	if r, ok := n.(backref); ok {
		e.referenced[r.number] = true
	}
	children(n, e.findReferences)
}

func (e *emitter) wrapped(n node) {
	e.sb.WriteString("(?:")
	e.node(n)
	e.sb.WriteString(")")
}

func (e *emitter) node(n node) {
	switch n := n.(type) {
	case empty:
	case chars:
		e.set(n.set)
	case cat:
		for _, c := range n.items {
			e.node(c)
		}
	case alt:
		e.sb.WriteString("(?:")
		for i, b := range n.branches {
			if i > 0 {
				e.sb.WriteByte('|')
			}
			e.node(b)
		}
		e.sb.WriteString(")")
	case group:
		if !e.referenced[n.number] {
			e.wrapped(n.body)
			return
		}
		e.numbers[n.number] = len(e.numbers) + 1
		e.sb.WriteByte('(')
		e.node(n.body)
		e.sb.WriteByte(')')
	case look:
		e.sb.WriteString(map[[2]bool]string{{false, false}: "(?=", {false, true}: "(?!", {true, false}: "(?<=", {true, true}: "(?<!"}[[2]bool{n.behind, n.negative}])
		e.node(n.body)
		e.sb.WriteByte(')')
	case atomic:
		e.sb.WriteString("(?>")
		e.node(n.body)
		e.sb.WriteByte(')')
	case repeat:
		e.repeat(n)
	case assert:
		e.sb.WriteString(n.text)
	case lineBreak:
		e.sb.WriteString(anyLineBreak)
	case backref:
		fmt.Fprintf(&e.sb, `\k<%d>`, e.numbers[n.number])
	default:
		panic(fmt.Sprintf("javaregex: unknown node %T", n))
	}
}

func (e *emitter) repeat(n repeat) {
	open, end := "(?:", ")"
	if n.mode == possessive {
		// Java commits to each round by itself, not only to all of them.
		e.sb.WriteString("(?>")
		open = "(?>"
	}
	if _, ok := n.body.(lineBreak); ok {
		open = "(?>"
	}
	e.sb.WriteString(open)
	e.node(n.body)
	e.sb.WriteString(end)
	switch {
	case n.max < 0:
		fmt.Fprintf(&e.sb, "{%d,}", n.min)
	case n.max == n.min:
		fmt.Fprintf(&e.sb, "{%d}", n.min)
	default:
		fmt.Fprintf(&e.sb, "{%d,%d}", n.min, n.max)
	}
	switch n.mode {
	case reluctant:
		e.sb.WriteByte('?')
	case possessive:
		e.sb.WriteByte(')')
	}
}

func (e *emitter) set(s set) {
	if len(s) == 0 {
		e.sb.WriteString("(?!)")
		return
	}
	if len(s) == 1 && s[0].lo == s[0].hi {
		e.char(s[0].lo)
		return
	}
	e.sb.WriteByte('[')
	for _, r := range s {
		e.char(r.lo)
		if r.hi > r.lo {
			e.sb.WriteByte('-')
			e.char(r.hi)
		}
	}
	e.sb.WriteByte(']')
}

// char writes one character so that it means itself inside and outside of sets.
func (e *emitter) char(r rune) {
	switch {
	case r < unicode.MaxASCII && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'):
		e.sb.WriteRune(r)
	case r <= 0xffff:
		fmt.Fprintf(&e.sb, `\u%04x`, r)
	default:
		e.sb.WriteRune(r)
	}
}

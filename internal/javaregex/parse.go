package javaregex

import (
	"strings"
)

const (
	maxDepth  = 200
	maxRepeat = 100000
	// end is what peek yields behind the last character; quoted characters are never compared with syntax.
	end = rune(-1)
	// opaque is what peek yields for a quoted character.
	opaque = rune(-2)
)

type flags struct {
	ignoreCase, multiline, dotAll, unixLines bool
}

// parser reads Java's grammar. Methods return an *Error through fail, which panics with it; parse recovers. The panic
// never leaves the package.
type parser struct {
	pattern []rune
	toks    []token
	i       int
	depth   int
	flags   flags

	groups int            // capturing groups opened so far
	closed map[int]bool   // groups whose end was read
	hidden map[int]bool   // groups inside negative assertions
	names  map[string]int // named groups
	behind int            // depth of look-behinds
	negs   int            // depth of negative assertions

	// asciiNames is set when Java's own releases differ about names that hold other characters.
	asciiNames bool
}

func newParser(pattern string) (*parser, error) {
	toks, err := lex(pattern)
	if err != nil {
		return nil, err
	}
	return &parser{
		pattern: []rune(pattern), toks: toks,
		closed: map[int]bool{}, hidden: map[int]bool{}, names: map[string]int{},
	}, nil
}

func (p *parser) parse() (n node, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			n, err = nil, e
		}
	}()
	n = p.choice()
	if p.peek() == ')' {
		p.fail(p.pos(), p.pos()+1, false, "a ) without its (")
	}
	return n, nil
}

// fail refuses the characters from position from up to to of the pattern as written.
func (p *parser) fail(from, to int, unsupported bool, message string) {
	from = min(from, len(p.pattern))
	to = min(max(to, from), len(p.pattern))
	panic(&Error{Construct: string(p.pattern[from:to]), Position: from, Message: message, Unsupported: unsupported})
}

func (p *parser) bad(from int, message string)         { p.fail(from, p.pos(), false, message) }
func (p *parser) unsupported(from int, message string) { p.fail(from, p.pos(), true, message) }

// pos is the position in the pattern as written of the next character.
func (p *parser) pos() int {
	if p.i < len(p.toks) {
		return p.toks[p.i].pos
	}
	return len(p.pattern)
}

// at looks k characters ahead for syntax: quoted characters look opaque.
func (p *parser) at(k int) rune {
	if p.i+k >= len(p.toks) {
		return end
	}
	if t := p.toks[p.i+k]; !t.quoted {
		return t.r
	}
	return opaque
}

func (p *parser) peek() rune { return p.at(0) }

// next takes one character, quoted or not.
func (p *parser) next() token {
	if p.i >= len(p.toks) {
		p.fail(len(p.pattern)-1, len(p.pattern), false, "the pattern ends too early")
	}
	t := p.toks[p.i]
	p.i++
	return t
}

func (p *parser) eat(r rune) bool {
	if p.peek() == r {
		p.i++
		return true
	}
	return false
}

func (p *parser) lookingAt(s string) bool {
	for k, r := range []rune(s) {
		if p.at(k) != r {
			return false
		}
	}
	return true
}

// choice reads branches up to a closing parenthesis or the end.
func (p *parser) choice() node {
	branches := []node{p.sequence()}
	for p.eat('|') {
		branches = append(branches, p.sequence())
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return alt{branches}
}

func (p *parser) sequence() node {
	var items []node
	for {
		switch p.peek() {
		case end, '|', ')':
			switch len(items) {
			case 0:
				return empty{}
			case 1:
				return items[0]
			}
			return cat{items}
		case '*', '+', '?':
			p.fail(p.pos(), p.pos()+1, false, "a quantifier that follows nothing")
		case '{':
			p.fail(p.pos(), p.pos()+1, true, "a { that does not follow what it could repeat; write \\{ for the character")
		}
		if p.peek() == '(' {
			if n, isNode := p.parenthesis(); isNode {
				items = append(items, p.quantified(n))
			}
			continue
		}
		items = append(items, p.quantified(p.atom()))
	}
}

// quantified reads the quantifier behind a node, if there is one.
func (p *parser) quantified(n node) node {
	from := p.pos()
	r := repeat{body: n, max: -1}
	switch p.peek() {
	case '?':
		r.max = 1
	case '*':
	case '+':
		r.min = 1
	case '{':
		p.i++
		r.min, r.max = p.bounds(from)
		p.i-- // the } is taken below, like the other signs
	default:
		return n
	}
	p.i++
	switch {
	case p.eat('?'):
		r.mode = reluctant
	case p.eat('+'):
		r.mode = possessive
	}
	if r.min > 1 && r.mode != possessive && !decided(n) && nullable(n) && contextual(n) {
		// Java leaves a loop after a round that took nothing, even below its least count, and does not try other ways.
		p.unsupported(from, "a least count above 1 for something that may be empty and looks around or does not give back is not supported")
	}
	if p.behind > 0 && r.max < 0 {
		p.unsupported(from, "unbounded quantifiers are not supported inside look-behinds")
	}
	if p.behind > 0 && r.mode == possessive {
		p.unsupported(from, "possessive quantifiers are not supported inside look-behinds")
	}
	return r
}

// bounds reads what follows a { up to and with the }.
func (p *parser) bounds(from int) (lo, hi int) {
	lo, ok := p.number(from)
	if !ok {
		p.i++
		p.fail(from, min(p.pos(), len(p.pattern)), false, "a { has to be followed by a number; write \\{ for the character")
	}
	hi = lo
	if p.eat(',') {
		hi = -1
		if p.peek() != '}' {
			if hi, ok = p.number(from); !ok {
				p.bad(from, "the second bound of a quantifier is not a number")
			}
		}
	}
	if !p.eat('}') {
		p.bad(from, "a quantifier without its }")
	}
	if hi >= 0 && hi < lo {
		p.bad(from, "the bounds of a quantifier are in the wrong order")
	}
	return lo, hi
}

func (p *parser) number(from int) (n int, ok bool) {
	for p.peek() >= '0' && p.peek() <= '9' {
		n = n*10 + int(p.next().r-'0')
		ok = true
		if n > maxRepeat {
			p.unsupported(from, "quantifier bounds above 100000 are not supported")
		}
	}
	return n, ok
}

// parenthesis reads a group of any kind. isNode is false for inline flags, which are no node.
func (p *parser) parenthesis() (n node, isNode bool) {
	from := p.pos()
	p.depth++
	if p.depth > maxDepth {
		p.fail(from, from+1, true, "groups are nested too deeply")
	}
	defer func() { p.depth-- }()
	saved := p.flags
	p.i++
	if !p.eat('?') {
		n = p.capture(from)
		p.flags = saved
		return n, true
	}
	switch {
	case p.eat(':'):
		n = p.body(from)
	case p.eat('>'):
		if p.behind > 0 {
			p.unsupported(from, "atomic groups are not supported inside look-behinds")
		}
		n = atomic{p.body(from)}
	case p.eat('='):
		n = p.assertion(from, look{})
	case p.eat('!'):
		n = p.assertion(from, look{negative: true})
	case p.lookingAt("<="):
		p.i += 2
		n = p.assertion(from, look{behind: true})
	case p.lookingAt("<!"):
		p.i += 2
		n = p.assertion(from, look{behind: true, negative: true})
	case p.eat('<'):
		name := p.groupName(from)
		if _, taken := p.names[name]; taken {
			p.bad(from, "two groups have the same name")
		}
		p.names[name] = p.groups + 1
		n = p.capture(from)
	default:
		p.inlineFlags(from)
		if p.eat(')') {
			return nil, false // in force up to the end of the enclosing group
		}
		p.eat(':')
		n = p.body(from)
	}
	p.flags = saved
	return n, true
}

// body reads the inside of a group and its closing parenthesis.
func (p *parser) body(from int) node {
	n := p.choice()
	if !p.eat(')') {
		p.fail(from, from+1, false, "a ( without its )")
	}
	return n
}

func (p *parser) capture(from int) node {
	p.groups++
	number := p.groups
	if p.negs > 0 || p.behind > 0 {
		p.hidden[number] = true
	}
	n := group{number, p.body(from)}
	p.closed[number] = true
	return n
}

func (p *parser) assertion(from int, l look) node {
	if p.behind > 0 {
		p.unsupported(from, "assertions are not supported inside look-behinds")
	}
	if l.negative {
		p.negs++
		defer func() { p.negs-- }()
	}
	if l.behind {
		p.behind++
		p.asciiNames = true // Java counts look-behinds in UTF-16 units
		defer func() { p.behind-- }()
	}
	l.body = p.body(from)
	return l
}

func isASCIILetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
func isASCIIDigit(r rune) bool  { return r >= '0' && r <= '9' }

// groupName reads a name and the > behind it.
func (p *parser) groupName(from int) string {
	var sb strings.Builder
	for isASCIILetter(p.peek()) || sb.Len() > 0 && isASCIIDigit(p.peek()) {
		sb.WriteRune(p.next().r)
	}
	if sb.Len() == 0 || !p.eat('>') {
		p.i = min(p.i+1, len(p.toks))
		p.bad(from, "a group name consists of ASCII letters and digits, begins with a letter and ends with >")
	}
	return sb.String()
}

// inlineFlags reads flags up to the : or ) behind them.
func (p *parser) inlineFlags(from int) {
	on, any := true, false
	for {
		r := p.peek()
		switch r {
		case 'i':
			p.flags.ignoreCase = on
		case 'm':
			p.flags.multiline = on
		case 's':
			p.flags.dotAll = on
		case 'd':
			p.flags.unixLines = on
		case 'u', 'U', 'x', 'c':
			p.i++
			p.unsupported(from, "the flag "+string(r)+" is not supported")
		case '-':
			if !on {
				p.i++
				p.bad(from, "two minus signs in inline flags")
			}
			on = false
			p.i++
			continue
		case ':', ')':
			if !any {
				p.i++
				p.unsupported(from, "inline flags without a flag are not supported")
			}
			return
		default:
			p.i = min(p.i+1, len(p.toks))
			p.bad(from, "not a kind of group that Java knows")
		}
		any = true
		p.i++
	}
}

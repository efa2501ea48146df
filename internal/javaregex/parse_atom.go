package javaregex

// atom reads one character, class, dot, anchor or escape.
func (p *parser) atom() node {
	switch p.peek() {
	case '[':
		return chars{p.class()}
	case '\\':
		return p.escape()
	case '.':
		p.i++
		return chars{p.dot()}
	case '^':
		p.i++
		switch {
		case p.flags.multiline && p.flags.unixLines:
			return assert{atUnixLineBegin}
		case p.flags.multiline:
			return assert{atLineBegin}
		}
		return assert{atBegin}
	case '$':
		p.i++
		switch {
		case p.flags.multiline && p.flags.unixLines:
			return assert{atUnixLineEnd}
		case p.flags.multiline:
			return assert{atLineEnd}
		}
		return p.finalLine()
	}
	return chars{p.fold(single(p.next().r))}
}

func (p *parser) finalLine() node {
	if p.flags.unixLines {
		return assert{atFinalUnixLine}
	}
	return assert{atFinalLine}
}

func (p *parser) dot() set {
	switch {
	case p.flags.dotAll:
		return newSet(span{0, maxRune})
	case p.flags.unixLines:
		return single('\n').negate()
	}
	return setLineEnd.negate()
}

// fold adds case variants where (?i) is in force.
func (p *parser) fold(s set) set {
	if p.flags.ignoreCase {
		return s.foldASCII()
	}
	return s
}

// escape reads an escape outside of classes.
func (p *parser) escape() node {
	from := p.pos()
	switch p.at(1) {
	case 'A', 'G': // \G is the end of the last match, which whole-name matching does not have
		p.i += 2
		return assert{atBegin}
	case 'z':
		p.i += 2
		return assert{atEnd}
	case 'Z':
		p.i += 2
		return p.finalLine()
	case 'b', 'B':
		not := p.at(1) == 'B'
		p.i += 2
		if !not && p.lookingAt("{") {
			p.unsupported(from, "\\b with braces is not supported")
		}
		p.asciiNames = true // letters beyond ASCII are word characters here in some Java releases only
		if not {
			return assert{notWordEdge}
		}
		return assert{wordEdge}
	case 'R':
		p.i += 2
		return lineBreak{}
	case 'k':
		p.i += 2
		if !p.eat('<') {
			p.bad(from, "\\k has to be followed by a group name in <>")
		}
		number, known := p.names[p.groupName(from)]
		if !known {
			p.bad(from, "there is no group of this name before the back reference")
		}
		return p.reference(from, number)
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.i++
		number := int(p.next().r - '0')
		// Java takes another digit as long as that many groups have been opened.
		for isASCIIDigit(p.peek()) && number*10+int(p.peek()-'0') <= p.groups {
			number = number*10 + int(p.next().r-'0')
		}
		return p.reference(from, number)
	}
	if s, ok := p.setEscape(); ok {
		return chars{s}
	}
	return chars{p.fold(single(p.charEscape()))}
}

func (p *parser) reference(from, number int) node {
	switch {
	case p.flags.ignoreCase:
		p.unsupported(from, "back references under the flag i are not supported")
	case p.behind > 0:
		p.unsupported(from, "back references are not supported inside look-behinds")
	case !p.closed[number]:
		p.unsupported(from, "a back reference to a group that is not complete before it is not supported")
	case p.hidden[number]:
		p.unsupported(from, "a back reference to a group inside a negative assertion or a look-behind is not supported")
	}
	return backref{number}
}

// setEscape reads an escape that stands for a set of characters, if that is what comes next.
func (p *parser) setEscape() (set, bool) {
	letter := p.at(1)
	if letter == 'p' || letter == 'P' {
		s := p.property()
		if letter == 'P' {
			s = s.negate()
		}
		return s, true
	}
	s, ok := predefined(letter)
	if ok {
		p.i += 2
	}
	return s, ok
}

func (p *parser) property() set {
	from := p.pos()
	p.i += 2
	var name string
	if p.eat('{') {
		start := p.i
		for p.peek() != '}' {
			if p.peek() < 0 {
				p.i = min(p.i+1, len(p.toks))
				p.bad(from, "a property without its }")
			}
			p.i++
		}
		for _, t := range p.toks[start:p.i] {
			name += string(t.r)
		}
		p.i++
	} else {
		name = string(p.next().r)
	}
	s, folds, ok := property(name)
	if !ok {
		p.unsupported(from, "this character property is unknown or not supported")
	}
	if folds && p.flags.ignoreCase {
		p.unsupported(from, "properties of letter case are not supported under the flag i, where Java releases differ")
	}
	return s
}

// charEscape reads an escape that stands for one character.
func (p *parser) charEscape() rune {
	from := p.pos()
	p.i++ // the backslash
	if p.i >= len(p.toks) {
		p.fail(from, from+1, false, "a backslash at the end")
	}
	t := p.next()
	if t.quoted {
		p.unsupported(from, "a backslash before quoted text is not supported")
	}
	switch t.r {
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 'f':
		return '\f'
	case 'a':
		return 0x07
	case 'e':
		return 0x1b
	case '0':
		return p.octal(from)
	case 'x':
		return p.hex(from)
	case 'u':
		return p.utf16(from)
	case 'c':
		c := p.next()
		if c.quoted || c.r > 0x7f || c.r == '\\' {
			p.unsupported(from, "this control character is not supported")
		}
		return c.r ^ 64
	case 'X', 'N':
		p.unsupported(from, "this escape is not supported")
	}
	if isASCIILetter(t.r) || isASCIIDigit(t.r) {
		p.bad(from, "not an escape that Java knows here")
	}
	return t.r
}

// lacking refuses an escape whose digits end at the next character.
func (p *parser) lacking(from int, message string) {
	quoted := p.peek() == opaque // Java joins quoted letters to an escape before them
	p.i = min(p.i+1, len(p.toks))
	p.fail(from, p.pos(), quoted, message)
}

// octal reads \0n, \0nn or \0mnn with m up to 3.
func (p *parser) octal(from int) rune {
	digit := func() (rune, bool) { r := p.peek(); return r - '0', r >= '0' && r <= '7' }
	n, ok := digit()
	if !ok {
		p.lacking(from, "\\0 has to be followed by an octal digit")
	}
	p.i++
	if d, more := digit(); more {
		p.i++
		first := n
		n = n*8 + d
		if d, more = digit(); more && first <= 3 {
			p.i++
			n = n*8 + d
		}
	}
	return n
}

func hexDigit(r rune) (rune, bool) {
	switch {
	case r >= '0' && r <= '9':
		return r - '0', true
	case r >= 'a' && r <= 'f':
		return r - 'a' + 10, true
	case r >= 'A' && r <= 'F':
		return r - 'A' + 10, true
	}
	return 0, false
}

// hexDigits reads exactly n hexadecimal digits.
func (p *parser) hexDigits(from, n int) rune {
	var v rune
	for range n {
		d, ok := hexDigit(p.peek())
		if !ok {
			p.lacking(from, "a hexadecimal escape lacks digits")
		}
		v = v<<4 | d
		p.i++
	}
	return v
}

func (p *parser) hex(from int) rune {
	if !p.eat('{') {
		return p.hexDigits(from, 2)
	}
	var v rune
	for n := 0; ; n++ {
		d, ok := hexDigit(p.peek())
		if !ok {
			if n > 0 && p.eat('}') {
				break
			}
			p.lacking(from, "\\x{ has to be followed by hexadecimal digits and }")
		}
		p.i++
		if v = v<<4 | d; v > maxRune {
			p.bad(from, "there is no such character")
		}
	}
	return p.scalar(from, v)
}

// utf16 reads \uhhhh, and a surrogate pair as the one character that it stands for.
func (p *parser) utf16(from int) rune {
	hi := p.hexDigits(from, 4)
	if hi >= 0xd800 && hi < 0xdc00 && p.lookingAt(`\u`) {
		p.i += 2
		lo := p.hexDigits(from, 4)
		if lo >= 0xdc00 && lo < 0xe000 {
			return 0x10000 + (hi-0xd800)<<10 + (lo - 0xdc00)
		}
	}
	return p.scalar(from, hi)
}

func (p *parser) scalar(from int, r rune) rune {
	if r >= 0xd800 && r < 0xe000 {
		p.unsupported(from, "a lone surrogate is not supported")
	}
	return r
}

package javaregex

// class reads a character class with its brackets: items, joined by union; && between unions is intersection; a leading
// ^ negates the whole, intersections included (as Java does from 9 on).
func (p *parser) class() set {
	from := p.pos()
	p.depth++
	if p.depth > maxDepth {
		p.fail(from, from+1, true, "classes are nested too deeply")
	}
	defer func() { p.depth-- }()
	p.i++
	negative := p.eat('^')
	s, _ := p.classUnion(from, true)
	for p.lookingAt("&&") {
		p.i += 2
		right, mixed := p.classUnion(from, false)
		// Behind a nested class that begins an operand, Java reads plain items up to the closing bracket, later && included,
		// and only then joins the two: [a&&[b]c&&d] is [a&&[[b][c&&d]]] to it.
		if mixed && p.lookingAt("&&") {
			p.unsupported(from, "a nested class before other items between two && is not supported")
		}
		s = s.intersect(right)
	}
	if !p.eat(']') {
		p.fail(from, from+1, false, "a [ without its ]")
	}
	if negative {
		s = s.negate()
	}
	return s
}

// classUnion reads items up to a && or the closing bracket, neither of which it takes. first tells the operand before
// any &&, in which a leading ] is a character. mixed tells that a nested class comes first and other items follow.
func (p *parser) classUnion(from int, first bool) (s set, mixed bool) {
	items, nestedFirst := 0, p.peek() == '['
	for {
		switch p.peek() {
		case end:
			p.fail(from, from+1, false, "a [ without its ]")
		case ']':
			if items > 0 {
				return s, mixed
			}
			if !first {
				p.unsupported(from, "&& beside nothing is not supported")
			}
		case '&':
			if p.at(1) == '&' {
				if items == 0 || p.at(2) == '&' {
					p.i += 2
					p.unsupported(from, "&& beside nothing is not supported")
				}
				return s, mixed
			}
			if !first {
				p.i++
				p.unsupported(from, "an unescaped & behind && is not supported")
			}
		case '^':
			if p.toks[p.i-1].r == '[' && items > 0 {
				p.i++
				p.unsupported(from, "an unescaped ^ behind an escaped [ is not supported; Java takes it for a negation")
			}
			if !first && items == 0 {
				p.i++
				p.unsupported(from, "a ^ behind && is not supported; put the negated class into brackets of its own")
			}
		case '[':
			s = s.union(p.class())
			items++
			continue
		}
		s = s.union(p.classItem())
		mixed = mixed || nestedFirst
		items++
	}
}

// classItem reads one character, range or escape inside a class.
func (p *parser) classItem() set {
	from := p.pos()
	if p.peek() == '\\' {
		if s, ok := p.setEscape(); ok {
			if p.at(-1) == 'v' && p.at(-2) == '\\' && p.peek() == '-' {
				p.i++
				p.unsupported(from, "\\v as the end of a range is not supported")
			}
			return s
		}
	}
	lo := p.classChar()
	if p.peek() != '-' || p.at(1) == '[' || p.at(1) == ']' {
		return p.fold(single(lo))
	}
	p.i++
	if p.peek() == end {
		p.fail(from, from+1, false, "a [ without its ]")
	}
	if p.peek() == '&' {
		p.i++
		p.unsupported(from, "an unescaped & as the end of a range is not supported")
	}
	hi := p.classChar()
	if hi < lo {
		p.bad(from, "the ends of a range are in the wrong order")
	}
	return p.fold(newSet(span{lo, hi}))
}

// classChar reads one character of a class, escaped or not.
func (p *parser) classChar() rune {
	if p.peek() != '\\' {
		return p.next().r
	}
	return p.charEscape()
}

package javaregex

import (
	"slices"
	"strings"
	"unicode"
)

// maxRune ends every set's universe.
const maxRune = unicode.MaxRune

// span is an inclusive range of characters.
type span struct{ lo, hi rune }

// set is a set of characters as ordered, disjoint spans that do not touch.
type set []span

func newSet(spans ...span) set {
	s := slices.Clone(spans)
	slices.SortFunc(s, func(a, b span) int { return int(a.lo) - int(b.lo) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return set(out)
}

func single(r rune) set { return set{{r, r}} }

func (s set) union(t set) set { return newSet(append(slices.Clone(s), t...)...) }

func (s set) negate() set {
	var out set
	next := rune(0)
	for _, r := range s {
		if r.lo > next {
			out = append(out, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= maxRune {
		out = append(out, span{next, maxRune})
	}
	return out
}

func (s set) intersect(t set) set {
	var out set
	for i, j := 0, 0; i < len(s) && j < len(t); {
		lo, hi := max(s[i].lo, t[j].lo), min(s[i].hi, t[j].hi)
		if lo <= hi {
			out = append(out, span{lo, hi})
		}
		if s[i].hi < t[j].hi {
			i++
		} else {
			j++
		}
	}
	return out
}

// foldASCII adds the other case of ASCII letters: Java's CASE_INSENSITIVE without UNICODE_CASE.
func (s set) foldASCII() set {
	const shift = 'a' - 'A'
	out := slices.Clone(s)
	for _, r := range s.intersect(set{{'a', 'z'}}) {
		out = append(out, span{r.lo - shift, r.hi - shift})
	}
	for _, r := range s.intersect(set{{'A', 'Z'}}) {
		out = append(out, span{r.lo + shift, r.hi + shift})
	}
	return newSet(out...)
}

func fromTables(tables ...*unicode.RangeTable) set {
	var out []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, span{r, r})
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return newSet(out...)
}

// Java's predefined classes; all but \h and \v are ASCII without the flag UNICODE_CHARACTER_CLASS.
var (
	setDigit = newSet(span{'0', '9'})
	setWord  = newSet(span{'a', 'z'}, span{'A', 'Z'}, span{'0', '9'}, span{'_', '_'})
	setSpace = newSet(span{'\t', '\r'}, span{' ', ' '})
	setHoriz = newSet(span{' ', ' '}, span{'\t', '\t'}, span{0xa0, 0xa0}, span{0x1680, 0x1680}, span{0x180e, 0x180e},
		span{0x2000, 0x200a}, span{0x202f, 0x202f}, span{0x205f, 0x205f}, span{0x3000, 0x3000})
	setVert = newSet(span{'\n', '\r'}, span{0x85, 0x85}, span{0x2028, 0x2029})
	// setLineEnd are the characters that "." does not match and that "$" looks for.
	setLineEnd = newSet(span{'\n', '\n'}, span{'\r', '\r'}, span{0x85, 0x85}, span{0x2028, 0x2029})
)

// predefined yields the set of \d, \D and so on.
func predefined(letter rune) (set, bool) {
	var s set
	switch unicode.ToLower(letter) {
	case 'd':
		s = setDigit
	case 'w':
		s = setWord
	case 's':
		s = setSpace
	case 'h':
		s = setHoriz
	case 'v':
		s = setVert
	default:
		return nil, false
	}
	if unicode.IsUpper(letter) {
		s = s.negate()
	}
	return s, true
}

// posix are Java's \p{…} names of ASCII classes; they are case-sensitive.
var posix = map[string]set{
	"Lower":  newSet(span{'a', 'z'}),
	"Upper":  newSet(span{'A', 'Z'}),
	"ASCII":  newSet(span{0, 0x7f}),
	"Alpha":  newSet(span{'a', 'z'}, span{'A', 'Z'}),
	"Digit":  setDigit,
	"Alnum":  newSet(span{'a', 'z'}, span{'A', 'Z'}, span{'0', '9'}),
	"Punct":  newSet(span{'!', '/'}, span{':', '@'}, span{'[', '`'}, span{'{', '~'}),
	"Graph":  newSet(span{'!', '~'}),
	"Print":  newSet(span{' ', '~'}),
	"Blank":  newSet(span{' ', ' '}, span{'\t', '\t'}),
	"Cntrl":  newSet(span{0, 0x1f}, span{0x7f, 0x7f}),
	"XDigit": newSet(span{'0', '9'}, span{'a', 'f'}, span{'A', 'F'}),
	"Space":  setSpace,
}

// caseBound are the properties whose meaning under (?i) changed between Java releases.
var caseBound = map[string]bool{
	"Lower": true, "Upper": true, "Lu": true, "Ll": true, "Lt": true,
	"LOWERCASE": true, "UPPERCASE": true, "TITLECASE": true,
}

// categories are the Unicode general categories that are taken, by name. Those that hold unassigned characters (C, Cn)
// are not, since they change with every Unicode version.
var categories = func() map[string]set {
	m := map[string]set{
		"LC": fromTables(unicode.Lu, unicode.Ll, unicode.Lt),
		"LD": fromTables(unicode.L, unicode.Nd),
		"L1": newSet(span{0, 0xff}),
	}
	for _, name := range []string{
		"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Me", "Mc", "N", "Nd", "Nl", "No", "Z", "Zs", "Zl", "Zp",
		"P", "Pd", "Ps", "Pe", "Pc", "Po", "Pi", "Pf", "S", "Sm", "Sc", "Sk", "So", "Cc", "Cf", "Co",
	} {
		m[name] = fromTables(unicode.Categories[name])
	}
	return m
}()

// binaries are the Unicode binary properties that are taken behind "Is", upper-cased.
var binaries = map[string]set{
	"ALPHABETIC":  fromTables(unicode.L, unicode.Nl, unicode.Other_Alphabetic),
	"LETTER":      fromTables(unicode.L),
	"DIGIT":       fromTables(unicode.Nd),
	"LOWERCASE":   fromTables(unicode.Ll, unicode.Other_Lowercase),
	"UPPERCASE":   fromTables(unicode.Lu, unicode.Other_Uppercase),
	"TITLECASE":   fromTables(unicode.Lt),
	"WHITE_SPACE": fromTables(unicode.White_Space),
	"CONTROL":     fromTables(unicode.Cc),
	"PUNCTUATION": fromTables(unicode.P),
	"IDEOGRAPHIC": fromTables(unicode.Ideographic),
}

// property looks a \p{…} name up the way Java does. folds tells that the property is one of caseBound.
func property(name string) (s set, folds, ok bool) {
	if key, value, found := strings.Cut(name, "="); found {
		switch strings.ToLower(key) {
		case "sc", "script":
			s, ok = script(value)
			return s, false, ok
		case "gc", "general_category":
			s, ok = categories[value]
			return s, caseBound[value], ok
		}
		return nil, false, false
	}
	if rest, found := strings.CutPrefix(name, "Is"); found {
		upper := strings.ToUpper(rest)
		if s, ok = binaries[upper]; ok {
			return s, caseBound[upper], true
		}
		if s, ok = categories[rest]; ok {
			return s, caseBound[rest], true
		}
		s, ok = script(rest)
		return s, false, ok
	}
	if s, ok = posix[name]; ok {
		return s, caseBound[name], true
	}
	s, ok = categories[name]
	return s, caseBound[name], ok
}

// script looks a Unicode script up by its full name, in any case. Common and Inherited are left out: they gain and lose
// characters with Unicode versions.
func script(name string) (set, bool) {
	for full, table := range unicode.Scripts {
		if full != "Common" && full != "Inherited" && strings.EqualFold(full, name) {
			return fromTables(table), true
		}
	}
	return nil, false
}

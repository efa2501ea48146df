package javaregex

// node is one piece of a parsed pattern. Flags are resolved while parsing: sets carry their case variants, dots and
// anchors their line terminators.
type node interface{}

type (
	// empty matches the empty string.
	empty struct{}
	// chars matches one character of the set.
	chars struct{ set set }
	// cat is a sequence.
	cat struct{ items []node }
	// alt is an ordered choice.
	alt struct{ branches []node }
	// group is a capturing group with Java's number.
	group struct {
		number int
		body   node
	}
	// look is an assertion about what follows or precedes.
	look struct {
		behind, negative bool
		body             node
	}
	// atomic does not give back what it matched.
	atomic struct{ body node }
	// repeat is a quantified node; max is -1 when there is no bound.
	repeat struct {
		body     node
		min, max int
		mode     repeatMode
	}
	// assert is a zero-width condition, written in the engine's own syntax.
	assert struct{ text string }
	// lineBreak is \R. By itself it can give back the \n of \r\n; repeated it cannot, in Java.
	lineBreak struct{}
	// backref matches what group number matched.
	backref struct{ number int }
)

type repeatMode int8

const (
	greedy repeatMode = iota
	reluctant
	possessive
)

// children calls f for each direct part of a node.
func children(n node, f func(node)) {
	switch n := n.(type) {
	case cat:
		for _, c := range n.items {
			f(c)
		}
	case alt:
		for _, c := range n.branches {
			f(c)
		}
	case group:
		f(n.body)
	case look:
		f(n.body)
	case atomic:
		f(n.body)
	case repeat:
		f(n.body)
	}
}

// nullable tells whether a node may match the empty string.
func nullable(n node) bool {
	switch n := n.(type) {
	case chars, lineBreak:
		return false
	case cat:
		for _, c := range n.items {
			if !nullable(c) {
				return false
			}
		}
	case alt:
		for _, b := range n.branches {
			if nullable(b) {
				return true
			}
		}
		return false
	case group:
		return nullable(n.body)
	case atomic:
		return nullable(n.body)
	case repeat:
		return n.min == 0 || nullable(n.body)
	}
	return true
}

// decided tells whether a node can match in one way only, wherever it begins.
func decided(n node) bool {
	switch n := n.(type) {
	case assert, look, atomic, chars:
		return true
	case group:
		return decided(n.body)
	}
	return false
}

// contextual tells whether what a node matches depends on more than the characters that it takes.
func contextual(n node) bool {
	switch n := n.(type) {
	case look, assert, backref, atomic:
		return true
	case repeat:
		if n.mode == possessive {
			return true
		}
	}
	found := false
	children(n, func(c node) { found = found || contextual(c) })
	return found
}

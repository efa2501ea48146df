package javaregex

import (
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
)

// MatchTimeLimit bounds one call of Matches unless WithMatchTimeLimit says otherwise. The engine looks at its clock only
// every now and then, so that a call may take up to about twice as long.
const MatchTimeLimit = 100 * time.Millisecond

// MaxPatternLength is the longest pattern that Compile takes, in characters.
const MaxPatternLength = 4096

// Error says what in a pattern is wrong, or cannot be carried over with Java's meaning.
type Error struct {
	// Construct is the part of the pattern that is refused, as written (shortened when long).
	Construct string
	// Position is where it begins: an index in characters (runes), from 0.
	Position int
	// Message says why, for the person who wrote the pattern.
	Message string
	// Unsupported is true when Java would accept the construct and this package does not.
	Unsupported bool
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s at position %d: %s", quote(e.Construct), e.Position, e.Message)
}

// TimeLimitError is returned by Matches when the time limit passed without a decision.
type TimeLimitError struct {
	Pattern string
	Limit   time.Duration
}

// Error implements error.
func (e *TimeLimitError) Error() string {
	return fmt.Sprintf("pattern %s was not decided within %s", quote(e.Pattern), e.Limit)
}

// Option changes how a pattern behaves.
type Option func(*Pattern)

// WithMatchTimeLimit sets the time limit of one match; it must be positive, else the default stays.
func WithMatchTimeLimit(d time.Duration) Option {
	return func(p *Pattern) {
		if d > 0 {
			p.limit = d
		}
	}
}

// NameError is returned by Matches for a name with characters beyond ASCII when the pattern uses \b, \B or a look-behind:
// Java releases disagree about such names (17 and 21, both of which run MirrorMaker 2, do). Topic names are never
// concerned.
type NameError struct {
	Pattern string
	Name    string
}

// Error implements error.
func (e *NameError) Error() string {
	return fmt.Sprintf("pattern %s has no one meaning in Java for the name %s", quote(e.Pattern), quote(e.Name))
}

// Pattern is a compiled pattern. It is safe for concurrent use.
type Pattern struct {
	source     string
	literal    string
	plain      bool // nothing but characters of names, '.' among them
	exact      bool // literal is all that it matches
	asciiNames bool
	limit      time.Duration
	re         *regexp2.Regexp // nil if exact
}

// Matches tells whether the whole name matches. The error is a *TimeLimitError or a *NameError and means that nothing was
// decided: it must not be taken for a mismatch.
func (p *Pattern) Matches(name string) (bool, error) {
	if p.exact {
		return name == p.literal, nil
	}
	if p.asciiNames {
		for i := range len(name) {
			if name[i] > 0x7f {
				return false, &NameError{Pattern: p.source, Name: name}
			}
		}
	}
	ok, err := p.re.MatchString(name)
	if err != nil {
		// The engine's only error at match time is that its time is up.
		return false, &TimeLimitError{Pattern: p.source, Limit: p.limit}
	}
	return ok, nil
}

// String is the pattern as it was written.
func (p *Pattern) String() string { return p.source }

// Literal tells whether the pattern is a name rather than a pattern, and returns that name: it consists of letters,
// digits, '.', '_' and '-', or else of characters that are escaped or quoted so that exactly one name matches
// (orders\.eu). Note that a bare '.' still matches any character: orders.eu is a literal here and matches the topic
// orders-eu too, as in MirrorMaker 2.
func (p *Pattern) Literal() (name string, ok bool) { return p.literal, p.plain || p.exact }

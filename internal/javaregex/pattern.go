package javaregex

import (
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
)

// MatchTimeLimit bounds one call of Matches unless WithMatchTimeLimit says otherwise.
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

// Pattern is a compiled pattern. It is safe for concurrent use.
type Pattern struct {
	source  string
	literal string
	plain   bool // no metacharacter but '.'
	exact   bool // literal is all that it matches
	limit   time.Duration
	re      *regexp2.Regexp
}

// String is the pattern as it was written.
func (p *Pattern) String() string { return p.source }

// Literal tells whether the pattern is a plain name, that is made of letters, digits, '.', '_' and '-' alone, and
// returns that name. Note that '.' still matches any character: the pattern orders.eu matches the topic orders-eu too,
// as in MirrorMaker 2.
func (p *Pattern) Literal() (name string, ok bool) { return p.literal, p.plain }

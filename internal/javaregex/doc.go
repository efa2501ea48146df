// Package javaregex gives patterns for topic, group and config names the meaning that java.util.regex.Pattern (flags 0)
// gives them in MirrorMaker 2, matched on whole names.
//
// A pattern is parsed by Java's grammar, its character classes are computed to explicit sets, and the result is handed to
// a backtracking engine under a time limit. What cannot be carried over with exactly the same meaning is refused with the
// construct and its position. The package must never hand a pattern to an engine as it was written, and never try another
// engine to see whether it takes it: RE2 accepts [a-z&&[^x]] and means something else.
//
// Start with pattern.go; parse.go reads Java's grammar, class.go computes character classes, emit.go writes the translated
// pattern.
package javaregex

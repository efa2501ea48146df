package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

// compareTime is how long one request may compare lists. It does so while it holds the project's
// lock, and some lists would take minutes.
const compareTime = 1500 * time.Millisecond

// Where the lists stand in a request.
const (
	topicsPointer   = "/topics"
	excludesPointer = "/topicExcludeList"
)

// effort bounds the comparisons of one request.
type effort struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call of checkRoutes
	until time.Time
	steps int
}

// step is called for every piece of work; pointer is the list of the request that it is for.
func (e *effort) step(pointer string) error {
	const pause = 256 // steps between looks at the clock: cheap ones are far shorter than such a look
	if e.steps++; e.steps%pause != 0 {
		return nil
	}
	return e.check(pointer)
}

func (e *effort) check(pointer string) error {
	if e.ctx.Err() != nil {
		return fmt.Errorf("compare topic lists: %w", context.Cause(e.ctx))
	}
	if time.Now().After(e.until) {
		return tooLong(pointer)
	}
	return nil
}

func tooLong(pointer string) error {
	return Invalid(pointer, "these lists take too long to be compared with those of other flows: use fewer or simpler patterns")
}

// nameList is a list of entries, sorted by what can be said of them without trying names.
type nameList struct {
	// pointer is where a request that takes too long is to be mended: the list itself when it is the
	// request's (own), else the list that is compared with it.
	pointer string
	own     bool
	index   map[string]int // every entry as written
	// exact are entries that one name alone matches, by that name.
	exact map[string]int
	// dotted are plain names with dots, which match any character, by their length and the places of the dots.
	dotted   map[int][]*dottedGroup
	patterns []*listPattern
	// names are the topics that are listed by name, dotted ones as they are written.
	names []string
}

type dottedGroup struct {
	dots    []int
	entries []string
}

// listPattern is compiled when it is needed for the first time.
type listPattern struct {
	entry string
	at    int
	p     *javaregex.Pattern
}

func newNameList(e *effort, entries []string, pointer string, own bool) (*nameList, error) {
	l := &nameList{
		pointer: pointer, own: own, index: make(map[string]int, len(entries)), exact: map[string]int{}, dotted: map[int][]*dottedGroup{},
	}
	for at, entry := range entries {
		if err := e.step(pointer); err != nil {
			return nil, err
		}
		if _, again := l.index[entry]; again {
			continue
		}
		l.index[entry] = at
		switch {
		case entry != "" && legalTopicChars(entry) && strings.Contains(entry, "."):
			l.addDotted(entry)
		case entry != "" && legalTopicChars(entry):
			l.addExact(entry, at)
		default:
			if err := l.addPattern(e, entry, at); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func (l *nameList) addExact(name string, at int) {
	if !legalTopicName(name) {
		return // no topic can have it
	}
	if _, again := l.exact[name]; !again {
		l.exact[name] = at
		l.names = append(l.names, name)
	}
}

func (l *nameList) addDotted(entry string) {
	var dots []int
	for i := range len(entry) {
		if entry[i] == '.' {
			dots = append(dots, i)
		}
	}
	groups := l.dotted[len(entry)]
	at := slices.IndexFunc(groups, func(g *dottedGroup) bool { return slices.Equal(g.dots, dots) })
	if at < 0 {
		at = len(groups)
		groups = append(groups, &dottedGroup{dots: dots})
		l.dotted[len(entry)] = groups
	}
	groups[at].entries = append(groups[at].entries, entry)
	if legalTopicName(entry) {
		l.names = append(l.names, entry)
	}
}

func (l *nameList) addPattern(e *effort, entry string, at int) error {
	p := &listPattern{entry: entry, at: at}
	if mayBeName(entry) {
		if err := l.compile(e, p); err != nil {
			return err
		}
		if name, ok := p.p.Literal(); ok {
			l.addExact(name, at)
			return nil
		}
	}
	l.patterns = append(l.patterns, p)
	return nil
}

// mayBeName spares the compilation of most entries that match more than one legal name: repetitions, alternatives
// and classes of more than one character, which an escape may precede.
func mayBeName(entry string) bool {
	if strings.ContainsAny(entry, "*+?|{") {
		return false
	}
	for rest := entry; ; {
		_, class, found := strings.Cut(rest, "[")
		if !found {
			return true
		}
		if end := strings.IndexByte(class, ']'); end < 1 || end > 2 || end == 2 && class[0] != '\\' {
			return false
		}
		rest = class
	}
}

func (l *nameList) compile(e *effort, p *listPattern) error {
	if p.p != nil {
		return nil
	}
	if err := e.check(l.pointer); err != nil {
		return err
	}
	var err error
	if p.p, err = javaregex.Compile(p.entry); err != nil {
		return internal("compare topic lists", fmt.Errorf("compile pattern %d: %w", p.at, err))
	}
	return nil
}

// selects tells whether an entry matches the name of a topic.
func (l *nameList) selects(e *effort, name string) (bool, error) {
	if _, ok := l.exact[name]; ok {
		return true, nil
	}
	for _, g := range l.dotted[len(name)] {
		if err := e.step(l.pointer); err != nil {
			return false, err
		}
		if _, ok := l.index[blank(name, g.dots)]; ok {
			return true, nil
		}
	}
	for _, p := range l.patterns {
		if err := l.compile(e, p); err != nil {
			return false, err
		}
		if err := e.check(l.pointer); err != nil { // a match may take long
			return false, err
		}
		ok, err := p.p.Matches(name)
		var late *javaregex.TimeLimitError
		switch {
		case errors.As(err, &late) && l.own:
			return false, Invalid(l.pointer+"/"+strconv.Itoa(p.at), fmt.Sprintf("takes too long to decide on the topic name %q: use a simpler pattern", name))
		case errors.As(err, &late):
			return false, tooLong(l.pointer)
		case err != nil:
			return false, internal("compare topic lists", err)
		case ok:
			return true, nil
		}
	}
	return false, nil
}

// blank puts dots into the given places.
func blank(name string, places []int) string {
	b := []byte(name)
	for _, i := range places {
		b[i] = '.'
	}
	return string(b)
}

// eachDotted calls f with every dotted entry until it fails.
func (l *nameList) eachDotted(f func(g *dottedGroup, entry string) error) error {
	for _, groups := range l.dotted {
		for _, g := range groups {
			for _, entry := range g.entries {
				if err := f(g, entry); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// listsOnlyNames tells whether the list has no patterns but dots in names.
func (l *nameList) listsOnlyNames() bool { return len(l.patterns) == 0 }

package flows

import "fmt"

// mayShare answers "" when it is certain that no topic, be it of today or of the future, is taken by both flows, which
// is so only when one of them lists nothing but names and the other takes none of these. Else it says why not.
func (s *selection) mayShare(e *effort, o *selection) (string, error) {
	if len(s.entries) == 0 || len(o.entries) == 0 {
		return "", nil
	}
	for _, pair := range [][2]*selection{{s, o}, {o, s}} {
		// What is certainly shared makes the best sentence.
		if what, err := pair[0].sharedName(e, pair[1]); err != nil || what != "" {
			return what, err
		}
	}
	var doubt string
	for _, pair := range [][2]*selection{{s, o}, {o, s}} {
		if !pair[0].topics.listsOnlyNames() {
			continue
		}
		what, err := pair[0].dotsMayShare(e, pair[1])
		if err != nil || what == "" {
			return "", err
		}
		doubt = what
	}
	if doubt == "" {
		doubt = "both list patterns, and whether two patterns take one topic cannot be told"
	}
	return doubt, nil
}

// dotsMayShare is the rest of mayShare for a flow that lists only names, none of which the other flow takes as it is
// written: a dot in them matches any other character, too.
func (s *selection) dotsMayShare(e *effort, o *selection) (string, error) {
	if what, err := s.dotsMeet(e, o); err != nil || what != "" {
		return what, err
	}
	if o.topics.listsOnlyNames() {
		return "", nil // all names of o were tried
	}
	what := ""
	tries := mostTries
	err := s.topics.eachDotted(func(g *dottedGroup, entry string) error {
		if what != "" || s.excludesEntry(o, entry) {
			return nil
		}
		cost := len(o.topics.patterns)
		for range g.dots {
			cost = min(cost*len(topicChars), mostTries+1)
		}
		if tries -= cost; tries < 0 {
			what = fmt.Sprintf("a dot matches any character, and whether a pattern of the other takes a topic that %q matches cannot be told", entry)
			return nil
		}
		name, err := s.trySpellings(e, o, []byte(entry), g.dots)
		if name != "" {
			what = fmt.Sprintf("both take topic %q, since a dot matches any character", name)
		}
		return err
	})
	return what, err
}

// excludesEntry tells whether one of the flows excludes everything that the entry matches.
func (s *selection) excludesEntry(o *selection, entry string) bool {
	_, mine := s.exclude.index[entry]
	_, theirs := o.exclude.index[entry]
	return mine || theirs
}

// dotsMeet finds dotted names of both that match one name.
func (s *selection) dotsMeet(e *effort, o *selection) (string, error) {
	for length, mine := range s.topics.dotted {
		for _, a := range mine {
			for _, b := range o.topics.dotted[length] {
				spelt := make(map[string]string, len(b.entries))
				for _, entry := range b.entries {
					if err := e.step(topicsPointer); err != nil {
						return "", err
					}
					if !s.excludesEntry(o, entry) {
						spelt[blank(entry, a.dots)] = entry
					}
				}
				for _, entry := range a.entries {
					if err := e.step(topicsPointer); err != nil {
						return "", err
					}
					if other, ok := spelt[blank(entry, b.dots)]; ok && !s.excludesEntry(o, entry) {
						return fmt.Sprintf("%q and %q match one name, since a dot matches any character", entry, other), nil
					}
				}
			}
		}
	}
	return "", nil
}

// mostTries is up to how many matches all spellings of dotted names are tried, which is well within compareTime.
const mostTries = 200_000

const topicChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// trySpellings looks for a name that both flows take among those with any characters in the places of the dots.
func (s *selection) trySpellings(e *effort, o *selection, name []byte, dots []int) (string, error) {
	if len(dots) > 0 {
		for i := range len(topicChars) {
			name[dots[0]] = topicChars[i]
			if found, err := s.trySpellings(e, o, name, dots[1:]); err != nil || found != "" {
				return found, err
			}
		}
		return "", nil
	}
	topic := string(name)
	if !legalTopicName(topic) {
		return "", nil
	}
	ok, err := o.takes(e, topic)
	if err == nil && ok {
		ok, err = s.leaves(e, topic)
	}
	if err != nil || !ok {
		return "", err
	}
	return topic, nil
}

package javaregex_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

var (
	seed      = flag.Uint64("javaregex.seed", 20261, "seed of the generated patterns")
	generated = flag.Int("javaregex.patterns", 6000, "number of generated patterns")
)

// question is one pattern and the names to try on it; answer is what the oracle's line for it says.
type question struct {
	pattern string
	names   []string
}

// askJava runs the oracle once. A machine without Java fails the test: without it nothing here is proved.
func askJava(t *testing.T, questions []question) []string {
	t.Helper()
	java, err := exec.LookPath("java")
	require.NoError(t, err, "the comparison needs a JDK (17 or later) on the PATH")
	encode := func(s string) string {
		if s == "" {
			return "-"
		}
		return base64.StdEncoding.EncodeToString([]byte(s))
	}
	var in bytes.Buffer
	for _, q := range questions {
		in.WriteString(encode(q.pattern))
		for _, n := range q.names {
			in.WriteByte(' ')
			in.WriteString(encode(n))
		}
		in.WriteByte('\n')
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, java, "-Xss4m", "-Xmx256m", "testdata/RegexOracle.java")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &stdout, &stderr
	require.NoError(t, cmd.Run(), "java: %s", stderr.String())
	var answers []string
	for sc := bufio.NewScanner(&stdout); sc.Scan(); {
		answers = append(answers, sc.Text())
	}
	require.Len(t, answers, len(questions))
	return answers
}

// tally counts how the two sides compare.
type tally struct {
	agreed, bothRefuse, onlyWeRefuse, undecided, names int
	reasons                                            map[string]int
}

func (c *tally) String() string {
	return fmt.Sprintf("%d patterns accepted by both (%d names), %d refused by both, %d refused by us only, %d names undecided",
		c.agreed, c.names, c.bothRefuse, c.onlyWeRefuse, c.undecided)
}

// compare fails on every pattern that Java refuses and we accept, and on every name that the two judge differently.
func compare(t *testing.T, questions []question) *tally {
	t.Helper()
	c := &tally{reasons: map[string]int{}}
	bad := 0
	complain := func(format string, args ...any) {
		if bad++; bad <= 40 {
			t.Errorf(format, args...)
		}
	}
	for i, answer := range askJava(t, questions) {
		q := questions[i]
		p, err := javaregex.Compile(q.pattern, javaregex.WithMatchTimeLimit(2*time.Second))
		javaRefuses := strings.HasPrefix(answer, "E")
		switch {
		case err != nil:
			var e *javaregex.Error
			require.ErrorAs(t, err, &e)
			switch {
			case javaRefuses:
				c.bothRefuse++
			case e.Unsupported:
				c.onlyWeRefuse++
				c.reasons[e.Message]++
			default:
				complain("%q: called bad syntax (%v), and Java takes it", q.pattern, err)
			}
			continue
		case javaRefuses:
			complain("%q: accepted, and Java says %s", q.pattern, answer)
			continue
		}
		c.agreed++
		for j, name := range q.names {
			got, err := p.Matches(name)
			var unclear *javaregex.NameError
			var late *javaregex.TimeLimitError
			switch {
			case errors.As(err, &unclear) || errors.As(err, &late) || answer[j] == 'T' || answer[j] == 'S':
				c.undecided++
				continue
			case err != nil:
				complain("%q on %q: %v", q.pattern, name, err)
				continue
			}
			c.names++
			if want := answer[j] == '1'; got != want {
				complain("%q on %q: got %t, Java says %t", q.pattern, name, got, want)
			}
		}
	}
	if bad > 40 {
		t.Errorf("%d disagreements in all", bad)
	}
	return c
}

func TestGeneratedPatternsMeanWhatJavaMakesOfThem(t *testing.T) {
	t.Parallel()
	// The seed is fixed so that a failure can be repeated.
	g := generator{rand.New(rand.NewPCG(*seed, 7))}
	questions := make([]question, *generated)
	for i := range questions {
		questions[i] = question{g.pattern(3), g.names(12)}
	}
	c := compare(t, questions)
	t.Log(c, c.reasons)
	require.Greater(t, c.agreed, len(questions)/2, "most of what the grammar yields must be comparable")
	share := float64(c.onlyWeRefuse) / float64(c.agreed+c.onlyWeRefuse)
	t.Logf("share of Java's patterns refused: %.1f %%", 100*share)
	require.Less(t, share, 0.08)
	require.Less(t, c.undecided, c.names/10, "undecided are names beyond ASCII under \\b and look-behinds, and runaway patterns")
}

func TestMutilatedPatternsAreRefusedWhereJavaRefusesThem(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(*seed, 2))}
	questions := make([]question, *generated*2/3)
	for i := range questions {
		questions[i] = question{g.mutilate(g.pattern(2)), g.names(8)}
	}
	c := compare(t, questions)
	t.Log(c, c.reasons)
	require.Greater(t, c.bothRefuse, len(questions)/10)
}

// generator makes random patterns of the grammar that people use in include and exclude lists and beyond.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) pattern(depth int) string {
	var sb strings.Builder
	branches := 1
	if g.IntN(4) == 0 {
		branches = 2
	}
	for b := range branches {
		if b > 0 {
			sb.WriteByte('|')
		}
		for range g.IntN(4) + 1 {
			sb.WriteString(g.piece(depth))
		}
	}
	return sb.String()
}

func (g generator) piece(depth int) string {
	a := g.atom(depth)
	// \b{ begins something else, and flags are nothing that could be repeated.
	if a == `\b` || strings.HasPrefix(a, "(?") && strings.HasSuffix(a, ")") && !strings.ContainsAny(a, ":=!><") {
		return a
	}
	return a + g.quantifier()
}

func (g generator) quantifier() string {
	if g.IntN(3) > 0 {
		return ""
	}
	return g.pick("*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}") + g.pick("", "", "", "?", "+")
}

func (g generator) atom(depth int) string {
	n := g.IntN(30)
	if depth == 0 && n >= 22 {
		n = g.IntN(22)
	}
	switch {
	case n < 9:
		return g.pick("a", "b", "c", "A", "1", "_", "-", "é", "ab", "orders", "x", "😀")
	case n < 12:
		return g.pick(".", `\.`, ".", `\-`, "]", "}", `\Qa.b\E`, `\Q*\E`)
	case n < 15:
		return g.pick(`\d`, `\D`, `\w`, `\W`, `\s`, `\S`, `\h`, `\v`, `\R`, `\p{Alnum}`, `\p{Lower}`, `\P{L}`, `\pL`, `\p{IsAlphabetic}`,
			`\p{IsLatin}`, `\p{Punct}`, `\p{Lu}`, `\P{Upper}`, `\p{Nd}`)
	case n < 17:
		return g.pick("^", "$", `\b`, `\B`, `\A`, `\z`, `\Z`, `\G`)
	case n < 18:
		return g.pick(`\x41`, `\u0062`, `\x{63}`, `\0141`, `\n`, `\t`, `\r`, `\e`, `\cA`, `\07`, `\uD83D\uDE00`)
	case n < 22:
		return g.class(2)
	case n < 25:
		return "(" + g.pattern(depth-1) + ")" + g.pick("", "", "", "", "", `\1`)
	case n < 27:
		return "(?:" + g.pattern(depth-1) + ")"
	case n < 28:
		return "(?" + g.pick("=", "!", ">", "=", "!", "<g"+fmt.Sprint(g.IntN(1000))+">") + g.pattern(depth-1) + ")"
	case n < 29:
		return "(?<" + g.pick("=", "!") + g.pick("a", "[ab]", "ab|c", `\d\w`, "b{1,2}", "^a", ".") + ")"
	}
	return g.pick("(?i)", "(?s)", "(?m)", "(?i:"+g.pattern(depth-1)+")", "(?-i)", "(?im-s:"+g.pattern(depth-1)+")", "(?d)")
}

func (g generator) class(depth int) string {
	s := "[" + g.pick("", "", "^") + g.classItems(depth)
	for g.IntN(4) == 0 {
		s += "&&" + g.classItems(depth)
	}
	return s + "]"
}

func (g generator) classItems(depth int) string {
	var sb strings.Builder
	for range g.IntN(3) + 1 {
		if depth > 0 && g.IntN(5) == 0 {
			sb.WriteString(g.class(depth - 1))
			continue
		}
		sb.WriteString(g.pick("a", "b", "A", "1", "a-c", "A-Z", "0-9", "_", ".", `\-`, `\d`, `\w`, `\s`, `\p{Lower}`, `\P{Alpha}`, "é",
			`\x41-\x43`, `\]`, `\.`, "a-z", `\Qb-\E`, "-", `\^`, `\&`, "(", "*", "$"))
	}
	return sb.String()
}

// mutilate breaks a pattern in one place, mostly.
func (g generator) mutilate(s string) string {
	r := []rune(s)
	at := g.IntN(len(r) + 1)
	switch g.IntN(3) {
	case 0:
		if at < len(r) {
			return string(r[:at]) + string(r[at+1:])
		}
		return s
	case 1:
		return string(r[:at]) + g.pick("[", "]", "(", ")", "*", "+", "?", "{", "}", `\`, "|", "^", "-", "&&", "{2}", "{,3}", "(?", "(?<", `\k<a>`,
			`\2`, `\q`, `\x{`, `\p{Foo}`, `\u12`, `\09`, `\Q`, `\E`, "{3,1}", "(?x)", "(?z)") + string(r[at:])
	}
	return string(r[at:]) + string(r[:at])
}

func (g generator) names(n int) []string {
	names := []string{"", "a", "orders"}
	for len(names) < n {
		var sb strings.Builder
		for range g.IntN(7) {
			sb.WriteString(g.pick("a", "b", "c", "A", "B", "1", "_", "-", ".", "a", "b", "é", "\n", "\r\n", " ", "orders", "a.b", "😀", "]"))
		}
		names = append(names, sb.String())
	}
	return names
}

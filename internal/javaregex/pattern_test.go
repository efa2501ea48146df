package javaregex_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/javaregex"
)

// matching returns which of the names a list of patterns matches; entries are OR-ed.
func matching(t *testing.T, names []string, patterns ...string) []string {
	t.Helper()
	var out []string
	for _, n := range names {
		for _, s := range patterns {
			p, err := javaregex.Compile(s)
			require.NoError(t, err)
			ok, err := p.Matches(n)
			require.NoError(t, err)
			if ok {
				out = append(out, n)
				break
			}
		}
	}
	return out
}

func TestB37_PatternsMatchWholeNamesWithJavasMeaning(t *testing.T) {
	t.Parallel()
	names := []string{"X_Y_A", "X_Y_B", "X_Y", "XX_Y_A"}
	require.Equal(t, []string{"X_Y_A", "X_Y_B"}, matching(t, names, `X_Y_.*`))
	require.Equal(t, []string{"X_Y_A", "X_Y_B"}, matching(t, names, `X_Y_A|X_Y_B`))
	require.Equal(t, []string{"X_Y_A", "X_Y_B"}, matching(t, names, `X_Y_A`, `X_Y_B`), "list entries are or-ed")
	require.Empty(t, matching(t, names, `X_Y_A,X_Y_B`), "a comma inside an entry is a character")
	require.Equal(t, []string{"orders"}, matching(t, []string{"tmp-1", "orders"}, `(?!tmp).*`))
	require.Equal(t, []string{"A1z"}, matching(t, []string{"A1z", "A_z", "é"}, `\p{Alnum}+`))
	require.Equal(t, []string{"a", "aaa"}, matching(t, []string{"a", "aaa", "ab", ""}, `a++`))
	require.Empty(t, matching(t, []string{"a", "aaa"}, `a++a`), "possessive quantifiers give nothing back")
	require.Equal(t, []string{"w", "y"}, matching(t, []string{"w", "x", "y", "&", "&]"}, `[a-z&&[^x]]`))
}

func TestB37_WhatCannotBeTranslatedIsRefusedWithConstructAndPosition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, construct string
		position           int
	}{
		{`a\p{InGreek}b`, `\p{InGreek}`, 1},
		{`é\X`, `\X`, 1},
		{`(?x)a b`, `(?x`, 0},
		{`a(?<=b+)`, `+`, 6},
		{`(?i)(a)\1`, `\1`, 7},
		{`\1(a)`, `\1`, 0},
		{`[a&&^b]`, `[a&&^`, 0},
		{`\p{javaLowerCase}`, `\p{javaLowerCase}`, 0},
		{`a{2}{3}`, `{`, 4},
		{`a{2000000}`, `{200000`, 1},
	} {
		_, err := javaregex.Compile(tc.pattern)
		var e *javaregex.Error
		require.ErrorAs(t, err, &e, tc.pattern)
		require.Equal(t, tc.construct, e.Construct, tc.pattern)
		require.Equal(t, tc.position, e.Position, tc.pattern)
		require.True(t, e.Unsupported, tc.pattern)
		require.NotEmpty(t, e.Message)
	}
}

func TestB38_BadPatternsAreRefusedWithTheirPosition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, construct string
		position           int
	}{
		{`[`, `[`, 0},
		{`*`, `*`, 0},
		{`(`, `(`, 0},
		{`ab[c`, `[`, 2},
		{`é+**`, `*`, 2},
		{`a)b`, `)`, 1},
		{`a|(b`, `(`, 2},
		{`x\`, `\`, 1},
		{`a\q`, `\q`, 1},
		{`[z-a]`, `z-a`, 1},
		{`a{,3}`, `{,`, 1},
		{`a{3,1}`, `{3,1}`, 1},
		{`a{2`, `{2`, 1},
		{`(?<n>a)(?<n>b)`, `(?<n>`, 7},
		{`(?<1>a)`, `(?<1`, 0},
		{`\k<none>`, `\k<none>`, 0},
		{`(?y)`, `(?y`, 0},
		{`\x{110000}`, `\x{110000`, 0},
		{`\u12`, `\u12`, 0},
		{`[]`, `[`, 0},
		{`a|*`, `*`, 2},
	} {
		_, err := javaregex.Compile(tc.pattern)
		var e *javaregex.Error
		require.ErrorAs(t, err, &e, tc.pattern)
		require.Equal(t, tc.construct, e.Construct, tc.pattern)
		require.Equal(t, tc.position, e.Position, tc.pattern)
		require.False(t, e.Unsupported, tc.pattern)
		require.NotEmpty(t, e.Message)
	}
}

func TestB39_APlainNameWithDotsIsAPatternAndIsKnownAsALiteral(t *testing.T) {
	t.Parallel()
	names := []string{"orders.eu", "orders-eu", "ordersXeu", "orders.eu.x"}
	require.Equal(t, names[:3], matching(t, names, `orders.eu`), "as in MM2")
	require.Equal(t, names[:1], matching(t, names, `orders\.eu`))
	require.Equal(t, names[:1], matching(t, names, `\Qorders.eu\E`))
	for pattern, want := range map[string]string{
		`orders.eu`: "orders.eu", `orders\.eu`: "orders.eu", `\Qorders.eu\E`: "orders.eu", `a-b_c`: "a-b_c", `[.]x`: ".x",
	} {
		p, err := javaregex.Compile(pattern)
		require.NoError(t, err)
		got, ok := p.Literal()
		require.True(t, ok, pattern)
		require.Equal(t, want, got)
		require.Equal(t, pattern, p.String())
	}
	for _, pattern := range []string{`orders.*`, `a|b`, `[ab]`, `a?`, `(?i)a`} {
		p, err := javaregex.Compile(pattern)
		require.NoError(t, err)
		_, ok := p.Literal()
		require.False(t, ok, pattern)
	}
}

func TestAMatchThatRunsAwayIsCutOffAndIsNoMismatch(t *testing.T) {
	t.Parallel()
	p, err := javaregex.Compile(`(a|aa|[ab]+)+c`, javaregex.WithMatchTimeLimit(50*time.Millisecond))
	require.NoError(t, err)
	begin := time.Now()
	_, err = p.Matches(strings.Repeat("a", 200))
	var late *javaregex.TimeLimitError
	require.ErrorAs(t, err, &late)
	require.Equal(t, 50*time.Millisecond, late.Limit)
	require.Less(t, time.Since(begin), 5*time.Second)
	ok, err := p.Matches("aac")
	require.NoError(t, err)
	require.True(t, ok)
}

func TestNamesOnWhichJavaReleasesDisagreeAreNotDecided(t *testing.T) {
	t.Parallel()
	p, err := javaregex.Compile(`.*\bx`)
	require.NoError(t, err)
	_, err = p.Matches("éx")
	var unclear *javaregex.NameError
	require.ErrorAs(t, err, &unclear)
	ok, err := p.Matches("a-x")
	require.NoError(t, err)
	require.True(t, ok)
}

// corpus holds the traps of the grammar, each with names on both sides of it.
var corpus = []question{
	{`.*`, []string{"", "a", "a\nb", "a\u0085", "\u2028"}},
	{`a$`, []string{"a", "a\n", "a\r\n"}},
	{`a$\n`, []string{"a\n", "a\r\n"}},
	{`a\r$\n`, []string{"a\r\n"}},
	{`(?s).*$.*`, []string{"a\r\nb\r\n", "\r\n"}},
	{`(?m)^`, []string{"", "a"}},
	{`(?m)a$\n^b`, []string{"a\nb", "a\r\nb"}},
	{`(?m)a$\r\n^b$\n`, []string{"a\r\nb\n"}},
	{`(?d)a$\n`, []string{"a\n", "a\r\n"}},
	{`(?d).+`, []string{"\r", "\n", "\u2028"}},
	{`a\Z\n`, []string{"a\n", "a"}},
	{`\w+`, []string{"é", "a_1", "ß"}},
	{`\d+`, []string{"1", "١"}},
	{`\s`, []string{" ", "\u00a0", "\v", "\u2028", "\f"}},
	{`\h`, []string{" ", "\u00a0", "\u180e", "\n"}},
	{`\v`, []string{"\v", "\n", "\u2029", " "}},
	{`\R`, []string{"\r\n", "\r", "\n", "\u0085", "\n\r"}},
	{`\R\n`, []string{"\r\n", "\r\n\n"}},
	{`\R{2}`, []string{"\r\n", "\r\n\n"}},
	{`\R?\n`, []string{"\r\n", "\n"}},
	{`(?i)k`, []string{"k", "K", "\u212a"}},
	{`(?i)[a-c]É`, []string{"Bé", "bÉ"}},
	{`(?i)[^a]`, []string{"A", "b"}},
	{`(?i)[Z-a]`, []string{"z", "A", "_", "b"}},
	{`a(?i)b|c`, []string{"aB", "C", "AB"}},
	{`(a(?i)b)c`, []string{"aBc", "aBC"}},
	{`(?i:a)b`, []string{"Ab", "AB"}},
	{`(?i)a(?-i)b`, []string{"Ab", "AB"}},
	{`(?<n>a)(b)\1\2`, []string{"abab", "abba"}},
	{`(a)(?<n>b)\k<n>\1`, []string{"abba", "abab"}},
	{`(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\11`, []string{"abcdefghijj", "abcdefghija1"}},
	{`(a)\11`, []string{"aa1"}},
	{`(?:(a)|b\1)+`, []string{"aba", "ba", "ab"}},
	{`(a*)*\1b`, []string{"aab", "b"}},
	{`(?>a|ab)c`, []string{"ac", "abc"}},
	{`(?:a|ab){2}+`, []string{"aba", "aa", "abab"}},
	{`(?:a|ab)*+c`, []string{"abc", "aac"}},
	{`a{0}`, []string{"", "a"}},
	{`a{2,}?`, []string{"a", "aaa"}},
	{`a{,3}`, nil},
	{`{`, nil},
	{`a{`, nil},
	{`}]`, []string{"}]"}},
	{`[]a]`, []string{"]", "a"}},
	{`[^]a]`, []string{"]", "b"}},
	{`[]`, nil},
	{`[a-]`, []string{"-", "a", "b"}},
	{`[-a]`, []string{"-"}},
	{`[--/]`, []string{".", "-"}},
	{`[\w-z]`, []string{"-", "y"}},
	{`[a-\d]`, nil},
	{`[a-d[m-p]]`, []string{"a", "n", "e"}},
	{`[a-z&&[def]]`, []string{"d", "a", "&"}},
	{`[a-z&&[^bc]&&[^d]]`, []string{"a", "b", "d"}},
	{`[a-z&&[b]c]`, []string{"b", "c", "a"}},
	{`[^a-z&&[aeiou]]`, []string{"a", "b", "1"}},
	{`[^[a]b]`, []string{"a", "b", "c"}},
	{`[a&b]`, []string{"&"}},
	{`[^^]`, []string{"^", "a"}},
	{`[a^]`, []string{"^"}},
	{`[\Qa-z\E]`, []string{"-", "b", "z"}},
	{`[\Qa\E-\Qc\E]`, []string{"b", "-"}},
	{`[\-\]\[\\]+`, []string{`-][\`}},
	{`\Q`, []string{""}},
	{`\Qa*`, []string{"a*", "aa"}},
	{`\Qab\E+`, []string{"abb", "abab"}},
	{`a\Q\E*`, []string{"aaa"}},
	{`\E`, nil},
	{`\\Qa`, []string{`\Qa`}},
	{`\07\012\0123\0377\0400`, []string{"\a\nS\u00ff 0", "\a\nS\u00ff 00"}},
	{`\08`, nil},
	{`\cA\c?\c`, nil},
	{`\ca`, []string{"!"}},
	{`\x{1F600}|\uD83D\uDE00`, []string{"😀"}},
	{`.`, []string{"😀", "é"}},
	{`[😀-😂]`, []string{"😁", "😃"}},
	{`\p{L}\P{L}\pN\p{IsL}\p{Lu}`, []string{"é-1ßÀ", "1-1ßÀ"}},
	{`\p{IsGreek}\p{script=Latin}\p{gc=Nd}\p{IsAlphabetic}`, []string{"αé1β", "aé1b"}},
	{`\p{alpha}`, nil},
	{`\p{IsGREEK}`, []string{"α"}},
	{`(?=a)*b`, []string{"b"}},
	{`^*a$+`, []string{"a"}},
	{`()`, []string{""}},
	{`a||b`, []string{"", "a", "b"}},
	{`(|a)+`, []string{"", "aaa"}},
	{`(?:a?){3}`, []string{"aa", "aaaa"}},
	{`(?<!a)b|.(?<=a)b`, []string{"b", "ab", "cb"}},
	{`.*(?<=\.eu|\.us)`, []string{"orders.eu", "orders.us", "orders.uk"}},
	{`^(?!foo).*`, []string{"foo", "foobar", "bar"}},
	{`mm2.*\.internal`, []string{"mm2-configs.A.internal", "mm2.internal"}},
	{`.*[-.]internal`, []string{"foo-internal", "foo.internal"}},
	{`console-consumer-.*`, []string{"console-consumer-1"}},
	{`\_\%\@\~`, []string{"_%@~"}},
	{`\G.*\B`, []string{"", "a"}},
	{`(?)`, nil},
	{`(?i`, nil},
	{`(?<a`, nil},
	{`(?<a1>x)\k<a1>`, []string{"xx"}},
	{`a+++`, nil},
	{`a**`, nil},
	{`(?i)*`, nil},
}

func TestTheCorpusOfTrapsMeansWhatJavaMakesOfIt(t *testing.T) {
	t.Parallel()
	c := compare(t, corpus)
	t.Log(c, c.reasons)
	require.Zero(t, c.undecided)
	require.LessOrEqual(t, c.onlyWeRefuse, 6)
}

func FuzzCompileNeverPanicsAndErrorsPointIntoThePattern(f *testing.F) {
	for _, q := range corpus {
		f.Add(q.pattern, "orders")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		// A watchdog tells an endless compilation or match from a slow fuzzer, and names the input.
		watchdog := time.AfterFunc(10*time.Second, func() { panic(fmt.Sprintf("%q on %q takes too long", pattern, name)) })
		defer watchdog.Stop()
		p, err := javaregex.Compile(pattern, javaregex.WithMatchTimeLimit(20*time.Millisecond))
		if err != nil {
			var e *javaregex.Error
			require.True(t, errors.As(err, &e))
			require.GreaterOrEqual(t, e.Position, 0)
			require.LessOrEqual(t, e.Position, len([]rune(pattern)))
			require.NotContains(t, e.Message, "the matching engine", "what we write is always valid for the engine")
			return
		}
		_, _ = p.Matches(name)
	})
}

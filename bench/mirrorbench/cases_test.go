package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(cases []benchCase) []string {
	var out []string
	for _, c := range cases {
		out = append(out, c.name)
	}
	return out
}

func TestMakeBenchHasItsSixNamedCases(t *testing.T) {
	t.Parallel()
	got, err := selectCases([]string{"bench"})
	require.NoError(t, err)
	require.Equal(t, []string{
		"1k-lz4-large", "1k-lz4-16k", "100b-lz4-large", "latency-1k", "latency-10k",
		"idle-1000", "idle-2000", "flows-200", "start", "wan-fresh", "wan-old",
	}, names(got))
}

func TestTheMatrixIsFullAndNamesAreUnique(t *testing.T) {
	t.Parallel()
	require.Len(t, dataCases(), 3*3*2*2)
	all, err := selectCases([]string{"all", "bench"})
	require.NoError(t, err)
	require.Len(t, all, len(allCases()), "no name stands for two cases")
	for _, g := range groups {
		require.NotContains(t, caseNames(), g.name)
	}
	_, err = selectCases([]string{"1k-lz4-large", "nonsense"})
	require.ErrorContains(t, err, `no case "nonsense"`)
}

func TestListsAreSplitAtCommasAndSpaces(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a", "b", "c"}, words("a, b c"))
	require.Empty(t, words(""))
}

func TestOnlyTheFirstValueOfAFieldCounts(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{"processor\t: 0", "model name\t: A: B", "model name\t: C"}, "\n")
	require.Equal(t, "A: B", field([]byte(text), "model name"))
	require.Empty(t, field([]byte(text), "MemTotal"))
}

package flows

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSelectionsOverlapWhereNamesProveIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		a, ax  []string
		b, bx  []string
		shared bool
	}{
		{"nothing", nil, nil, nil, nil, false},
		{"different names", []string{"a"}, nil, []string{"b"}, nil, false},
		{"a shared name", []string{"a", "x"}, nil, []string{"b", "x"}, nil, true},
		{"a shared pattern", []string{"a.*"}, nil, []string{"a.*"}, nil, true},
		{"a name under a pattern", []string{"orders"}, nil, []string{"or.*"}, nil, true},
		{"a name under everything", []string{"orders"}, nil, []string{".*"}, nil, true},
		{"a name with dots is a name too", []string{"orders.eu"}, nil, []string{"orders-eu", "orders[.].*"}, nil, true},
		{"a dot matches any character", []string{"orders.eu"}, nil, []string{"orders-eu"}, nil, true},
		{"two patterns prove nothing", []string{"a.*"}, nil, []string{".*b"}, nil, false},
		{"an excluded name", []string{"orders"}, nil, []string{".*"}, []string{"orders"}, false},
		{"a shared name that one excludes", []string{"orders", "a"}, []string{"ord.*"}, []string{"orders"}, nil, false},
		{"only a part is matched", []string{"orders"}, nil, []string{"order"}, nil, false},
		{"Java's meaning of a class", []string{"b"}, nil, []string{"[a-c&&[^b]]"}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := compileSelection(c.a, c.ax)
			require.NoError(t, err)
			b, err := compileSelection(c.b, c.bx)
			require.NoError(t, err)
			require.Equal(t, c.shared, a.overlap(b) != "", a.overlap(b))
			require.Equal(t, c.shared, b.overlap(a) != "", b.overlap(a))
		})
	}
}

// The rule must refuse whenever a listed name is mirrored by both, and must never refuse lists of names that share none.
func TestOverlapOfListsIsWhatTheirNamesSay(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "ab", "a.b", "a-b", "orders"}
	entries := append([]string{".*", "a.*", "[ab]", "a[.]b", "(?:ab|orders)"}, names...)
	rapid.Check(t, func(t *rapid.T) {
		list := func(label string, from []string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 3, rapid.ID[string]).Draw(t, label)
		}
		aTopics, aExcludes := list("a", entries), list("a excludes", entries)
		bTopics, bExcludes := list("b", entries), list("b excludes", entries)
		a, err := compileSelection(aTopics, aExcludes)
		require.NoError(t, err)
		b, err := compileSelection(bTopics, bExcludes)
		require.NoError(t, err)
		got := a.overlap(b)
		require.Equal(t, got != "", b.overlap(a) != "", "symmetric")
		for _, pair := range [][2][]string{{aTopics, bTopics}, {bTopics, aTopics}} {
			for _, name := range pair[0] {
				if legalTopicName(name) && a.takes(name) && b.takes(name) {
					require.NotEmpty(t, got, "both mirror %q, which is listed", name)
				}
			}
		}
		if got == "" {
			for _, e := range aTopics {
				for _, o := range bTopics {
					require.False(t, e == o && !legalTopicName(e), "a shared pattern %q", e)
				}
			}
		}
	})
}

func TestRoutesConflictByWhatTheyWriteOnTheTarget(t *testing.T) {
	t.Parallel()
	s1, s2, t1, t2 := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	route := func(from, to uuid.UUID, alias, class string, topics ...string) FlowRoute {
		return FlowRoute{FlowID: uuid.New(), SourceService: from, TargetService: to, SourceAlias: alias, PolicyClass: class, Separator: ".", Topics: topics}
	}
	at := func(r FlowRoute, source, target string) FlowRoute {
		r.SourceCluster, r.TargetCluster = source, target
		return r
	}
	const d, i = DefaultPolicyClass, IdentityPolicyClass
	for _, c := range []struct {
		name     string
		have     FlowRoute
		add      FlowRoute
		conflict bool
	}{
		{"same names, same source", route(s1, t1, "p", d, "x"), route(s1, t1, "p", d, "x"), true},
		{"same names, another source", route(s1, t1, "p", d, "x"), route(s2, t1, "q", d, "x"), false},
		{"same names, another target", route(s1, t1, "p", d, "x"), route(s1, t2, "p", d, "x"), false},
		{"same names, the target under another id", at(route(s1, t1, "p", d, "x"), "S", "T"), at(route(s1, t2, "p", d, "x"), "S", "T"), true},
		{"unknown clusters are not equal", at(route(s1, t1, "p", d, "x"), "", ""), at(route(s1, t2, "p", d, "x"), "", ""), false},
		{"identity from two sources", route(s1, t1, "p", i, "x"), route(s2, t1, "q", i, "x"), true},
		{"identity and default", route(s1, t1, "p", i, "x"), route(s1, t1, "p", d, "x"), false},
		{"an identity name that is a prefixed name", route(s1, t1, "p", i, "q.x"), route(s2, t1, "q", d, "x"), true},
		{"prefixes that meet", route(s1, t1, "p", d, "kafka-a.x"), route(s2, t1, "p.kafka-a", d, "x"), true},
		{"there and back with identity", route(s1, t1, "p", i, "x"), route(t1, s1, "q", i, "x"), true},
		{"there and back by cluster id", at(route(s1, t1, "p", i, "x"), "S", "T"), at(route(t2, s2, "q", i, ".*"), "T", "S"), true},
		{"there and back with other topics", route(s1, t1, "p", i, "x"), route(t1, s1, "q", i, "y"), false},
		{"there and back with prefixes", route(s1, t1, "p", d, ".*"), route(t1, s1, "q", d, ".*"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := checkRoutes(c.add, []FlowRoute{c.have})
			if !c.conflict {
				require.NoError(t, err)
				return
			}
			require.Equal(t, CodeConflict, CodeOf(err))
			require.ErrorContains(t, err, c.have.FlowID.String())
			same := c.have
			require.NoError(t, checkRoutes(same, []FlowRoute{c.have}), "a flow does not contradict itself")
		})
	}
}

func TestLongCirclesOfIdentityFlowsAreFound(t *testing.T) {
	t.Parallel()
	services := make([]uuid.UUID, 5)
	for n := range services {
		services[n] = uuid.New()
	}
	var chain []FlowRoute
	for n := range services[:4] {
		chain = append(chain, FlowRoute{
			FlowID: uuid.New(), SourceService: services[n], TargetService: services[n+1], PolicyClass: IdentityPolicyClass, Topics: []string{"x"},
		})
	}
	last := FlowRoute{FlowID: uuid.New(), SourceService: services[4], TargetService: services[0], PolicyClass: IdentityPolicyClass, Topics: []string{".*"}}
	err := checkRoutes(last, chain)
	require.Equal(t, CodeConflict, CodeOf(err))
	for _, r := range chain {
		require.ErrorContains(t, err, r.FlowID.String())
	}
	chain[2].Topics = []string{"other"}
	last.Topics = []string{"x"}
	require.NoError(t, checkRoutes(last, chain))
}

func TestManyIDsAreNamedShortly(t *testing.T) {
	t.Parallel()
	ids := make([]uuid.UUID, 13)
	require.Contains(t, named("flow", ids), "and 3 more")
	require.Equal(t, "flow "+uuid.Nil.String(), named("flow", ids[:1]))
}

func TestGeneratedAliasesAreLegal(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	seen := map[string]bool{}
	for range 100 {
		id, err := newID()
		require.NoError(t, err)
		alias := generatedAlias(project, id)
		require.Regexp(t, `^[a-z0-9]{9}\.kafka-[a-z0-9]{8}$`, alias)
		require.False(t, seen[alias], fmt.Sprint("twice: ", alias))
		seen[alias] = true
		var f fieldErrors
		validateAlias(&f, alias)
		require.Empty(t, f)
	}
}

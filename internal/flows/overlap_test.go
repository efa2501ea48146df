package flows

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// patient has time for everything that a test compares.
func patient(ctx context.Context) *effort {
	return &effort{ctx: ctx, until: time.Now().Add(time.Minute)}
}

func selections(t require.TestingT, ctx context.Context, a, ax, b, bx []string) (first, second *selection) {
	first, err := newSelection(patient(ctx), FlowRoute{Topics: a, Excludes: ax}, true)
	require.NoError(t, err)
	second, err = newSelection(patient(ctx), FlowRoute{Topics: b, Excludes: bx}, false)
	require.NoError(t, err)
	return first, second
}

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
		{"names spelt as patterns", []string{`orders\.eu`, "a[.]b", `c[\-]d`}, nil, []string{`a\.b`}, nil, true},
		{"names spelt as patterns, of others", []string{`orders\.eu`, "a[.]b", `c[\-]d`}, nil, []string{`a\.c`, "c-[de]"}, nil, true},
		{"Java's meaning of a class", []string{"b"}, nil, []string{"[a-c&&[^b]]"}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := selections(t, t.Context(), c.a, c.ax, c.b, c.bx)
			for _, pair := range [][2]*selection{{a, b}, {b, a}} {
				what, err := pair[0].overlap(patient(t.Context()), pair[1])
				require.NoError(t, err)
				require.Equal(t, c.shared, what != "", what)
			}
		})
	}
}

// The rule must refuse whenever a listed name is mirrored by both, and must never refuse lists of names that share none.
func TestOverlapOfListsIsWhatTheirNamesSay(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "ab", "a.b", "a-b", "orders"}
	entries := append([]string{".*", "a.*", "[ab]", "a[.]b", "(?:ab|orders)"}, names...)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		list := func(label string, from []string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 3, rapid.ID[string]).Draw(t, label)
		}
		aTopics, aExcludes := list("a", entries), list("a excludes", entries)
		bTopics, bExcludes := list("b", entries), list("b excludes", entries)
		a, b := selections(t, ctx, aTopics, aExcludes, bTopics, bExcludes)
		takes := func(s *selection, name string) bool {
			ok, err := s.takes(patient(ctx), name)
			require.NoError(t, err)
			return ok
		}
		got, err := a.overlap(patient(ctx), b)
		require.NoError(t, err)
		back, err := b.overlap(patient(ctx), a)
		require.NoError(t, err)
		require.Equal(t, got != "", back != "", "symmetric")
		may, err := a.mayShare(patient(ctx), b)
		require.NoError(t, err)
		mayBack, err := b.mayShare(patient(ctx), a)
		require.NoError(t, err)
		require.Equal(t, may != "", mayBack != "", "symmetric")
		if may == "" {
			for _, name := range append([]string{"a_b", "orderz", "b-a", "aab"}, names...) {
				require.False(t, takes(a, name) && takes(b, name), "certain to be disjoint, and both take %q", name)
			}
		}
		for _, pair := range [][2][]string{{aTopics, bTopics}, {bTopics, aTopics}} {
			for _, name := range pair[0] {
				if legalTopicName(name) && takes(a, name) && takes(b, name) {
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
	without := func(r FlowRoute, excludes ...string) FlowRoute {
		r.Excludes = excludes
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
		{"there and back with patterns that meet", route(s1, t1, "p", i, "looper.*"), route(t1, s1, "q", i, "loop.*"), true},
		{"there and back with patterns of which nobody can tell", route(s1, t1, "p", i, "eu.*"), route(t1, s1, "q", i, "us.*"), true},
		{"there and back, names against a pattern of others", route(s1, t1, "p", i, "eu-x", "eu-y"), route(t1, s1, "q", i, "us.*"), false},
		{"there and back, a pattern and an exact name of others", route(s1, t1, "p", i, "eu.*"), route(t1, s1, "q", i, `us\.x\.y\.z`), false},
		{"there and back, a pattern among names", route(s1, t1, "p", i, "eu-x", "eu.*"), route(t1, s1, "q", i, "us-x", "us.*"), true},
		{"there and back, a dot that matches", route(s1, t1, "p", i, "eu.x"), route(t1, s1, "q", i, "eu[_]x"), true},
		{"there and back, dots that match", route(s1, t1, "p", i, "a.b-c-d"), route(t1, s1, "q", i, "a-b.c-d"), true},
		{"there and back, dotted names of others", route(s1, t1, "p", i, "a.b.c.d", "a.b.c.e"), route(t1, s1, "q", i, "b.b.c.d", "b.b.c.e"), false},
		{"there and back, a dotted name of others", route(s1, t1, "p", i, "a.b"), route(t1, s1, "q", i, "b.*"), false},
		{"there and back, a name with more dots than can be tried", route(s1, t1, "p", i, "a.b.c.d"), route(t1, s1, "q", i, "b.*"), true},
		{"there and back, a name that is excluded", without(route(s1, t1, "p", i, "x", "y"), "x"), route(t1, s1, "q", i, "x|z"), false},
		{"there and back, a pattern that is excluded is no name", without(route(s1, t1, "p", i, "x.*"), "xy.*"), route(t1, s1, "q", i, "xy.*"), true},
		{"there and back with nothing", route(s1, t1, "p", i), route(t1, s1, "q", i, ".*"), false},
		{"there and back with prefixes", route(s1, t1, "p", d, ".*"), route(t1, s1, "q", d, ".*"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := checkRoutes(t.Context(), time.Minute, c.add, []FlowRoute{c.have})
			if !c.conflict {
				require.NoError(t, err)
				return
			}
			require.Equal(t, CodeConflict, CodeOf(err))
			require.ErrorContains(t, err, c.have.FlowID.String())
			same := c.have
			require.NoError(t, checkRoutes(t.Context(), time.Minute, same, []FlowRoute{c.have}), "a flow does not contradict itself")
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
	err := checkRoutes(t.Context(), time.Minute, last, chain)
	require.Equal(t, CodeConflict, CodeOf(err))
	for _, r := range chain {
		require.ErrorContains(t, err, r.FlowID.String())
	}
	chain[2].Topics = []string{"other"}
	last.Topics = []string{"x"}
	require.NoError(t, checkRoutes(t.Context(), time.Minute, last, chain))
}

func TestLongListsAreComparedInTime(t *testing.T) {
	t.Parallel()
	list := func(format string) []string {
		out := make([]string, maxPatterns)
		for n := range out {
			out[n] = fmt.Sprintf(format, n)
		}
		return out
	}
	from, to := uuid.New(), uuid.New()
	route := func(topics, excludes []string) FlowRoute {
		return FlowRoute{FlowID: uuid.New(), SourceService: from, TargetService: to, PolicyClass: DefaultPolicyClass, Separator: ".", Topics: topics, Excludes: excludes}
	}
	slow := []string{"(a|aa)+"}
	stuck := []string{"b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-"}
	for _, c := range []struct {
		name      string
		add, have FlowRoute
		pointer   string // "" for lists that are compared
	}{
		{"names", route(list("a-%d"), nil), route(list("b-%d"), nil), ""},
		{"dotted names", route(list("team.app.a%05d"), nil), route(list("team.app.b%05d"), nil), ""},
		{"names that are excluded", route(list("a-%d"), list("a-%d")), route(list("a-%d"), nil), ""},
		{"patterns", route(list("a%d[xy]"), nil), route(list("b%d[xy]"), nil), ""},
		{"names and patterns", route(list("a-%d"), nil), route(list("(?:b|c)%d.*[xy]"), nil), topicsPointer},
		{"patterns and names", route(list("(?:b|c)%d.*[xy]"), nil), route(list("a-%d"), nil), topicsPointer},
		{"excludes", route(list("a-%d"), list("(?:b|c)%d.*[xy]")), route(list("a-%d"), list("a-%d")), excludesPointer},
		{"a slow pattern of the request", route(append([]string{"c"}, slow...), nil), route(stuck, nil), topicsPointer + "/1"},
		{"a slow exclude of the request", route(stuck, slow), route([]string{"a+-"}, nil), excludesPointer + "/0"},
		{"a slow pattern of the other", route(stuck, nil), route(slow, nil), topicsPointer},
		{"a slow exclude of the other", route(stuck, nil), route([]string{"a+-"}, slow), topicsPointer},
	} {
		t.Run(c.name, func(t *testing.T) {
			const limit = compareTime
			began := time.Now()
			err := checkRoutes(t.Context(), limit, c.add, []FlowRoute{c.have})
			require.Less(t, time.Since(began), limit+5*time.Second, "whatever the lists, within the limit of a request")
			if c.pointer == "" {
				require.NoError(t, err)
				return
			}
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, CodeInvalid, e.Code, "%v", err)
			require.Equal(t, c.pointer, e.Fields[0].Pointer)
			require.NotContains(t, e.Message, c.have.FlowID.String(), "the other flow is not to blame")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := checkRoutes(ctx, time.Minute, route(list("a-%d"), nil), []FlowRoute{route(list("b%d.*x"), nil)})
	require.ErrorIs(t, err, context.Canceled)
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

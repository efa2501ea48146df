package topics

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mm2"
)

func TestDecisionsAboutTopicsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	in, err := Compile("Topics", []string{"a.*"})
	require.NoError(t, err)
	policy, err := mm2.NewDefaultReplicationPolicy(".", true)
	require.NoError(t, err)
	s := newSelector(mm2.TopicSelector{Filter: mm2.NewTopicFilter(in, nil), Policy: policy, SourceAlias: "p.a", TargetAlias: "p.b", Heartbeats: mm2.HeartbeatsNever})
	list := func(names ...string) (out []SourceTopic) {
		for _, name := range names {
			out = append(out, SourceTopic{Name: name, Partitions: 1})
		}
		return out
	}
	for n := range 50 {
		got := s.apply(list("a", fmt.Sprint("a", n), "b", fmt.Sprint("b", n)))
		require.Len(t, got.Topics, 2)
		require.Equal(t, []string{"b", fmt.Sprint("b", n)}, got.Examples)
		require.Len(t, s.decided, 2)
		require.Len(t, s.others, 2)
	}
}

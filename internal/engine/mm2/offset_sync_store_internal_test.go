package mm2

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The invariants B and C speak of slots, which only this package sees. They hold for distinct upstream offsets; Java too keeps
// two syncs of one offset side by side.
func TestSlotsKeepInvariantsBAndC(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := NewOffsetSyncStore(false)
		s.Started()
		u, bits := int64(0), rapid.IntRange(0, 50).Draw(t, "bits")
		for range rapid.IntRange(1, 150).Draw(t, "syncs") {
			u += rapid.Int64Range(1, int64(1)<<bits).Draw(t, "step")
			s.Add(OffsetSync{Topic: "t", Upstream: u, Downstream: u})
			slots := s.slots[TopicPartition{Topic: "t"}]
			for i := range SyncsPerPartition {
				for j := i + 1; j < SyncsPerPartition; j++ {
					if slots[i] == slots[j] {
						continue
					}
					require.True(t, invariantB(slots[i], slots[j], i, j), "B for %d, %d", i, j)
					require.True(t, invariantC(slots[i], slots[j], i), "C for %d, %d", i, j)
				}
			}
		}
	})
}

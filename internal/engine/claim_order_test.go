package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/mirror"
	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/state"
)

// parting is the owner before, which stores its last positions right before it gives a topic up.
type parting struct{ last func() }

func (p parting) Claim(context.Context, string, []string) (map[string]string, error) {
	p.last()
	return nil, nil
}

func (p parting) Release(context.Context, string, []string) error { return nil }

func TestWhatTheOwnerBeforeStoredLastIsReadBeforeAPartitionStarts(t *testing.T) {
	t.Parallel()
	for n := range 2 {
		t.Run(fmt.Sprint("task ", n), func(t *testing.T) {
			t.Parallel()
			w := fakes(t, fmt.Sprint("parting", n))
			topic := w.topic("t")
			w.create(w.srcAdm, topic, 8, nil)
			w.create(w.tgtAdm, w.remote(topic), 8, nil)
			m := newMemory()
			cfg := settings(w.name, w.src, w.tgt, topic)
			cfg.Identity.Tasks, cfg.Identity.Task = 2, n
			cfg.Sink = newSink()
			for p := range int32(8) {
				w.produce(w.srcCl, topic, p, 0, 9)
			}
			store := func(position int64) {
				entries := map[state.Key]state.Entry{}
				for p := range int32(8) {
					entries[state.Key{RemoteTopic: w.remote(topic), Partition: p}] = state.Entry{
						SourceTopic: topic, Position: position, TargetNext: -1, Map: mapOf(t),
					}
				}
				require.NoError(t, m.Save(t.Context(), entries))
			}
			store(3)
			cfg.Owners = parting{func() { store(7) }}
			path := &stubPath{}
			f := runTask(t, cfg, stubRooms(path, m, stubSyncs{}))
			f.until("partitions run", func(st report.Status) bool { return st.State == report.Running })
			f.kill()
			require.NotEmpty(t, path.assigned)
			for _, a := range path.assigned {
				require.EqualValues(t, 7, a.Start, "%v", mirror.TP{Topic: topic, Partition: a.Source.Partition})
			}
		})
	}
}

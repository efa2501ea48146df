package mirror

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/hub"
)

// standing is a path that does not run, with one partition whose leaders are known.
func standing(t *testing.T, a Assignment) (*mirror, *part) {
	t.Helper()
	p, err := newMirror(Config{
		Source: plain("source", "127.0.0.1:1"), Target: plain("target", "127.0.0.1:1"), ClientID: "c", Observer: newWatcher(), PassThrough: true,
	})
	require.NoError(t, err)
	t.Cleanup(p.close)
	p.life = t.Context()
	a.Source, a.Target = first, TP{remote(topic), 0}
	p.Assign([]Assignment{a})
	one := p.parts[first]
	one.src.leader, one.tgt.leader = 0, 0
	return p, one
}

// While an answer is gone through, which others do not wait for, something else may have the partition looked at: a
// second want for the same offset would be answered, and the records copied twice.
func TestNothingMoreIsWantedWhileAnAnswerIsGoneThrough(t *testing.T) {
	t.Parallel()
	p, part := standing(t, Assignment{Start: 5})
	now := time.Now()
	p.aim(part, now)
	require.True(t, part.asked.on)
	want := hub.Want{TP: hub.TP(first), Offset: 5, Tag: part.fetchSeq}

	w, ok := p.wantOf(&want, false)
	require.True(t, ok)
	p.aim(part, now)
	require.False(t, part.asked.on, "the offset is wanted again while its answer is gone through")
	p.fetched(w, Ends{0, 9, 9}, &unpacked{upTo: 9}, nil)
	require.True(t, part.asked.on)
	require.EqualValues(t, 9, part.asked.offset)

	// The same answer once more is no news, wherever it comes from.
	p.fetched(w, Ends{0, 9, 9}, &unpacked{upTo: 7}, nil)
	require.EqualValues(t, 9, part.fetchOffset)

	// What was set anew meanwhile does not wait for the old answer.
	w, ok = p.wantOf(&hub.Want{TP: hub.TP(first), Offset: 9, Tag: part.fetchSeq}, false)
	require.True(t, ok)
	p.dropQueue(part)
	p.aim(part, now)
	require.True(t, part.asked.on)
	p.fetched(w, Ends{0, 20, 20}, &unpacked{upTo: 20}, nil)
	require.EqualValues(t, 9, part.fetchOffset)
}

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/mirrorflow/mirrorflow/internal/engine/state"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// Kinds of notes: what the engine must remember beside positions, in the state topic on the target, so that it lives
// and dies with the copies.
const (
	// noteBaseline and a flow id: the flow's start positions have been settled (Task.baseline).
	noteBaseline = "baseline/"
	// noteConfigs and a remote topic: the configs that we set on it, as a JSON object.
	noteConfigs = "configs/"
)

// notes are small facts by name, as the state store keeps them.
type notes interface {
	Note(name string) (value []byte, ok bool)
	SaveNote(ctx context.Context, name string, value []byte) error
}

// store is what the engine needs of the state: entries and notes. *state.TopicStore is one.
type store interface {
	state.Store
	notes
	// Check notices that the topics were made anew, and writes again what was lost with them. Called often.
	Check(ctx context.Context) error
}

// ledger keeps topics.Ledger in notes. Before settle was called for the first time, facts are held back: topics are made
// while the notes are still being read. A crash in that moment costs the memory of who set a config, and so an override
// that stays; nothing of anybody else's is ever removed.
type ledger struct {
	notes func() notes

	mu      sync.Mutex
	settled bool
	waiting map[string]map[string]string
}

var _ topics.Ledger = (*ledger)(nil)

// Owned implements topics.Ledger. A note that does not parse counts as none, for the same reason as above.
func (l *ledger) Owned(remote string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if owned, ok := l.waiting[remote]; ok {
		return owned
	}
	if !l.settled {
		return nil
	}
	b, ok := l.notes().Note(noteConfigs + remote)
	if !ok {
		return nil
	}
	var owned map[string]string
	if json.Unmarshal(b, &owned) != nil {
		return nil
	}
	return owned
}

// SetOwned implements topics.Ledger.
func (l *ledger) SetOwned(ctx context.Context, remote string, owned map[string]string) error {
	l.mu.Lock()
	if !l.settled {
		if l.waiting == nil {
			l.waiting = map[string]map[string]string{}
		}
		l.waiting[remote] = owned
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	return l.write(ctx, remote, owned)
}

func (l *ledger) write(ctx context.Context, remote string, owned map[string]string) error {
	if owned == nil {
		owned = map[string]string{}
	}
	b, err := json.Marshal(owned)
	if err != nil {
		return fmt.Errorf("encode configs of %s: %w", remote, err)
	}
	if old, ok := l.notes().Note(noteConfigs + remote); ok && string(old) == string(b) {
		return nil
	}
	return l.notes().SaveNote(ctx, noteConfigs+remote, b)
}

// settle writes what was held back, once the notes have been read.
func (l *ledger) settle(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for remote, owned := range l.waiting {
		if err := l.write(ctx, remote, owned); err != nil {
			return err
		}
		delete(l.waiting, remote)
	}
	l.settled = true
	return nil
}

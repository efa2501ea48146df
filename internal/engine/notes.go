package engine

import (
	"context"
	"encoding/json"
	"fmt"

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
}

// ledger keeps topics.Ledger in notes.
type ledger struct{ n func() notes }

var _ topics.Ledger = ledger{}

// Owned implements topics.Ledger. A note that does not parse counts as none: then overrides of ours may stay, and none
// of anybody else is removed.
func (l ledger) Owned(remote string) map[string]string {
	b, ok := l.n().Note(noteConfigs + remote)
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
func (l ledger) SetOwned(ctx context.Context, remote string, owned map[string]string) error {
	if owned == nil {
		owned = map[string]string{}
	}
	b, err := json.Marshal(owned)
	if err != nil {
		return fmt.Errorf("encode configs of %s: %w", remote, err)
	}
	if old, ok := l.n().Note(noteConfigs + remote); ok && string(old) == string(b) {
		return nil
	}
	return l.n().SaveNote(ctx, noteConfigs+remote, b)
}

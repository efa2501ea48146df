package state

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Beside heads and blocks the state topic holds notes, small facts of the engine by name, which live and die with the
// copies as positions do.
//
//	note  key:   "mf", version, kindNote, name
//	      value: the caller's bytes
const kindNote = 'N'

// notebook holds the notes that were read or written.
type notebook struct {
	mu sync.Mutex
	m  map[string][]byte
}

func (n *notebook) set(name string, value []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[string][]byte{}
	}
	if value == nil {
		delete(n.m, name)
		return
	}
	n.m[name] = value
}

func noteKey(name string) []byte {
	return appendString(append([]byte(keyMagic), codecVersion, kindNote), name)
}

// take keeps a record that is a note and tells whether it is one.
func (n *notebook) take(r *kgo.Record) bool {
	d := decoder{buf: r.Key}
	if string(d.take(len(keyMagic))) != keyMagic {
		return false
	}
	d.version()
	kind := d.byte()
	if d.err != nil || kind != kindNote {
		return false
	}
	name := d.string()
	if d.err != nil || len(d.buf) != 0 {
		return false
	}
	n.set(name, r.Value)
	return true
}

// Note answers what SaveNote stored last under a name, as of the last Load; ok is false when there is nothing.
func (s *TopicStore) Note(name string) (value []byte, ok bool) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	value, ok = s.notes.m[name]
	return value, ok
}

// SaveNote returns when the target acknowledged the note. A nil value removes it.
func (s *TopicStore) SaveNote(ctx context.Context, name string, value []byte) error {
	if err := s.make(ctx); err != nil {
		return err
	}
	if err := s.write(ctx, []*kgo.Record{{Topic: s.topic, Key: noteKey(name), Value: value}}); err != nil {
		return fmt.Errorf("save note %s: %w", name, err)
	}
	s.notes.set(name, value)
	return nil
}

package state

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Beside heads and blocks the state topic holds notes, small facts of the engine by name, which live and die with the
// copies as positions do.
const kindNote = 'N'

// notebook holds the notes that were read or written.
type notebook struct {
	mu sync.Mutex
	m  map[string][]byte
	// fresh are the names written since the last reading began: what it finds of them may be older.
	fresh map[string]bool
	own   map[string]bool // written here
}

// begin says that the topic is being read now.
func (n *notebook) begin() {
	n.mu.Lock()
	n.fresh = map[string]bool{}
	n.mu.Unlock()
}

// replace takes what was read.
func (n *notebook) replace(read map[string][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.fresh {
		delete(read, name)
		if value, ok := n.m[name]; ok {
			read[name] = value
		}
	}
	n.m = read
}

// wrote takes what was written; nil: removed.
func (n *notebook) wrote(name string, value []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fresh == nil {
		n.fresh = map[string]bool{}
	}
	n.fresh[name] = true
	if n.own == nil {
		n.own = map[string]bool{}
	}
	n.own[name] = true
	setNote(&n.m, name, value)
}

func setNote(m *map[string][]byte, name string, value []byte) {
	if value == nil {
		delete(*m, name)
		return
	}
	if *m == nil {
		*m = map[string][]byte{}
	}
	(*m)[name] = value
}

func noteKey(name string) []byte {
	return appendString(append([]byte(keyMagic), keyVersion, kindNote), name)
}

// takeNote adds a record to notes and tells whether it is one.
func takeNote(r *kgo.Record, notes map[string][]byte) bool {
	d := decoder{buf: r.Key}
	if string(d.take(len(keyMagic))) != keyMagic {
		return false
	}
	d.version(keyVersion)
	kind := d.byte()
	if d.err != nil || kind != kindNote {
		return false
	}
	name := d.string()
	if d.err != nil || len(d.buf) != 0 {
		return false
	}
	setNote(&notes, name, r.Value)
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
	if err := s.regain(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(ctx, []*kgo.Record{{Topic: s.topic, Key: noteKey(name), Value: value}}); err != nil {
		return fmt.Errorf("save note %s: %w", name, err)
	}
	s.notes.wrote(name, value)
	return nil
}

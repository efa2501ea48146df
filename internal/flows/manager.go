package flows

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// ManagerConfig is what a Manager is made of.
type ManagerConfig struct {
	Store Store // required
	// Sealer encrypts secrets; nil refuses every secret with the reason.
	Sealer Sealer
	// Logger; nil discards.
	Logger *slog.Logger
	// CheckTimeout bounds how long a request waits for a worker; default 10 s.
	CheckTimeout time.Duration
}

// Manager is API on a Store: all rules of the domain. It keeps no state of its
// own, so that any number of them can work on one database. Safe for
// concurrent use.
type Manager struct {
	store        Store
	sealer       Sealer
	logger       *slog.Logger
	checkTimeout time.Duration
}

var _ API = (*Manager)(nil)

// NewManager returns a Manager. It panics without a store, which is a mistake in wiring.
func NewManager(c ManagerConfig) *Manager {
	if c.Store == nil {
		panic("flows: a Manager needs a Store")
	}
	if c.Sealer == nil {
		c.Sealer = noSealer{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.CheckTimeout <= 0 {
		c.CheckTimeout = 10 * time.Second
	}
	return &Manager{store: c.Store, sealer: c.Sealer, logger: c.Logger, checkTimeout: c.CheckTimeout}
}

type noSealer struct{}

func (noSealer) Seal(string) (SealedSecret, error) {
	return SealedSecret{}, errors.New("this server has no key to seal secrets with: set MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE")
}

// Authenticate implements API.
func (m *Manager) Authenticate(ctx context.Context, token string) (Project, error) {
	if token == "" {
		return Project{}, &Error{Code: CodeUnauthenticated, Message: "a token is needed"}
	}
	return m.store.ProjectByToken(ctx, HashToken(token))
}

// ProjectByName implements API.
func (m *Manager) ProjectByName(ctx context.Context, name string) (Project, error) {
	return m.store.ProjectByName(ctx, name)
}

// Ready implements API.
func (m *Manager) Ready(ctx context.Context) error { return m.store.Ready(ctx) }

const (
	defaultPage = 100
	maxPage     = 1000
)

func pageLimit(p Page) (int, error) {
	switch {
	case p.Limit == 0:
		return defaultPage, nil
	case p.Limit < 0 || p.Limit > maxPage:
		return 0, &Error{Code: CodeInvalid, Message: "limit must be 1 to 1000"}
	}
	return p.Limit, nil
}

func badCursor() error {
	return &Error{Code: CodeInvalid, Message: "cursor is not one that this API gave out"}
}

// pageOf reads one more row than asked for to know whether there is a next page.
func pageOf[T any](p Page, id func(T) uuid.UUID, read func(after uuid.UUID, limit int) ([]T, error)) (List[T], error) {
	limit, err := pageLimit(p)
	if err != nil {
		return List[T]{}, err
	}
	after := uuid.Nil
	if p.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
		if err != nil || len(raw) != len(after) {
			return List[T]{}, badCursor()
		}
		after = uuid.UUID(raw)
	}
	items, err := read(after, limit+1)
	if err != nil {
		return List[T]{}, err
	}
	l := List[T]{Items: items}
	if len(items) > limit {
		l.Items = items[:limit]
		last := id(l.Items[limit-1])
		l.Next = base64.RawURLEncoding.EncodeToString(last[:])
	}
	return l, nil
}

func encodeEventCursor(id int64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(id)))
}

func decodeEventCursor(s string) (int64, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != 8 {
		return 0, badCursor()
	}
	id := int64(binary.BigEndian.Uint64(raw))
	if id < 0 {
		return 0, badCursor()
	}
	return id, nil
}

// newID returns a version 7 id: ids sort by the time they were made.
func newID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, internal("make an id", err)
	}
	return id, nil
}

func internal(op string, err error) *Error {
	return &Error{Code: CodeInternal, Message: "an internal fault; the log says more", Op: op, Err: err}
}

// checkRevision compares what the caller has read with what is stored.
func checkRevision(stored, wanted int64) error {
	if wanted == AnyRevision || wanted == stored {
		return nil
	}
	return &Error{Code: CodePreconditionFailed, Message: "it has changed since it was read; read it again and decide anew"}
}

package mirror

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorflow/mirrorflow/internal/engine/wire"
)

// unsent tells whether a request that failed surely did not reach the broker.
func unsent(err error) bool {
	if lost, ok := errors.AsType[*wire.LostError](err); ok {
		return !lost.Sent
	}
	var ke *kerr.Error
	return !errors.As(err, &ke) && !errors.Is(err, wire.ErrAnswer)
}

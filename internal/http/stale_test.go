package httpapi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

func TestAChangeIsBuiltAnewNoLongerThanItsRequestLasts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	_, err := retryStale(ctx, func() (int, bool, error) {
		if tries++; tries == 3 {
			cancel()
		}
		return 0, false, &flows.Error{Code: flows.CodePreconditionFailed}
	})
	require.Equal(t, flows.CodeConflict, flows.CodeOf(err))
	require.Less(t, tries, maxStale)
}

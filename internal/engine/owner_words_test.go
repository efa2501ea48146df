package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnOwnerOfAnotherProjectHasNoIDInSentences(t *testing.T) {
	t.Parallel()
	require.Equal(t, "flow 1", ownerWords("1"))
	require.Equal(t, "a flow of another project", ownerWords(OwnerElsewhere))
}

package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestEveryBrokerCodeHasExactlyOneKind(t *testing.T) {
	t.Parallel()
	count := map[int16]int{}
	for _, codes := range kindCodes {
		for _, e := range codes {
			count[e.Code]++
		}
	}
	for code := int16(-1); code < 300; code++ {
		e := kerr.TypedErrorForCode(code)
		if code == 0 || e == nil || e == kerr.UnknownServerError && code != -1 {
			require.Zero(t, count[code], "code %d is not one of the library's", code)
			continue
		}
		require.Equal(t, 1, count[code], "%s (%d)", e.Message, code)
		require.NotEqual(t, KindNone, KindOf(e))
		require.NotEmpty(t, KindOf(e).String())
		if e.Retriable {
			require.Contains(t, []Kind{KindRetriable, KindTopicMissing, KindFenced, KindExists}, KindOf(e), "%s is retriable for the library", e.Message)
		}
	}
}

func TestKindOfLooksThroughWraps(t *testing.T) {
	t.Parallel()
	require.Equal(t, KindGroupBusy, KindOf(fmt.Errorf("commit: %w", errors.Join(errors.New("x"), kerr.UnknownMemberID))))
	require.Equal(t, KindNone, KindOf(errors.New("x")))
	require.Equal(t, KindNone, KindOf(nil))
	require.Equal(t, KindServer, kindOfCode(9999), "codes of later releases are the server's affair")
}

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

type runnerFunc func(context.Context) error

func (f runnerFunc) Run(ctx context.Context) error { return f(ctx) }

func TestOneTaskEmitsTheHeartbeatsOfAPairAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	shared := &turns{m: map[pair]*turn{}}
	began, p := make(chan string, 3), pair{"c", "a", "b"}
	start := func(name string, p pair) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- inTurn{runner: runnerFunc(func(ctx context.Context) error {
				began <- name
				<-ctx.Done()
				return nil
			}), turns: shared, pair: p}.Run(ctx)
		}()
		return func() {
			cancel()
			require.NoError(t, <-done)
		}
	}
	stopA := start("a", p)
	require.Equal(t, "a", <-began)
	stopB := start("b", p)
	stopOther := start("other", pair{"c", "b", "a"})
	require.Equal(t, "other", <-began, "another pair does not wait")
	require.Empty(t, began, "one is enough")
	stopA()
	require.Equal(t, "b", <-began)
	stopB()
	stopOther()
	require.Empty(t, shared.m)
}

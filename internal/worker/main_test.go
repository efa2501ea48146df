package worker

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/store"
	"github.com/mirrorflow/mirrorflow/internal/test/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m, store.Migrate)
	// The pattern library keeps a clock of its own, which ends by itself when no match needs it.
	clock := goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock")
	if err := goleak.Find(clock); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

package store_test

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
	// The clock of patterns with a time limit runs a little longer than their last use.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

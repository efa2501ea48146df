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
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

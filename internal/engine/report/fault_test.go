package report_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
)

func TestAPanicIsAnErrorThatNamesThePlaceAndKeepsTheValueToItself(t *testing.T) {
	t.Parallel()
	err := report.Contained("the mill", func() error { panic("hunter2") })
	var p *report.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "hunter2", p.Value)
	require.Contains(t, string(p.Stack), "fault_test.go")
	require.Contains(t, err.Error(), "the mill")
	require.NotContains(t, err.Error(), "hunter2")

	plain := errors.New("plain")
	require.Same(t, plain, report.Contained("x", func() error { return plain }))
	require.NoError(t, report.Contained("x", func() error { return nil }))
}

func TestAPanicAsideIsRaisedWhereItIsWaitedFor(t *testing.T) {
	t.Parallel()
	err := report.Contained("outside", func() error {
		_, err := report.Aside("inside", func() (int, error) { panic("oh") })()
		return err
	})
	var p *report.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "inside", p.Where)

	v, err := report.Aside("inside", func() (int, error) { return 7, nil })()
	require.NoError(t, err)
	require.Equal(t, 7, v)
}

//go:build !linux

package wire

import "errors"

func setLowWater(uintptr, int) error { return errors.ErrUnsupported }

package wire

import "syscall"

// setLowWater sets SO_RCVLOWAT, which on Linux bounds what poll calls readable.
func setLowWater(fd uintptr, n int) error {
	return syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
}
